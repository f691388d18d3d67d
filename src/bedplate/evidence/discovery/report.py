"""What discovery says to people: hosts of which the same is to be said are told in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.evidence.discovery.identify import flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.evidence.discovery.propose import Proposal

SHOWN = 6
HEADINGS = {
    "adopted": "adopted",
    "change": "to be changed",
    "foreign": "not managed by Bedplate",
    "runs": "already there",
}


def names(hosts: Iterable[str]) -> str:
    """Return `gpu-a, gpu-b`, or the first of many with how many there are."""
    every = sorted(hosts)
    if len(every) <= SHOWN:
        return ", ".join(every)
    return f"{', '.join(every[: SHOWN - 1])} and {len(every) - SHOWN + 1} more"


def lines(
    records: Mapping[str, Mapping[str, Any]],
    proposals: Iterable[Proposal],
    folder: str,
    lock: str,
) -> list[str]:
    """Return the report: proposals, what runs already and whose it is, hosts that will fail."""
    said = []
    for one in proposals:
        wish = ", ".join(f"{key}: {flow(value)}" for key, value in one.variables.items())
        said.append(f"proposed: {one.name} of {names(one.hosts)} — {wish}")
    if said:
        said.append(f"written to {folder}; nothing reads it there")
    said.append(lock)
    together: dict[tuple[str, str], list[str]] = {}
    for name, record in records.items():
        for finding in record["findings"]:
            text = f"{finding['component']} {finding['text']}"
            together.setdefault((finding["state"], text), []).append(name)
        for text in record["notes"]:
            together.setdefault(("note", text), []).append(name)
    for state in ("adopted", "runs", "change", "foreign", "note"):
        for (other, text), hosts in sorted(together.items(), key=lambda item: item[0][1].lower()):
            if other == state:
                head = f"{HEADINGS[state]}: " if state in HEADINGS else ""
                said.append(f"{head}{text} — {names(hosts)}")
    wrong = [name for name, record in records.items() if record["problems"]]
    if wrong:
        said.append(f"not as the site says, and failed below: {names(wrong)}")
    return said
