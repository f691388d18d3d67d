"""What hosts have by their last evidence: `bedplate plan --diff` compares a new lock with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common.evidence_file import Result, load_evidence
from bedplate.evidence.overview import SET_ASIDE
from bedplate.lock import content_of, digest
from bedplate.planning.changes import Installed, parts_of
from bedplate.site.concealed import secrets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bedplate.common.evidence_file import Evidence
    from bedplate.resolver.plan import Planned

    type Parts = Mapping[str, Any]

#: The checks that found a component's version, and more of it, on the host itself.
CHECKS = {
    "nvidia_driver": {"version": "driver.loaded_version", "flavour": "driver.flavour"},
    "kubernetes": {"version": "kubelet.version"},
    "nvidia_container_toolkit": {"version": "toolkit.version"},
    "containerd": {"version": "runtime.version"},
    "cri_o": {"version": "runtime.version"},
    "docker": {"version": "runtime.version"},
    "podman": {"version": "slurm.podman"},
}
NOTHING = "nothing is installed yet"
NOT_KNOWN = "not known what is installed: {}"
ANOTHER_LOCK = (
    "its evidence is of another lock: versions of driver, container runtime, kubelet and "
    "toolkit alone are compared"
)


def installed(site: Path, planned: Planned) -> Installed:
    """Return what the hosts have. Raises BedplateError where a file is no evidence."""
    found = load_evidence(site, needed=False, secrets=secrets(site))
    by_host = {one.subject.name: one for one in found if one.subject.kind == "host"}
    new = content_of(planned.plan.lock)
    old = content_of(planned.before) if planned.before else None
    present = digest(site) if old else ""
    result = Installed()
    for name in new["hosts"]:
        its = parts_of(new, name)
        evidence = by_host.get(name)
        if evidence is None:
            result.parts[name], result.notes[name] = {}, NOTHING
            continue
        seen = {check.id for check in evidence.checks if check.result is not Result.SKIPPED}
        if seen <= set(SET_ASIDE):
            reason = next((check.reason for check in evidence.checks), "nothing was checked on it")
            result.parts[name], result.notes[name] = its, NOT_KNOWN.format(reason)
            continue
        locked = parts_of(old, name) if old and evidence.lock == present else None
        if locked is None:
            result.notes[name] = ANOTHER_LOCK
        result.parts[name] = _seen(evidence, its if locked is None else locked, its)
    return result


def _seen(evidence: Evidence, locked: Parts, new: Parts) -> Parts:
    """Return the parts of a lock, with what the evidence found in their place where it differs."""
    checks = {check.id: check for check in evidence.checks if check.result is not Result.SKIPPED}
    parts = dict(locked)
    for component, keys in CHECKS.items():
        values = {key: checks[one].found for key, one in keys.items() if one in checks}
        if not values or component not in {*locked, *new}:
            continue
        if values.get("version") is None:
            parts.pop(component, None)
            continue
        mine = parts.get(component) or {}
        if any(mine.get(key) != value for key, value in values.items()):
            parts[component] = values
    return parts
