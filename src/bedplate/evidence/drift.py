"""Drift: what differs on each host since it was set up, and what to run about it.

``playbooks/drift.yml`` leaves one file per host. A host that could not be looked at, or was looked
at under another lock, is not known: never is it counted as clean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bedplate.common import parts
from bedplate.common.evidence_file import (
    Check,
    Evidence,
    Result,
    evidence_folder,
    read_evidence,
    why,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bedplate.lock import Lock

#: Checks that say that the host itself could not be looked at.
UNSEEN = {"host.reachable": "could not be reached", "host.read": "could not be read"}
SLURM = "slurm"
#: Whom `playbooks/drift.yml` looks at.
GROUPS = {"control_plane", "gpu_pools", "workers", "hypervisors", SLURM}
#: The playbook that a check names, which does not know what else the host is.
_AGAIN = "bedplate.gpu.site"
_PLAY = "ansible-playbook -i {site} bedplate.gpu."
#: In the order in which they are to be run.
REMEDIES = {
    "site": _PLAY + "site --limit {hosts}",
    "site, rebooting": _PLAY + "site --limit {hosts} -e nvidia_driver_reboot_allowed=true",
    "site, rebooting hypervisors": _PLAY
    + "site --limit {hosts} -e gpu_passthrough_reboot_allowed=true",
    "certificates": _PLAY + "certificates --limit {hosts}",
    "encryption": _PLAY + "encryption",
    "upgrade": _PLAY + "upgrade --limit {hosts}",
    "upgrade, rebooting": _PLAY + "upgrade --limit {hosts} -e upgrade_reboot_allowed=true",
    "slurm": _PLAY + "slurm --limit {hosts} -e slurm_change_nodes=true",
    "slurm, rebooting": _PLAY
    + "slurm --limit {hosts} -e slurm_change_nodes=true -e nvidia_driver_reboot_allowed=true",
}
#: The remedy for reboots that take more down than the host: its guests.
REBOOTS = {"gpu_passthrough": "site, rebooting hypervisors"}
#: Remedies that make up for a plainer one.
MORE = {
    "site": ("site, rebooting", "site, rebooting hypervisors", "slurm", "slurm, rebooting"),
    "upgrade": ("upgrade, rebooting",),
    "slurm": ("slurm, rebooting",),
}


@dataclass(frozen=True)
class Difference:
    """One thing that differs on one host.

    ``run`` is a key of `REMEDIES`, empty where only a person can mend it.
    """

    host: str
    check: Check
    run: str

    def as_json(self, site: Path) -> dict[str, Any]:
        """Return the form that ``--json`` prints."""
        run = command(site, self.run, [self.host]) if self.run else ""
        return {"host": self.host, **self.check.model_dump(mode="json"), "run": run}


@dataclass(frozen=True)
class HostDrift:
    """What is known of one host: its differences, or in ``unknown`` why nothing is known."""

    name: str
    checked: str
    unknown: str
    differences: Sequence[Difference] = ()

    @property
    def state(self) -> str:
        """``clean``, ``drifted`` or ``unknown``."""
        if self.unknown:
            return "unknown"
        return "drifted" if self.differences else "clean"

    def as_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` prints."""
        return {"state": self.state, "checked": self.checked, "reason": self.unknown}


def _remedy(check: Check, *, joined: bool, slurm: bool) -> str:
    """Return the playbook (or stack) that mends a difference; empty where none does."""
    part = parts.answering(check.id)
    if parts.among(check.id, part.by_hand):
        return ""
    if check.id.startswith("certificates."):
        return "certificates"
    if check.id.startswith("secrets."):
        return "encryption"
    # Workload goes first on a node, of either scheduler, one node after the other.
    drains = "slurm" if slurm else "upgrade" if joined else ""
    if drains and check.id in part.reboots_drained:
        return f"{drains}, rebooting"
    if slurm and check.id in part.waits_in_slurm:
        return "slurm"
    if joined and part.waits and not parts.among(check.id, part.at_once):
        return "upgrade"
    if check.id in (*part.reboots, *part.reboots_drained):
        # That of hypervisors is proposed, and never done.
        return REBOOTS.get(part.role, "site, rebooting")
    return "site"


def _newest(found: Iterable[Evidence]) -> Mapping[str, str]:
    return {item.subject.name: item.checked for item in found if item.subject.kind == "host"}


def _read(path: Path, secrets: Iterable[str]) -> Evidence | str:
    """Return the look for drift that lies there, or why there is none."""
    try:
        return read_evidence(path, secrets)
    except FileNotFoundError:
        return "was never looked at"
    except (OSError, ValueError) as error:
        return f"{path} cannot be read ({why(error)})"


def _judge(
    name: str, found: Evidence, lock_digest: str, verified: str, *, slurm: bool
) -> HostDrift:
    unseen = [c for c in found.checks if c.id in UNSEEN and c.result is Result.FAIL]
    failed = [c for c in found.checks if c.result is Result.FAIL]
    unknown = ""
    if found.lock != lock_digest:
        unknown = "was looked at under another lock than the present one"
    elif verified > found.checked:
        unknown = (
            "bedplate.gpu.site or bedplate.gpu.verify has run since it "
            f"was looked at ({found.checked})"
        )
    elif unseen:
        unknown = f"{UNSEEN[unseen[0].id]}: {unseen[0].reason}"
    elif not any(c.result is not Result.SKIPPED for c in found.checks):
        unknown = "nothing was looked at on it"
    if unknown:
        return HostDrift(name, found.checked, unknown)
    joined = bool(found.facts.get("joined"))
    remedies = [(c, _remedy(c, joined=joined, slurm=slurm)) for c in failed]
    return HostDrift(
        name,
        found.checked,
        "",
        tuple(Difference(name, _named(c, run), run) for c, run in remedies),
    )


def _named(check: Check, run: str) -> Check:
    """Return a check whose fix names the playbook that is to be run."""
    if not run:
        return check
    fix = check.fix.replace(_AGAIN, f"bedplate.gpu.{run.partition(',')[0]}")
    return check.model_copy(update={"fix": fix})


def with_playbooks(evidence: Iterable[Evidence], lock: Lock) -> tuple[Evidence, ...]:
    """Return evidence whose failed checks name the playbook that changes their host.

    A check says *run bedplate.gpu.site*, which holds back on a node what disturbs its workload.
    """
    found = []
    for one in evidence:
        host = lock.hosts.get(one.subject.name) if one.subject.kind == "host" else None
        if host is not None:
            joined, slurm = bool(one.facts.get("joined")), SLURM in host.groups
            checks = tuple(
                _named(c, _remedy(c, joined=joined, slurm=slurm)) if c.result is Result.FAIL else c
                for c in one.checks
            )
            one = one.model_copy(update={"checks": checks})
        found.append(one)
    return tuple(found)


def load_drift(
    site: Path,
    lock: Lock,
    lock_digest: str,
    evidence: Sequence[Evidence],
    secrets: Iterable[str] = (),
) -> tuple[HostDrift, ...]:
    """Return what is known of every host that drift.yml looks at, by name.

    ``evidence`` is that of the verify steps: what is older than it says nothing any more.
    """
    verified = _newest(evidence)
    folder = evidence_folder(site)
    hosts = []
    for name, host in sorted(lock.hosts.items()):
        if not GROUPS & set(host.groups):
            continue
        found = _read(folder / f"drift-{name}.json", secrets)
        if isinstance(found, str):
            hosts.append(HostDrift(name, "", found))
        else:
            slurm = SLURM in host.groups
            hosts.append(_judge(name, found, lock_digest, verified.get(name, ""), slurm=slurm))
    return tuple(hosts)


def command(site: Path, remedy: str, hosts: Sequence[str]) -> str:
    """Return the command of a remedy for some hosts."""
    return REMEDIES[remedy].format(site=site, hosts=",".join(hosts))


def commands(site: Path, hosts: Sequence[HostDrift]) -> list[str]:
    """Return what to run, each command once with all of its hosts."""
    wanted: dict[str, list[str]] = {}
    for host in hosts:
        for remedy in sorted({d.run for d in host.differences if d.run}):
            wanted.setdefault(remedy, []).append(host.name)
    # A reboot or a drain that is allowed for a host mends what the same playbook mends without.
    for plain, kinds in MORE.items():
        more = {name for kind in kinds for name in wanted.get(kind, [])}
        wanted[plain] = [name for name in wanted.get(plain, []) if name not in more]
    return [command(site, key, wanted[key]) for key in REMEDIES if wanted.get(key)]
