"""Evidence: what a host really has against what it was to have, as tri-state checks."""

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .. import nvidia
from ..host import Host
from ..message import problem

PASS = "pass"  # noqa: S105 a result, not a password
FAIL = "fail"
SKIPPED = "skipped"

Checks = List[Dict[str, Any]]
AGAIN = "Run bedplate.gpu.site for this host again."


def check(
    name: str, what: str, wished: Any, found: Any, fix: str, reason: str = ""
) -> Dict[str, Any]:
    """A check that passes when ``found`` equals ``wished``; ``reason`` says why it does not."""
    good = found == wished
    return {
        "id": name,
        "what": what,
        "result": PASS if good else FAIL,
        "wished": wished,
        "found": found,
        "reason": "" if good else reason,
        "fix": "" if good else fix,
    }


def failed(name: str, what: str, reason: str, fix: str, wished: Any = None) -> Dict[str, Any]:
    """A check that could not even be made: that is a failure, not a skip."""
    return {
        "id": name,
        "what": what,
        "result": FAIL,
        "wished": wished,
        "found": None,
        "reason": reason,
        "fix": fix,
    }


def skipped(name: str, what: str, reason: str) -> Dict[str, Any]:
    """A check that does not apply here, and why."""
    return {
        "id": name,
        "what": what,
        "result": SKIPPED,
        "wished": None,
        "found": None,
        "reason": reason,
        "fix": "",
    }


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={value[k]}" for k in sorted(value)) or "nothing"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(v) for v in value) or "nothing"
    return "nothing" if value is None else str(value)


def failures(checks: Iterable[Mapping[str, Any]], where: str) -> List[str]:
    """The failed checks as messages. No check at all is a failure too."""
    checks = list(checks)
    if not checks:
        return [
            problem(
                "nothing was checked",
                where,
                "0 checks",
                "at least one",
                "Ask for at least one area of evidence.",
            )
        ]
    messages = []
    for one in checks:
        if one["result"] != FAIL:
            continue
        wished, found = one["wished"], one["found"]
        if isinstance(wished, Mapping) and isinstance(found, Mapping):
            # Only what differs: a driver has a dozen packages, and one may be wrong.
            names = {n for n in {*wished, *found} if wished.get(n) != found.get(n)}
            wished = {n: wished[n] for n in names if n in wished}
            found = {n: found[n] for n in names if n in found}
        got = _shown(found)
        if one["reason"]:
            got = one["reason"] if one["found"] is None else "{} ({})".format(got, one["reason"])
        where_id = "{} [{}]".format(where, one["id"])
        messages.append(problem(one["what"], where_id, got, _shown(wished), one["fix"]))
    return messages


def summary(checks: Sequence[Mapping[str, Any]]) -> str:
    """``12 passed, 0 failed, 1 skipped``."""
    counts = {r: sum(c["result"] == r for c in checks) for r in (PASS, FAIL, SKIPPED)}
    return f"{counts[PASS]} passed, {counts[FAIL]} failed, {counts[SKIPPED]} skipped"


def document(
    kind: str, name: str, pool: Optional[str], lock: str, checked: str, content: Mapping[str, Any]
) -> Dict[str, Any]:
    """Evidence as it lies on disk; ``content`` is what a collector returned."""
    return {
        "format": 1,
        "subject": {"kind": kind, "name": name, "pool": pool or None},
        "checked": checked,
        "lock": lock,
        "simulated": bool(content.get("simulated", False)),
        "labels": dict(content.get("labels", {})),
        "facts": dict(content.get("facts", {})),
        "checks": list(content["checks"]),
    }


def simulated(host: Host) -> bool:
    """Whether the driver's module is a simulated one."""
    loaded = nvidia.loaded_module(host)
    return loaded is not None and loaded.simulated


def _mapping(value: Any) -> Mapping[str, Any]:
    """A mapping as it is; nothing where evidence that was edited has something else there."""
    return value if isinstance(value, Mapping) else {}


def hardware(document: Mapping[str, Any]) -> Dict[str, Any]:
    """Which machine and which GPUs (UUID by address) evidence is about, and since when of each.

    Evidence that could not look at one of them carries what the evidence before it knew: a host has
    no GPUs to tell of until it has a driver. Empty where neither is known.
    """
    facts = _mapping(document.get("facts"))
    before = _mapping(facts.get("before"))
    checked = str(document.get("checked", ""))
    machine = {what: told for what, told in _mapping(facts.get("machine")).items() if told}
    listed = facts.get("gpus")
    each = [_mapping(one) for one in listed] if isinstance(listed, list) else []
    gpus = {str(one["bus"]): str(one["uuid"]) for one in each if {"bus", "uuid"} <= set(one)}
    of_old = str(before.get("checked", ""))
    found = {
        "checked": checked if machine else of_old,
        "machine": machine or dict(_mapping(before.get("machine"))),
        "gpus_checked": checked if gpus else str(before.get("gpus_checked", of_old)),
        "gpus": gpus or dict(_mapping(before.get("gpus"))),
    }
    return found if found["machine"] or found["gpus"] else {}


def lacking(before: Mapping[str, Any], now: Mapping[str, Any]) -> Dict[str, Any]:
    """What was known before and is not now: the next look is to compare with it."""
    kept: Dict[str, Any] = {}
    for what, since in (("machine", "checked"), ("gpus", "gpus_checked")):
        if before.get(what) and not now.get(what):
            kept.update({since: before[since], what: before[what]})
    return kept


def comparable(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether anything of the machine, or any GPU, is known of both times."""
    if not before or not now:
        return False
    return bool(set(before["machine"]) & set(now["machine"]) or (before["gpus"] and now["gpus"]))


def exchanged(before: Mapping[str, Any], now: Mapping[str, Any]) -> Tuple[str, List[str]]:
    """Since when, and what was swapped between two times; empty of what one does not know."""
    if not comparable(before, now):
        return "", []
    machine, gpus = _other_machine(before, now), _other_gpus(before["gpus"], now["gpus"])
    since = ([before["checked"]] if machine else []) + ([before["gpus_checked"]] if gpus else [])
    return min(since, default=""), machine + gpus


def _other_machine(before: Mapping[str, Any], now: Mapping[str, Any]) -> List[str]:
    found = []
    for what in ("serial", "id"):
        old, new = before["machine"].get(what), now["machine"].get(what)
        if old and new and old != new:
            found.append(f"another machine or system: its {what} was {old} and is {new}")
    return found


def _other_gpus(old: Mapping[str, str], new: Mapping[str, str]) -> List[str]:
    if not old or not new:
        return []
    found = []
    for bus in sorted({*old, *new}):
        if old.get(bus) == new.get(bus):
            continue
        if bus not in new:
            found.append(f"{bus}: {old[bus]} is gone")
        elif bus not in old:
            found.append(f"{bus}: {new[bus]} is new")
        else:
            found.append(f"{bus}: {old[bus]} was replaced by {new[bus]}")
    return found
