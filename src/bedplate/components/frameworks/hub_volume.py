"""Where the hub's accounts and cookies lie. A pure function of the lock.

They lie with the homes where these outlive each host: then the hub starts again on another one.
Else they lie on the first control plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.components.frameworks import volumes
from bedplate.components.frameworks.hub_objects import NAMESPACE, Object, State
from bedplate.lock import hub_state

if TYPE_CHECKING:
    from bedplate.lock import Lock

NAME: Final = f"{NAMESPACE}-state"
#: A claim that a pod has is not replaced: this one is another.
SHARED: Final = f"{NAME}-shared"
ON_HOST: Final = "/var/lib/bedplate/hub"
#: Next to the folders of courses; no course has such a name.
FOLDER: Final = ".bedplate-hub"
ABOUT: Final = "Accounts and servers of the hub, on {}. It stays when the stack goes."


def of(lock: Lock) -> State:
    """Return where the hub's state lies: nodes of courses see the homes, others may not."""
    homes = hub_state.shared(lock)
    if homes is None:
        host = hub_state.host(lock)
        return State(NAME, ABOUT.format(f"{host}:{ON_HOST}"), _folder(ON_HOST), (host,))
    courses = lock.cluster.courses.values() if lock.cluster else ()
    # What a volume is on never changes: sizes that come later add no hosts.
    pools = {pool for course in courses if not course.of for pool in course.pools}
    hosts = volumes.nodes(lock, *pools)
    taints = sorted({taint.key for one in hosts for taint in lock.hosts[one].taints})
    if homes.nfs is None:
        path = f"{(homes.path or '').rstrip('/')}/{FOLDER}"
        return State(SHARED, ABOUT.format(path), _folder(path), tuple(hosts), "", tuple(taints))
    nfs = {"server": homes.nfs.server, "path": homes.nfs.path}
    source = {"nfs": nfs, "mountOptions": ["nosuid", "nodev"]}
    about = ABOUT.format(f"{homes.nfs.server}:{homes.nfs.path.rstrip('/')}/{FOLDER}")
    return State(SHARED, about, source, tuple(hosts), FOLDER, tuple(taints))


def _folder(path: str) -> Object:
    return {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
