"""What carrying out a new lock would do to each host: installed, changed, drained, rebooted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bedplate.common.parts import DRAINED, EFFECTS, FREED, OF_GPUS
from bedplate.lock import content_of
from bedplate.lock.sharing_line import layout_text
from bedplate.site.site import NODES, POOLS, SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.lock import Lock

#: A node keeps the one of these that it has joined with, in any version.
OF_KUBELET = {"containerd", "cri_o"}
KEPT = "refused where the cluster runs"
#: The same where Docker's users have the containers: nothing drains them.
ENDED, UNTIL_RESET = "refused while containers use it", "as it is until bedplate.gpu.reset"
#: Parts of a lock that are no component of a host.
NOT_ON_HOSTS = {"gpu", "expects", "not_yet", "secure_boot", "addons", "etcd", "coredns"}
WORDS_OF_MODES = {"memory", "compute"}


@dataclass(frozen=True)
class HostChange:
    """One component of one host, and what changing it asks of the host's workloads."""

    component: str
    before: str
    after: str
    effects: tuple[str, ...]

    def __str__(self) -> str:
        if self.before == ABSENT:
            told = f"install {self.component} {self.after}"
        elif self.after == ABSENT:
            told = f"remove {self.component} {self.before}"
        else:
            told = f"change {self.component} {self.before} → {self.after}"
        return told + (f" ({', '.join(self.effects)})" if self.effects else "")


@dataclass
class Installed:
    """What each host of a new lock has, as parts of a lock, and what is to be known of that."""

    parts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


ABSENT = "absent"


def host_changes(
    before: Lock | None, after: Lock, has: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, list[HostChange]]:
    """Return the changes of each host that has any, by name.

    A host has what the old lock says, or what `has` says of it. One that has nothing yet gets its
    components without disturbing anybody. One that is not in the new lock is only named: stacks
    take it out.
    """
    old = content_of(before) if before else {"hosts": {}, "pools": {}, "cluster": {}}
    new = content_of(after)
    found: dict[str, list[HostChange]] = {}
    for name in sorted({*old["hosts"], *new["hosts"]}):
        its = parts_of(new, name)
        mine = parts_of(old, name) if has is None else has.get(name, {})
        docker = _by_docker(old, name)
        changes = list(_changes(mine, its, docker=docker))
        if name not in new["hosts"]:
            place, effect = ("site", UNTIL_RESET) if docker else ("cluster", DRAINED)
            changes = [HostChange(f"{place} membership", "member", ABSENT, (effect,))]
        if changes:
            found[name] = changes
    return found


def parts_of(lock: dict[str, Any], host: str) -> dict[str, Any]:
    """Return what a host gets by the content of a lock; nothing where it is not in it."""
    if host not in lock["hosts"]:
        return {}
    pool, groups = lock["hosts"][host].get("pool"), lock["hosts"][host]["groups"]
    of_site = lock.get("cluster") or lock.get("containers", {})
    have = {*NODES, SLURM} if "podman" in of_site else {*NODES}
    shared = dict(of_site) if have & set(groups) else {}
    if not pool:
        shared = {key: value for key, value in shared.items() if key not in OF_GPUS}
    parts = shared | (dict(lock["pools"][pool]) if pool else {})
    if (sharing := parts.get("sharing")) and sharing["mode"] != "dra":
        # What a mode holds back is said in the lock, and nothing on a host is made of it.
        parts["sharing"] = {key: said for key, said in sharing.items() if key not in WORDS_OF_MODES}
    if tools := parts.get("hpc_tools"):
        parts["hpc_tools"] = {"packages": tools.get("packages", {})}
    return {key: value for key, value in parts.items() if key not in NOT_ON_HOSTS}


def _by_docker(lock: dict[str, Any], host: str) -> bool:
    """Tell whether a host of a lock runs containers by Docker alone."""
    return "containers" in lock and POOLS in lock["hosts"].get(host, {}).get("groups", ())


def _changes(
    old: Mapping[str, Any], new: Mapping[str, Any], *, docker: bool = False
) -> Iterator[HostChange]:
    moves = all(any(one.get(name) for name in OF_KUBELET) for one in (old, new))
    for component in sorted({*old, *new}):
        before, after = old.get(component), new.get(component)
        if before != after:
            effects = EFFECTS.get(component, ()) if old else ()
            exchanged = component in OF_KUBELET and None in (before, after)
            if moves and exchanged and not docker:
                effects = (KEPT,)
            if docker:
                freed = (ENDED,) if component in FREED else ()
                effects = (*freed, *(one for one in effects if one != DRAINED))
            yield HostChange(component, _told(before), _told(after), effects)


def _told(value: Any) -> str:
    """Return what a reader calls a part: its version where it has one."""
    if value is None or value == []:
        return ABSENT
    if isinstance(value, list):
        return ", ".join(_told(item) for item in value)
    if isinstance(value, dict):
        words = [str(value[key]) for key in WORDS if value.get(key) is not None]
        words += [layout_text(value["layout"])] if value.get("layout") else []
        # Tools by their names; the packages of others are named by their versions.
        words += (
            [", ".join(value["packages"])]
            if "version" not in value and value.get("packages")
            else []
        )
        return " ".join(words) or ABSENT
    return str(value)


WORDS = (
    "name",
    "vendor",
    "model",
    "mode",
    "version",
    "flavour",
    "variant",
    "replicas",
    "profile",
    "share_memory",
    "memory",
    "stack",
    "method",
    "source",
)


def shown(
    changes: Mapping[str, list[HostChange]],
    pools: Mapping[str, str | None],
    notes: Mapping[str, str],
) -> list[str]:
    """Return the changes as lines, with the notes of hosts, and equal ones of a pool together."""
    alike: dict[tuple[str | None, str, tuple[HostChange, ...]], list[str]] = {}
    for host in sorted({*changes, *notes}):
        key = (pools.get(host), notes.get(host, ""), tuple(changes.get(host, ())))
        alike.setdefault(key, []).append(host)
    lines = []
    for (pool, note, same), hosts in alike.items():
        named = hosts[0] if len(hosts) == 1 else f"{hosts[0]} … {hosts[-1]} ({len(hosts)} hosts)"
        lines.append(f"{named}{f' of {pool}' if pool else ''}:{f' {note}' if note else ''}")
        lines += [f"  {change}" for change in same]
    return lines
