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
#: 3.5.24 and 3.6.8, `quota.go`, read 2026-12-01).
QUOTA = 2048 * MIB
#: etcd writes a database anew next to the old one to defragment it, and makes the next file of its
#: log while it fills one (etcd 3.6.8, `storage/backend/backend.go`, and `storage/wal/wal.go` for
#: the size of such a file, 64,000,000 bytes; read 2026-12-01).
LOG = 2 * 64_000_000
_FLAG = re.compile(r"--quota-backend-bytes=(-?\d+)")
_SECONDS = 30.0
LOOK = "See 'crictl ps --all --name etcd' and 'crictl logs' of the newest there."
ROOM = "Compact and defragment it as the page on backups says, and find what fills it."
DISK = "Free space there, or move other data away: etcd ends when it cannot write."
MEMBERS = (
    "Where a control plane joins or leaves right now, look again; else see the page on backups."
)


class _Status(NamedTuple):
    """What etcd says of itself; ``quota`` is 0 where it does not say it."""

    size: int
    quota: int
    errors: List[str]


def collect(host: Host, to: Collected) -> None:
    """Ask this control plane's etcd; a host without one, or with etcd elsewhere, has none."""
    if not host.exists(backup.MANIFEST):
        return
    works = "etcd works, with a leader and without an alarm"
    try:
        client = [*backup.etcd_client(host), "--write-out=json"]
        status = _status(backup.decoded(must(host, [*client, "endpoint", "status"], _SECONDS)))
    except backup.NoClientError as error:
        to.checks.append(skipped("etcd.healthy", works, f"it cannot be asked: {error.got}"))
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
        wrong = [str(error).strip() for error in said.get("errors") or []]
        return _Status(int(said["dbSize"]), int(said.get("dbSizeQuota", 0)), wrong)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _unlike("its status") from None


def _unlike(what: str) -> ImpossibleError:
    return ImpossibleError(f"an answer that is not {what}", f"{what}, as etcdctl gives it", LOOK)


def _members(host: Host, client: Sequence[str], to: Collected) -> None:
    """Compare with the Nodes: a static pod's mirror is gone, or still there, for a minute."""
    what = "etcd has the control planes as its members, and no others"
    try:
        listed = backup.decoded(must(host, [*client, "member", "list"], _SECONDS))
        members = _named(listed)
        planes = sorted(cluster_node.control_planes(host))
    except ImpossibleError as error:
        to.checks.append(failed("etcd.members", what, error.got, LOOK, "an answer"))
        return
    except cluster_node.UnansweredError as error:
        to.checks.append(failed("etcd.members", what, f"the API: {error}", LOOK, "an answer"))
        return
    if not planes:
        reason = "the cluster has no Node with the label of control planes"
        to.checks.append(skipped("etcd.members", what, reason))
        return
    # A member is known by its Node's name, which kubeadm gives it.
    lacking = [name for name in planes if name not in members]
    others = [shown for name, shown in members.items() if name not in planes]
    reasons = [f"no control plane: {', '.join(others)}"] if others else []
    reasons += [f"no member: {', '.join(lacking)}"] if lacking else []
    found = sorted(members.values())
    to.checks.append(check("etcd.members", what, planes, found, MEMBERS, "; ".join(reasons)))


def _named(listed: Any) -> Dict[str, str]:
    """The members by name, each as it is shown; one that never started is named by its address."""
    found: Dict[str, str] = {}
    try:
        for member in listed["members"]:
            name = member.get("name") or urlsplit(member["peerURLs"][0]).hostname
            states = [] if member.get("name") else ["never started"]
            states += ["no vote"] if member.get("isLearner") else []
            found[str(name)] = f"{name} ({', '.join(states)})" if states else str(name)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise _unlike("a list of members") from None
    return found


def _room(host: Host, status: _Status, to: Collected) -> None:
    """Judge the size by the limit that etcd says; 3.5, and 3.6 to 3.6.5 by default, say none."""
    what = "etcd's database is far from its limit"
    flag = _FLAG.search(host.read(backup.MANIFEST) or "")
    most = status.quota or int(flag.group(1) if flag else 0) or QUOTA
    if most < 0:
        to.checks.append(skipped("etcd.room", what, "it has none (--quota-backend-bytes)"))
        return
    good = status.size <= FULL * most
    got, allowed = f"{status.size / MIB:.1f} MiB", f"{FULL:.0%} of {most / MIB:.1f} MiB"
    to.checks.append(_told("etcd.room", what, got, allowed, ROOM, good=good))


def _disk(host: Host, to: Collected, size: int = 0) -> None:
    """Judge the disk, also of an etcd that has ended: a full disk is what ends it."""
    what = "etcd's disk has room for its log, and for its database once more"
    folder = backup.data_folder(host)
    try:
        disk = os.statvfs(host.path(folder))
        size = size or os.stat(host.path(f"{folder}/member/snap/db")).st_size
    except OSError as error:
        fix = "See etcd's --data-dir in its manifest, and what is mounted there."
        to.checks.append(
            failed("etcd.disk", what, f"{folder}: {error.strerror}", fix, "data there")
        )
        return
    free, needed = disk.f_bavail * disk.f_frsize, size + LOG
    got, allowed = f"{free // MIB} MiB free at {folder}", f"{needed // MIB} MiB"
    to.checks.append(_told("etcd.disk", what, got, allowed, DISK, good=free >= needed))


def _told(name: str, what: str, got: str, allowed: str, fix: str, *, good: bool) -> Dict[str, Any]:
    """A check whose figures are of interest only where it fails."""
    return check(name, what, "" if good else allowed, "" if good else got, fix)
