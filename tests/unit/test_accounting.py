"""Records and their sums, over histories of workloads as Kueue writes them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.accounting import command
from bedplate.accounting.book import Book, lines, read_lines
from bedplate.accounting.records import seen, user_of, written
from bedplate.accounting.summary import summary
from bedplate.accounting.units import capacity, units
from bedplate.accounting.usage import Window, over_time, path_in, rows
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main
from bedplate.lock import write_lock
from bedplate.lock.claims import RESOURCE
from tests.frameworks.claims import with_claims
from tests.schedulers.locks import lock_of

if TYPE_CHECKING:
    from pathlib import Path

GPU = "nvidia.com/gpu"
UNITS = {"pool-a": {GPU: 1.0}, "pool-b": {"nvidia.com/gpu.shared": 0.25}}
T0 = 1_700_000_000


@dataclass
class History:
    """A Workload and what Kueue writes into it, with the truth beside it."""

    uid: str
    count: int = 1
    flavor: str = "pool-a"
    resource: str = GPU
    queue: str = "vision"
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    since: int | None = None
    truth: list[tuple[int, int]] = field(default_factory=list)
    done: bool = False

    def _is(self, kind: str, now: int, *, true: bool) -> None:
        status = str(true)
        if self.conditions.get(kind, {}).get("status") != status:
            self.conditions[kind] = {
                "type": kind,
                "status": status,
                "lastTransitionTime": str(written(now)),
            }

    def admit(self, now: int) -> None:
        """Give it its quota."""
        if self.since is not None or self.done:
            return
        self.since = now
        usage = {self.resource: str(self.count)}
        flavors = {self.resource: self.flavor}
        self.status["admission"] = {
            "clusterQueue": self.queue,
            "podSetAssignments": [{"name": "main", "flavors": flavors, "resourceUsage": usage}],
        }
        self._is("Admitted", now, true=True)
        self._is("Evicted", now, true=False)

    def mark(self, now: int) -> None:
        """Say that it is to go; its pods still run."""
        if self.since is None or self.conditions["Evicted"]["status"] == "True":
            return
        self._is("Evicted", now, true=True)
        stats = self.status.setdefault("schedulingStats", {"evictions": [{"count": 0}]})
        stats["evictions"][0]["count"] += 1

    def evict(self, now: int) -> None:
        """Take its quota back."""
        if self.since is None:
            return
        self.mark(now)
        self._end(now)
        past = self.status.get("accumulatedPastExecutionTimeSeconds", 0)
        first, last = self.truth[-1]
        self.status["accumulatedPastExecutionTimeSeconds"] = past + last - first
        del self.status["admission"]
        self._is("Admitted", now, true=False)

    def finish(self, now: int) -> None:
        """End it; what Kueue says of its admission stays."""
        if self.since is None:
            return
        self._end(now)
        self._is("Finished", now, true=True)
        self.done = True

    def _end(self, now: int) -> None:
        assert self.since is not None
        self.truth.append((self.since, now))
        self.since = None

    def held(self, now: int) -> int:
        """Return how many seconds it has held its quota."""
        return sum(b - a for a, b in self.truth) + (now - self.since if self.since else 0)

    def object(self) -> dict[str, Any]:
        """Return the Workload as the API has it now."""
        limits = {"resources": {"limits": {self.resource: str(self.count), "cpu": "1"}}}
        return {
            "metadata": {"uid": self.uid, "namespace": self.queue, "name": self.uid},
            "spec": {"podSets": [{"count": 1, "template": {"spec": {"containers": [limits]}}}]},
            "status": {**self.status, "conditions": list(self.conditions.values())},
        }


STEP = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["admit", "admit", "mark", "evict", "evict", "finish"]),
    st.integers(0, 5000),
)


def take(book: Book, history: History, now: int) -> None:
    """Let a book look at a Workload."""
    book.see(seen(json.loads(json.dumps(history.object())), UNITS), now, lambda: "alice")


def total(book: Book, now: int) -> float:
    """Return the GPU-hours of all."""
    return sum(row.gpu_hours for row in rows(book, Window(T0, now), "queue", ()))


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(STEP, max_size=25), st.lists(st.sets(st.integers(0, 25)), min_size=2, max_size=2))
def test_sums_equal_the_schedulers_records(
    steps: list[tuple[int, str, int]], looks: list[set[int]]
) -> None:
    """One book sees every change, two look now and then: all end with the scheduler's sum."""
    work = [History(f"w{n}", count=n + 1) for n in range(3)]
    every, first, second = Book(), Book(), Book()
    now = T0
    for number, (which, what, lasts) in enumerate(steps):
        getattr(work[which], what)(now)
        take(every, work[which], now)
        for book, at in zip((first, second), looks, strict=True):
            if number in at:
                for one in work:
                    take(book, one, now)
        now += lasts
    for one in work:
        for book in (every, first, second):
            take(book, one, now)
    truth = sum(one.count * one.held(now) for one in work) / 3600
    assert total(every, now) == pytest.approx(truth)
    for one in work:
        ended = [(r.start, r.end) for r in every.of(one.uid) if r.end is not None]
        assert sorted(ended) == sorted(pair for pair in set(one.truth) if pair in ended)
    for book in (first, second):
        assert total(book, now) == pytest.approx(truth)
        before = lines(book)
        for one in work:
            take(book, one, now)
        assert lines(book) == before, "the same answers changed something"
        assert lines(Book(read_lines(before))) == before
    first.add(second)
    assert total(first, now) == pytest.approx(truth)
    first.add(every)
    assert total(first, now) == pytest.approx(truth)


def test_each_admission_is_a_record_and_an_eviction_ends_one() -> None:
    """A workload that was stopped and came back: two records with the queue's times."""
    work, book = History("w", count=2), Book()
    for what, at in (("admit", 0), ("evict", 100), ("admit", 150), ("finish", 250)):
        getattr(work, what)(T0 + at)
        take(book, work, T0 + at)
    found = [(one.start - T0, (one.end or 0) - T0, one.why, one.user) for one in book]
    assert found == [(0, 100, "evicted", "alice"), (150, 250, "finished", "alice")]
    assert total(book, T0 + 1000) == pytest.approx(2 * 200 / 3600)


def test_what_came_and_went_unwatched_has_its_length_and_says_so() -> None:
    """First seen at its third admission: the two before are one record that is not placed."""
    work, book = History("w"), Book()
    for what, at in (("admit", 0), ("evict", 60), ("admit", 100), ("evict", 130), ("admit", 200)):
        getattr(work, what)(T0 + at)
    take(book, work, T0 + 210)
    (past, present) = book
    assert (past.placed, past.cycles, (past.end or 0) - past.start) == (False, 2, 90)
    assert (present.start, present.end, present.seen) == (T0 + 200, None, T0 + 210)
    (row,) = rows(book, Window(T0, T0 + 210), "team", ())
    assert row.not_placed == pytest.approx(90 / 3600)


def test_a_workload_that_is_gone_ends_when_it_was_last_seen() -> None:
    """Without a recorder nobody knows when: the least is counted, and the record says `lost`."""
    work, book = History("w"), Book()
    work.admit(T0)
    take(book, work, T0 + 50)
    book.lose({"w"}, 0)
    assert next(iter(book)).end is None
    book.lose(set(), 0)
    assert [(one.end, one.why) for one in book] == [(T0 + 50, "lost")]
    # A book that knows the end wins, in either order.
    work.finish(T0 + 70)
    other = Book()
    take(other, work, T0 + 80)
    other.add(book)
    book.add(other)
    assert [one.end for one in (*book, *other)] == [T0 + 70] * 2


def test_a_deletion_ends_a_record_when_it_began() -> None:
    work, book = History("w"), Book()
    work.admit(T0)
    gone = work.object()
    gone["metadata"]["deletionTimestamp"] = written(T0 + 30)
    book.see(seen(gone, UNITS, deleted_at=T0 + 45), T0 + 45, lambda: "")
    assert [(one.end, one.why) for one in book] == [(T0 + 30, "deleted")]


def test_shares_are_parts_of_a_gpu_and_a_window_cuts() -> None:
    work, book = History("w", 1, "pool-b", "nvidia.com/gpu.shared", "intro"), Book()
    work.admit(T0)
    work.finish(T0 + 7200)
    take(book, work, T0 + 7200)
    (row,) = rows(book, Window(T0 + 3600, T0 + 9000), "course", ["intro"])
    assert (row.name, row.gpu_hours, row.share_hours) == ("intro", 0.25, 1.0)
    assert rows(book, Window(T0 + 7200, T0 + 9000), "course", ["intro"]) == []
    assert rows(book, Window(T0, T0 + 60), "course", [])[0].name == "(none)"
    assert rows(book, Window(T0, T0 + 60), "user", [])[0].name == "alice"
    assert rows(book, Window(T0, T0 + 60), "queue", [])[0].name == "intro/intro"
    moments, held = over_time(list(book), Window(T0, T0 + 9000))
    assert moments == [T0, T0 + 7200, T0 + 9000]
    assert held == {"intro": [0.25, 0.0, 0.0]}


def test_the_hubs_pods_are_the_students() -> None:
    """Whom the hub names counts only where the hub made the pod."""
    hub = "system:serviceaccount:bedplate-hub:hub"
    named = {"hub.jupyter.org/username": "ada"}

    def pod(annotations: dict[str, str]) -> dict[str, Any]:
        return {"metadata": {"annotations": annotations}}

    assert user_of(pod({**named, "bedplate.io/user": hub})) == "ada"
    assert user_of(pod({**named, "bedplate.io/user": "eve"})) == "eve"
    assert user_of(pod(named)) == "", "nobody vouches for it"
    assert user_of(None) == ""


def test_units_follow_the_pools_mode() -> None:
    lock = lock_of({"pool_a": [{}, {}], "pool_b": [{}]}, {}, gpus=8)
    shared = lock.pools["pool_b"]
    sharing = shared.sharing.model_copy(update={"mode": "time-slicing", "replicas": 4})
    pools = {**lock.pools, "pool_b": shared.model_copy(update={"sharing": sharing})}
    lock = lock.model_copy(update={"pools": pools})
    catalogue = load_catalogue()
    assert units(lock, catalogue) == {"pool-a": {GPU: 1.0}, "pool-b": {GPU: 0.25}}
    assert capacity(lock, catalogue) == 16 + 2


def test_a_claim_without_admission_counts_by_its_course() -> None:
    """As after an eviction: the pod names a template, and courses differ in size."""
    courses = {"seminar": (2, 6144), "studio": (1, 3072), "thesis": (1, 0)}
    of = units(with_claims(lock_of({"pool_class": [{}]}, {}), courses), load_catalogue())
    assert of["pool-claims.claims.seminar"] == {RESOURCE: 0.375}
    assert of["pool-claims"] == {GPU: 1.0}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "share-3072mi"}]
    group: dict[str, Any] = {"name": "main", "count": 1}
    group["template"] = {"spec": {"containers": [{"name": "notebook"}], "resourceClaims": claims}}
    work: dict[str, Any] = {"metadata": {"uid": "u", "name": "w", "namespace": "studio"}}
    work["spec"] = {"podSets": [group]}
    (amount,) = seen(work, of).amounts
    assert (amount.flavor, amount.resource) == ("pool-claims.claims.studio", RESOURCE)
    assert (amount.count, amount.gpus, amount.shared) == (1, 0.1875, True)
    work["metadata"]["namespace"] = "vision"
    assert seen(work, of).amounts == (), "claims of a team are counted nowhere"


def test_the_command_reads_what_the_site_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three forms of one answer; the file is not changed by reading it."""
    book = Book()
    for name, queue in (("w1", "vision"), ("=w2", "=evil")):
        work = History(name, count=2, queue=queue)
        work.admit(T0)
        work.finish(T0 + 1800)
        take(book, work, T0 + 1800)
    site = tmp_path / "site"
    (site / ".bedplate").mkdir(parents=True)
    path_in(site).write_text(lines(book))
    lock = lock_of({"pool_a": [{}]}, {}, gpus=4)
    monkeypatch.setattr(command, "load_lock", lambda _: lock)
    window = ["--since", str(written(T0)), "--until", str(written(T0 + 3600)), "--offline"]
    asked = ["usage", str(site), *window]
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "GPU-hours in all: 2.00 of 4.00 that the lock's nodes offer." in shown
    assert "Not allocated: 2.00 (50%)." in shown
    assert "Allocated and idle: unknown, there is no figure yet: the recorder asks" in shown
    assert main([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpu_hours"], found["idle_gpu_hours"]) == (2.0, None)
    assert [one["no_figure_gpu_hours"] for one in found["rows"]] == [1.0, 1.0]
    # Half of what is known of one of them was idle; of the other there is a reason.
    (mine, theirs) = sorted(book, key=lambda one: one.queue, reverse=True)
    kept = Book([replace(mine, measured=1500.0, idle=750.0), replace(theirs, no_figure="n1: MIG")])
    path_in(site).write_text(lines(kept))
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "Allocated and idle: 0.42 (50% of 0.83 with a figure).\nNo figure: n1: MIG." in shown
    assert main([*asked, "--format", "json", "--by", "user"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["idle_gpu_hours"], found["measured_gpu_hours"]) == (0.416667, 0.833333)
    assert found["no_figure"] == ["n1: MIG"]
    (row,) = found["rows"]
    assert (row["name"], row["idle_gpu_hours"]) == ("alice", 0.416667)
    assert row["no_figure_gpu_hours"] == pytest.approx(2 - 0.833333)
    # A window that cuts has its part of both.
    half = ["--since", str(written(T0 + 900)), "--until", str(written(T0 + 3600)), "--offline"]
    assert main(["usage", str(site), *half, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["idle_gpu_hours"] == 0.208333
    assert main([*asked, "--format", "csv"]) == 0
    table = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert table[0][:2] == ["team", "gpu_hours"]
    assert table[0][-2:] == ["idle_gpu_hours", "no_figure_gpu_hours"]
    assert {line[0] for line in table[1:]} == {"vision", "'=evil"}, "no cell is a formula"
    assert path_in(site).read_text() == lines(kept)


def test_the_reports_summary_has_a_picture_of_equal_bytes(tmp_path: Path) -> None:
    """Nothing where usage was never read; else a table and a picture that a page can hold."""
    lock = lock_of({"pool_a": [{}]}, {}, gpus=4)
    assert summary(tmp_path, lock) is None
    book = Book()
    for name, queue in (("w1", "vision"), ("w2", "<script>")):
        work = History(name, count=2, queue=queue)
        work.admit(T0)
        work.finish(T0 + 1800)
        take(book, work, T0 + 1800)
    (tmp_path / ".bedplate").mkdir()
    path_in(tmp_path).write_text(lines(book))
    found = summary(tmp_path, lock)
    assert found is not None
    assert (found.used, found.offered) == (2.0, 2.0)
    assert found.picture.startswith("<svg")
    assert "vision" in found.picture
    assert "<script>" not in found.picture
    assert summary(tmp_path, lock) == found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "no time — --since — got yesterday / allowed YYYY-MM-DD"),
        ([], "kubeconfig cannot be used — "),
    ],
)
def test_mistakes_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr(command, "load_lock", lambda _: lock_of({"pool_a": [{}]}, {}))
    assert main(["usage", str(tmp_path), *arguments]) == 3
    assert said in capsys.readouterr().err


def test_a_broken_file_of_records_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / ".bedplate").mkdir()
    path_in(tmp_path).write_text('{"uid": "w"}\n')
    with pytest.raises(command.SiteError, match=r"records cannot be read .* got line 1: "):
        command.read(tmp_path)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "x", "2026-13"]
)
@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_time_that_no_calendar_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, text: str
) -> None:
    write_lock(tmp_path, lock_of({"pool_train": [{}]}, {}))
    assert main(["usage", str(tmp_path), "--offline", option, text]) == 3
    assert f"no time — {option} — got {text} / allowed YYYY-MM-DD" in capsys.readouterr().err
