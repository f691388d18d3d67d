"""What GPUs did while they were allocated: readers' answers, joined to records of workloads."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast

import pytest

from bedplate.accounting import measured
from bedplate.accounting.book import Book, lines, read_lines
from bedplate.accounting.measured import Measured
from bedplate.accounting.records import Amount, Record, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.pods.api import Api

GPU = "nvidia.com/gpu"
NOW = 1_700_000_600


def record(uid: str, workload: str, start: int = NOW - 600) -> Record:
    """Return a record of a GPU that goes on."""
    amounts = (Amount("pool", GPU, 1, 1.0),)
    return Record(uid, start, None, "", "vision", "vision", workload, "ann", amounts, seen=NOW)


def pod(name: str, node: str = "n1", *owner: str, gpus: int = 1, **labels: str) -> dict[str, Any]:
    """Return a pod that runs; its UID is its name."""
    owners = [dict(zip(("kind", "name"), one.split("/"), strict=True)) for one in owner]
    meta = {"name": name, "uid": name, "ownerReferences": owners, "labels": labels}
    limits = {"limits": {GPU: str(gpus)} if gpus else {"cpu": "1"}}
    containers = [{"name": "main", "resources": limits}]
    spec = {"nodeName": node, "containers": containers}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def answer(watched: float = 3600.0, why: str = "", **gpu: float | None) -> dict[str, Any]:
    """Return what a reader says of pods: seconds since each used its GPU."""
    pods = {name: {"gpu": age, "program": None, "memory_mib": 0} for name, age in gpu.items()}
    return {"watched": watched, "gpu": not why, "why": why, "pods": pods}


@pytest.mark.parametrize(
    ("workload", "pods", "answers", "expected"),
    [
        # One that used its GPU within the look, one that did ten seconds ago, one that never did.
        ("Pod/a", [pod("a")], {"n1": answer(a=0.0)}, Measured(30, 0, still=0)),
        ("Pod/a", [pod("a")], {"n1": answer(a=10.0)}, Measured(30, 10, still=10)),
        ("Pod/a", [pod("a")], {"n1": answer(a=None)}, Measured(30, 30, still=600)),
        # A reader that has just begun knows as much as it saw.
        ("Pod/a", [pod("a")], {"n1": answer(12.0, a=None)}, Measured(12, 12, still=12)),
        # A Job of two pods, of which one works; a launcher without a GPU does not count.
        (
            "Job/j",
            [pod("a", "n1", "Job/j"), pod("b", "n2", "Job/j"), pod("c", "n1", "Job/j", gpus=0)],
            {"n1": answer(a=None, c=None), "n2": answer(b=1.0)},
            Measured(30, 15.5, still=1),
        ),
        (
            "JobSet/s",
            [pod("a", "n1", "Job/s-w-0", **{measured.JOBSET: "s"})],
            {"n1": answer(a=None)},
            Measured(30, 30, still=600),
        ),
        ("Pod/a", [pod("a")], {}, Measured(0, 0, "n1: no reader runs there")),
        (
            "Pod/a",
            [pod("a")],
            {"n1": answer(why="GPU 0: not supported, as in MIG mode", a=None)},
            Measured(0, 0, "n1: GPU 0: not supported, as in MIG mode"),
        ),
        (
            "Pod/a",
            [pod("a")],
            {"n1": answer()},
            Measured(0, 0, "n1: its reader does not see the pod"),
        ),
        ("Pod/a", [pod("b")], {"n1": answer(b=None)}, None),
    ],
)
def test_a_workload_is_as_idle_as_its_pods(
    workload: str, pods: list[Any], answers: dict[str, Any], expected: Measured | None
) -> None:
    one = record("w", workload)
    mine = measured.holders(one, pods)
    found = measured.of_record(one, mine, answers, 30, NOW) if mine else None
    assert found == expected


def test_what_made_a_pod_without_a_job_is_known() -> None:
    """A Deployment would make another; a group of pods ends together or not at all."""
    made, group, alone = pod("a", "n1", "ReplicaSet/web-1"), pod("a"), pod("a")
    made["metadata"]["ownerReferences"][0]["controller"] = True
    group["metadata"]["labels"] = {measured.GROUP: "two"}
    found = [
        measured.of_record(record("w", "Pod/a"), [one], {"n1": answer(a=None)}, 30, NOW).maker
        for one in (made, group, alone)
    ]
    assert found == ["ReplicaSet/web-1", "group/two", ""]


def test_a_pod_counts_from_its_own_start_and_not_from_the_admission() -> None:
    """Of thirty seconds since the last look it ran for five: an image was pulled before."""
    one, late = record("w", "Pod/a"), pod("a")
    running = {"running": {"startedAt": written(NOW - 5)}}
    late["status"]["containerStatuses"] = [{"name": "main", "state": running}]
    found = measured.of_record(one, [late], {"n1": answer(a=None)}, 30, NOW)
    assert found == Measured(5, 5, still=5)


@pytest.mark.parametrize(
    ("program", "gpu", "watched", "still"),
    [(None, None, 3600, 600), (4.0, None, 3600, 4), (None, 7.0, 3600, 7), (None, None, 20, 20)],
)
def test_a_workload_is_still_since_its_gpu_and_its_programs_are(
    program: float | None, gpu: float | None, watched: float, still: float
) -> None:
    said = answer(watched, a=gpu)
    said["pods"]["a"]["program"] = program
    one, mine = record("w", "Pod/a"), pod("a")
    assert measured.of_record(one, [mine], {"n1": said}, 30, NOW).still == still
    away = pod("b", "n2")
    assert measured.of_record(one, [mine, away], {"n1": said}, 30, NOW).still is None


def test_a_job_is_not_idle_while_one_of_its_pods_pulls_its_image() -> None:
    """The others wait for it: what is known of them is counted, and nothing ends."""
    here, waits = pod("a", "n1", "Job/j"), pod("b", "n2", "Job/j")
    waits["status"]["phase"] = "Pending"
    one = record("w", "Job/j")
    mine = measured.holders(one, [here, waits])
    found = measured.of_record(one, mine, {"n1": answer(a=None)}, 30, NOW)
    assert found == Measured(30, 30, still=None)
    cluster = cast("Api", Cluster(vision=[waits]))
    assert measured.look(cluster, [one], 30, NOW, 1) == {}


def test_pods_that_do_not_run_and_claims() -> None:
    """A pod that has ended is no idle one; one with a claim names no resource."""
    over, claims = pod("a"), pod("a", gpus=0)
    over["status"]["phase"] = "Succeeded"
    claims["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert measured.holders(record("w", "Pod/a"), [over]) == []
    assert measured.holders(record("w", "Pod/a"), [claims]) == [claims]


class Cluster:
    """The lists that are read of the API server."""

    def __init__(self, **pods: list[dict[str, Any]]) -> None:
        self.pods = pods

    def call(self, method: str, path: str) -> dict[str, Any]:
        """Return the pods of a namespace."""
        assert method == "GET"
        namespace = path.split("/")[4]
        return {"items": self.pods.get(namespace.replace("-", "_"), [])}


@contextmanager
def reader(content: bytes) -> Iterator[int]:
    """Answer as a reader; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield serving.server_port
    serving.shutdown()
    serving.server_close()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(answer(a=None)).encode(), Measured(5, 5, still=5)),
        (b"[]", "its reader does not answer"),
        (b"no JSON", "its reader does not answer"),
        (json.dumps(answer(a="long")).encode(), "a figure of pod a is no number"),  # type: ignore[arg-type]
        (b'{"pods": {}}', "its reader does not answer: 'why'"),
    ],
)
def test_readers_are_asked_over_http(content: bytes, expected: Measured | str) -> None:
    """Whatever answers there, the recorder goes on. A record counts from its own start."""
    one = pod("reader")
    one["status"]["podIP"] = "127.0.0.1"
    cluster = cast("Api", Cluster(vision=[pod("a")], bedplate_use=[one]))
    begun = record("w", "Pod/a", NOW - 5)
    with reader(content) as port:
        found = measured.look(cluster, [begun], 30, NOW, port)
    if isinstance(expected, Measured):
        assert found == {"w": expected}
    else:
        assert (found["w"].known, expected in found["w"].why) == (0, True)
    assert measured.look(cluster, [], 30, NOW, port) == {}
    silent = measured.look(cluster, [begun], 30, NOW, port)
    assert silent["w"].why.startswith("n1: its reader does not answer: ")


def test_what_is_known_is_kept_and_the_book_that_knows_more_wins() -> None:
    book = Book([record("w", "Pod/a")])
    old = lines(book)
    assert "measured" not in old, "records of clusters without readers stay as they were"
    book.measure("w", 30, 10, "")
    book.measure("w", 30, 30, "n1: no reader runs there")
    (one,) = book
    assert (one.measured, one.idle, one.no_figure) == (60, 40, "n1: no reader runs there")
    assert lines(Book(read_lines(lines(book)))) == lines(book)
    for first, second in ((book, Book(read_lines(old))), (Book(read_lines(old)), book)):
        first.add(second)
        assert [one.idle for one in first] == [40]
    with pytest.raises(ValueError, match="a number of GPUs is not a number"):
        read_lines(lines(book).replace('"idle": 40', '"idle": -1'))
