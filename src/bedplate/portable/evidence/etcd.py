"""Evidence of a control plane's etcd: whether it works, with whom, and whether it has room."""

import os
import re
from typing import Any, Dict, List, NamedTuple, Sequence
from urllib.parse import urlsplit

from .. import backup, cluster_node
from ..host import Host
from ..refusal import ImpossibleError, must
from .area import Collected
from .checks import check, failed, skipped

MIB = 1 << 20
#: A part of the size at which etcd refuses writes: early enough to do something about it.
FULL = 0.8
#: The size at which etcd refuses writes where nothing else is set; below 0 it has none (etcd
#: 3.5.24, `etcdserver/quota.go`, and 3.6.8, `storage/quota.go`, read 2026-12-01).
QUOTA = 2048 * MIB
#: etcd writes a database anew next to the old one to defragment it, and makes the next file of its
#: log while it fills one (etcd 3.6.8, `storage/backend/backend.go`, and `storage/wal/wal.go` for
#: the size of such a file, 64,000,000 bytes; read 2026-12-01).
LOG = 2 * 64_000_000
#: The option, of which the last counts, and what stands for it without one, in a pod's manifest.
_OPTION = re.compile(
    r"""^\s*- ["']?--?quota-backend-bytes(?:=|["']?\s+- ["']?)([^\s"']+)""", re.MULTILINE
)
_VARIABLE = re.compile(
    r"""^\s*- name: ["']?ETCD_QUOTA_BACKEND_BYTES["']?\s+value: ["']?([^\s"']+)""", re.MULTILINE
)
_SECONDS = 30.0
LABELLED = "--selector=node-role.kubernetes.io/control-plane"
ONLY = "etcd has the control planes as its members, and no others"
SMALL = "etcd's database is far from its limit"
LOOK = "See 'crictl ps --all --name etcd' and 'crictl logs' of the newest there."
ROOM = "Compact and defragment it as the page on backups says, and find what fills it."
DISK = "Free space there, or move other data away: etcd ends when it cannot write."
API = "See 'crictl ps --all --name kube-apiserver' and 'crictl logs' of the newest there."
MEMBERS = (
    "Where a control plane comes or leaves right now, look again; otherwise see the page on"
    " backups: not each of them is to be removed."
)


class _Status(NamedTuple):
    """What etcd says of itself; ``quota`` is 0 where it does not say it."""

    size: int
    quota: int
    errors: List[str]


class _Member(NamedTuple):
    """A member by its Node's name, which kubeadm gives it; before its first start it has none."""

    name: str
    shown: str


def collect(host: Host, to: Collected) -> None:
    """Ask this control plane's etcd; a host without one, or with etcd elsewhere, has none."""
    if not host.exists(backup.MANIFEST):
        return
    works = "etcd works, with a leader and without an alarm"
    try:
        client = [*backup.etcd_client(host), "--write-out=json"]
        status = _status(backup.decoded(must(host, [*client, "endpoint", "status"], _SECONDS)))
    except backup.NoClientError as error:
        for name, what in (("etcd.healthy", works), ("etcd.members", ONLY), ("etcd.room", SMALL)):
            to.checks.append(skipped(name, what, f"it cannot be asked: {error.got}"))
        _disk(host, to)
        return
    except ImpossibleError as error:
        to.checks.append(failed("etcd.healthy", works, error.got, LOOK, "an answer"))
        _disk(host, to)
        return
    fix = ROOM if any("NOSPACE" in one for one in status.errors) else LOOK
    to.checks.append(check("etcd.healthy", works, [], status.errors, fix))
    _members(host, client, to)
    _room(host, status, to)
    _disk(host, to, status.size)


def _status(told: Any) -> _Status:
    try:
        (one,) = told
        said = one["Status"]
        errors = said.get("errors") or []
        wrong = [error.strip() for error in (errors if isinstance(errors, list) else [errors])]
        size, quota = int(said["dbSize"]), int(said.get("dbSizeQuota", 0))
        if max(size, abs(quota)) < 1 << 63:  # of 64 bits both
            return _Status(size, quota, wrong)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        pass
    raise _unlike("its status")


def _unlike(what: str) -> ImpossibleError:
    return ImpossibleError(f"an answer that is not {what}", f"{what}, as etcdctl gives it", LOOK)


def _members(host: Host, client: Sequence[str], to: Collected) -> None:
    """Compare with the Nodes: a static pod's mirror is gone, or still there, for a minute."""
    try:
        listed = backup.decoded(must(host, [*client, "member", "list"], _SECONDS))
        members = _named(listed)
        planes = sorted(cluster_node.names(host, LABELLED))
        others = [one for one in members if one.name not in planes]
        # Such a one may be in service, and no member to be removed.
        unlabelled = {one.name for one in others} & set(cluster_node.names(host) if others else [])
    except ImpossibleError as error:
        to.checks.append(failed("etcd.members", ONLY, error.got, LOOK, "an answer"))
        return
    except cluster_node.UnansweredError as error:
        to.checks.append(failed("etcd.members", ONLY, f"the API: {error}", API, "an answer"))
        return
    if not planes:
        reason = "the cluster has no Node with the label of control planes"
        to.checks.append(skipped("etcd.members", ONLY, reason))
        return
    names = [one.name for one in members]
    each = {
        "no such Node": [one.shown for one in others if one.name not in unlabelled],
        "a Node without the label of control planes": sorted(unlabelled),
        "more than one member": sorted({name for name in planes if names.count(name) > 1}),
        "no member": [name for name in planes if name not in names],
    }
    reason = "; ".join(f"{why}: {', '.join(which)}" for why, which in each.items() if which)
    found = sorted(one.shown for one in members)
    to.checks.append(check("etcd.members", ONLY, planes, found, MEMBERS, reason))


def _named(listed: Any) -> List[_Member]:
    found = []
    try:
        for member in listed["members"]:
            name = str(member.get("name") or "")
            states = [] if name else ["never started"]
            states += ["no vote"] if member.get("isLearner") else []
            shown = name or str(urlsplit(member["peerURLs"][0]).hostname)
            shown += f" ({', '.join(states)})" if states else ""
            found.append(_Member(name, shown))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise _unlike("a list of members") from None
    return found


def _room(host: Host, status: _Status, to: Collected) -> None:
    """Judge the size by the limit that etcd says, or else by what it was started with.

    3.5.24 says none, and 3.6.4 and 3.6.5 only one that is set (`api/v3rpc/maintenance.go`).
    """
    most = status.quota or _limit(host.read(backup.MANIFEST) or "") or QUOTA
    if most < 0:
        to.checks.append(skipped("etcd.room", SMALL, "it has none (--quota-backend-bytes)"))
        return
    good = status.size <= FULL * most
    got, allowed = f"{status.size / MIB:.1f} MiB", f"{FULL:.0%} of {most / MIB:.1f} MiB"
    to.checks.append(_told("etcd.room", SMALL, got, allowed, ROOM, good=good))


def _limit(manifest: str) -> int:
    """The limit that a manifest sets; 0 where it sets none. Go takes 0x and 0o before it too."""
    found = _OPTION.findall(manifest) or _VARIABLE.findall(manifest)
    try:
        return int(found[-1], 0) if found else 0
    except ValueError:
        return 0  # etcd does not start with it


def _disk(host: Host, to: Collected, size: int = 0) -> None:
    """Judge the disk, also of an etcd that has ended: a full disk is what ends it."""
    what = "etcd's disk has room for its log, and for its database once more"
    folder = backup.data_folder(host)
    try:
        disk = os.statvfs(host.path(folder))
        size = size or os.stat(host.path(f"{folder}/member/snap/db")).st_size
    except OSError as error:
        fix = "See etcd's --data-dir in its manifest, and what is mounted there."
        reason = f"{error.filename}: {error.strerror}"
        to.checks.append(failed("etcd.disk", what, reason, fix, "etcd's data"))
        return
    free, needed = disk.f_bavail * disk.f_frsize, size + LOG
    got, allowed = f"{free // MIB} MiB free at {folder}", f"{needed // MIB} MiB"
    to.checks.append(_told("etcd.disk", what, got, allowed, DISK, good=free >= needed))


def _told(name: str, what: str, got: str, allowed: str, fix: str, *, good: bool) -> Dict[str, Any]:
    """A check whose figures are of interest only where it fails."""
    return check(name, what, "" if good else allowed, "" if good else got, fix)
