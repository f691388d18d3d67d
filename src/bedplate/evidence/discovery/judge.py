"""All hosts that were read, judged together: catalogue and lock are loaded once for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from bedplate.catalogue import catalogue_of
from bedplate.common.errors import LockError, Problem
from bedplate.evidence.discovery import report, store
from bedplate.evidence.discovery.adopt import cluster_of, findings
from bedplate.evidence.discovery.compare import Comparison
from bedplate.evidence.discovery.propose import Read, proposals
from bedplate.lock import load_lock, lock_path
from bedplate.site.places import Place, Places

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from bedplate.catalogue import Catalogue
    from bedplate.evidence.discovery.adopt import Cluster
    from bedplate.evidence.discovery.propose import Proposal
    from bedplate.lock.model import Lock

FORMAT = 1


@dataclass(frozen=True)
class Judgement:
    """What is written (`records` by host, `proposals`), and what is said."""

    records: Mapping[str, Mapping[str, Any]]
    proposals: tuple[Proposal, ...]
    lines: tuple[str, ...]

    @property
    def problems(self) -> dict[str, list[str]]:
        """Return by host what differs from the site, as messages."""
        return {name: list(record["problems"]) for name, record in self.records.items()}


def judge(
    site: Path,
    answers: Mapping[str, Mapping[str, Any]],
    inventory: Collection[str],
    when: str,
    shown: str,
    catalogue: Catalogue | None = None,
) -> Judgement:
    """Compare answers with wishes and lock, and propose pools.

    An answer is `{facts | reason, groups, wishes, unreadable, places}` of a host. What earlier
    runs read of other hosts of `inventory` counts for the proposals. Nothing is written.
    """
    catalogue = catalogue or catalogue_of(site)
    lock, said = _lock(site)
    # Once for all hosts that name the same endpoint, which is all of them.
    cluster = cache(partial(cluster_of, site, lock))
    records = {
        name: _record(name, answer, shown, lock, catalogue, cluster) | {"read": when}
        for name, answer in sorted(answers.items())
    }
    others = store.earlier(site, sorted(set(inventory) - set(records)))
    read = [
        Read(name, tuple(record["groups"]), record["facts"])
        for name, record in {**others, **records}.items()
        if record["facts"] is not None
    ]
    proposed = tuple(proposals(read, catalogue))
    folder = f"{shown}/{store.FOLDER / store.POOLS}"
    lines = report.lines(records, proposed, folder, said)
    return Judgement(records, proposed, tuple(lines))


def _lock(site: Path) -> tuple[Lock | None, str]:
    if not lock_path(site).exists():
        return None, "no lock yet: what runs already is named, and compared with nothing"
    try:
        lock = load_lock(site)
    except LockError as error:
        return None, f"the lock is left out: {error}"
    return lock, "compared with the lock"


def _record(
    name: str,
    answer: Mapping[str, Any],
    shown: str,
    lock: Lock | None,
    catalogue: Catalogue,
    cluster: Callable[[str | None], Cluster],
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "format": FORMAT,
        "host": name,
        "groups": list(answer.get("groups", ())),
        "facts": answer.get("facts"),
        "findings": [],
        "notes": [],
        "problems": [],
    }
    facts = answer.get("facts")
    if facts is None:
        fix = "check its address, its power, its host key, its Python and the way to it"
        got = " ".join(str(answer.get("reason") or "nothing").split())
        problem = Problem("host cannot be read", key=name, got=got, allowed="facts", fix=fix)
        return record | {"problems": [str(problem)]}
    places = Places(
        {
            tuple(path): Place(file, line, column)
            for path, file, line, column in answer.get("places", ())
        },
        Place(shown),
    )
    comparison = Comparison(name, shown, facts, record["groups"], catalogue, places)
    wishes = answer.get("wishes", {})
    problems = comparison.problems(wishes) + [
        Problem(f"{name}: setting cannot be evaluated", shown, key=key, got=reason,
                fix=f"run: bedplate plan {shown}")
        for key, reason in sorted(answer.get("unreadable", {}).items())
    ]  # fmt: skip
    kubernetes = wishes.get("bedplate_kubernetes")
    endpoint = kubernetes.get("endpoint") if isinstance(kubernetes, dict) else None
    found = findings(name, facts, lock, cluster(endpoint if isinstance(endpoint, str) else None))
    return record | {
        "problems": [str(problem) for problem in problems],
        "findings": [{"component": f.component, "state": f.state, "text": f.text} for f in found],
        "notes": _notes(name, facts, lock),
    }


def _notes(name: str, facts: Mapping[str, Any], lock: Lock | None) -> list[str]:
    notes = []
    if lock and name not in lock.hosts:
        notes.append("not in the lock")
    if not facts["root"]:
        notes.append("read without root: what is missing may only have been hidden")
    if facts["secure_boot"]["state"] == "unknown":
        notes.append(f"Secure Boot cannot be read: {facts['secure_boot']['reason']}")
    loaded = facts["driver"]["loaded"]
    if loaded and loaded["simulated"]:
        notes.append("GPUs are simulated")
    return notes
