"""Evidence of a control plane's etcd: whether it works, with whom, and whether it has room."""

import os
from typing import Any, Dict, List
from urllib.parse import urlsplit

from .. import backup, cluster_node
from ..host import Host
from ..refusal import ImpossibleError, must
from .area import Collected
from .checks import check, failed

MIB = 1 << 20
#: A part of the size at which etcd refuses writes: early enough to do something about it.
FULL = 0.8
#: etcd writes a database anew to defragment it, and makes the next file of its log, of 64 MB, while
#: it fills one (etcd.io, "Space quota" and "Defragmentation", of 3.6, read 2026-12-01).
LOG = 2 * 64 * MIB
_SECONDS = 30.0
LOOK = "See 'crictl ps --all --name etcd' and 'crictl logs' of the newest there."
ROOM = "Compact and defragment it as the page on backups says, and find what fills it."
DISK = "Free space there, or move other data away: etcd ends when it cannot write."
MEMBERS = (
    "Remove a member whose control plane is gone, as the page on backups says; where one is joining"
    " right now, look again."
)


def collect(host: Host, to: Collected) -> None:
    """Ask this control plane's etcd; a host without one, or with etcd elsewhere, has none."""
    if not host.exists(backup.MANIFEST):
        return
    works = "etcd works, with a leader and without an alarm"
    try:
        client = [*backup.etcd_client(host), "--write-out=json"]
        (status,) = backup.decoded(must(host, [*client, "endpoint", "status"], _SECONDS))
        members = backup.decoded(must(host, [*client, "member", "list"], _SECONDS))["members"]
    except ImpossibleError as error:
        to.checks.append(failed("etcd.healthy", works, error.got, LOOK, []))
        return
    said = status["Status"]
    wrong = [one.strip() for one in said.get("errors", [])]
    fix = ROOM if any("NOSPACE" in one for one in wrong) else LOOK
    to.checks.append(check("etcd.healthy", works, [], wrong, fix))
    _members(host, members, to)
    _room(host, said, to)


def _members(host: Host, members: List[Any], to: Collected) -> None:
    what = "etcd has the control planes as its members, and no others"
    found = sorted(_named(one) for one in members)
    try:
        servers = sorted(cluster_node.api_servers(host))
    except cluster_node.UnansweredError as error:
        to.checks.append(failed("etcd.members", what, f"the API: {error}", LOOK, found))
        return
    to.checks.append(check("etcd.members", what, servers, found, MEMBERS))


def _named(member: Any) -> str:
    """A member by its name; before its first start it has none, and is known by its address."""
    name = str(member.get("name") or urlsplit(member["peerURLs"][0]).hostname)
    states = [] if member.get("name") else ["never started"]
    states += ["no vote"] if member.get("isLearner") else []
    return f"{name} ({', '.join(states)})" if states else name


def _room(host: Host, said: Any, to: Collected) -> None:
    size, most = int(said["dbSize"]), int(said.get("dbSizeQuota", 0))
    what = "etcd's database is far from its limit"
    good = not most or size <= FULL * most
    allowed = f"{FULL:.0%} of {most / MIB:.1f} MiB"
    to.checks.append(_told("etcd.room", what, f"{size / MIB:.1f} MiB", allowed, ROOM, good=good))
    folder = backup.data_folder(host)
    disk = os.statvfs(host.path(folder))
    free, needed = disk.f_bavail * disk.f_frsize, size + LOG
    what = "etcd's disk has room for its log, and for its database once more"
    got, allowed = f"{free // MIB} MiB free at {folder}", f"{needed // MIB} MiB"
    to.checks.append(_told("etcd.disk", what, got, allowed, DISK, good=free >= needed))


def _told(name: str, what: str, got: str, allowed: str, fix: str, *, good: bool) -> Dict[str, Any]:
    """A check whose figures are of interest only where it fails."""
    return check(name, what, "" if good else allowed, "" if good else got, fix)
