"""Homes and datasets of courses as volumes: pure functions.

A course has one claim with the homes of all its students, and each size of it one of the same
folder. Each pod gets its student's folder of it, by a `subPath` of one name: kubelet makes the
folder below one that only root and its group may enter, and a student, who sees nothing of the
claim but that folder, can put no link in the way of another's. Deeper paths would be resolved
through the student's own links, so they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bedplate.accounting.records import USER
from bedplate.common import cel
from bedplate.components.config import StackError
from bedplate.components.frameworks import data_cache
from bedplate.components.schedulers.kueue.objects import JOB_CONTROLLER, TEAM_LABEL, Object, made
from bedplate.components.schedulers.topology import HOST
from bedplate.lock.courses import Storage
from bedplate.portable.message import problem
from bedplate.site.site import NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bedplate.lock import Lock
    from bedplate.lock.courses import Course, Volume

HOMES: Final = "homes"
DATA: Final = "data"
#: Where the namespace lies whose job makes the courses' folders.
NAMESPACE: Final = "bedplate-storage"
#: The only one whose pods may have homes.
HUB: Final = "system:serviceaccount:bedplate-hub:hub"
#: Group of the notebooks' user: a home is root's and this group's.
GROUP: Final = 100
HOME: Final = "/home/jovyan"
READ: Final = "/data"
#: Claims and volumes must say a size. That of a dataset is nobody's limit.
UNCOUNTED: Final = "1Gi"
POLICIES: Final = ("bedplate-homes", "bedplate-claims-stay", "bedplate-homes-of-jobs")
POLICY: Final = "admissionregistration.k8s.io/v1"

#: Run by root where the homes lie. A folder that kubelet makes in a course's gets its group too.
MAKE: Final = 'mkdir -p "$1" && chown "0:$2" "$1" && chmod 2770 "$1"'


@dataclass(frozen=True)
class VolumesArgs:
    """Courses, and where their data lies.

    Attributes:
        courses: by name; each has a namespace of that name. Those with `storage_mib` have homes.
        storage: where homes and datasets lie.
        nodes: the nodes of each pool of the courses.
    """

    courses: Mapping[str, Course]
    storage: Storage
    nodes: Mapping[str, Sequence[str]]

    def hosts(self, pools: Iterable[str]) -> list[str]:
        """Name the nodes of pools."""
        return sorted(name for pool in pools for name in self.nodes[pool])

    def homes(self, course: Course) -> Volume | None:
        """Return where a course's homes lie, if it has some."""
        return self.storage.homes if course.storage_mib else None

    def cached(self, data: str) -> bool:
        """Tell whether nodes read a dataset from elsewhere, and keep it."""
        return data in self.storage.datasets and self.storage.datasets[data].url is not None


def volumes_args(lock: Lock) -> VolumesArgs:
    """Return what a lock decides of data, with the courses that have some."""
    storage = (lock.cluster and lock.cluster.storage) or Storage()
    every = VolumesArgs(lock.courses, storage, {})
    courses = {name: one for name, one in lock.courses.items() if every.homes(one) or one.datasets}
    pools = {pool for one in courses.values() for pool in one.pools}
    return VolumesArgs(courses, storage, {pool: nodes(lock, pool) for pool in pools})


def objects(args: VolumesArgs, image: str, cache: str = "") -> list[Object]:
    """Return everything about data, in the order in which it is needed.

    `image` has a shell, and `cache` has rclone: it is needed where a dataset has an address. Raises
    StackError for a dataset that lies nowhere.
    """
    found = [one for name in args.courses for one in _course(args, name, image)]
    found += _caches(args, cache)
    if not found:
        return []
    about = "Folders of courses are made here."
    return [made("Namespace", NAMESPACE, about, version="v1"), *_policies(), *found]


def of_course(lock: Lock, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return `volumes` and `volume_mounts` of a student's pod; `{username}` is to be filled in."""
    args = volumes_args(lock)
    course = args.courses.get(name)
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if course is not None and args.homes(course):
        volumes.append({"name": HOMES, "persistentVolumeClaim": {"claimName": HOMES}})
        mounts.append({"name": HOMES, "mountPath": HOME, "subPath": "{username}"})
    for data in course.datasets if course is not None else ():
        claim = f"{DATA}-{data}"
        source = {"claimName": claim, "readOnly": True}
        volumes.append({"name": claim, "persistentVolumeClaim": source})
        mount = {"name": claim, "mountPath": f"{READ}/{data}", "readOnly": True}
        if args.cached(data):
            # A cache that starts again mounts again, below what the pod has already.
            mount["mountPropagation"] = "HostToContainer"
        mounts.append(mount)
    return {"volumes": volumes, "volume_mounts": mounts}


def _caches(args: VolumesArgs, image: str) -> Iterator[Object]:
    """Yield the cache of each dataset, on the nodes of all courses that read it."""
    courses = args.courses.values()
    for data in sorted({name for course in courses for name in course.datasets}):
        if args.cached(data):
            pools = {pool for one in courses if data in one.datasets for pool in one.pools}
            kept, hosts = args.storage.datasets[data], args.hosts(pools)
            yield data_cache.daemon(data, kept, hosts, image, NAMESPACE)


def _course(args: VolumesArgs, name: str, image: str) -> Iterator[Object]:
    course = args.courses[name]
    hosts, homes = args.hosts(course.pools), args.homes(course)
    if homes is not None:
        if not course.of:
            yield _folder(name, homes, hosts, image)
        size = f"{course.students * (course.storage_mib or 0)}Mi"
        volume = f"bedplate-{HOMES}-{name}"
        about = f"Homes of course {name}. The size is what the site plans, and no limit."
        spec = _source(homes, hosts, folder=course.of or name)
        yield from _claimed(volume, (name, HOMES), about, (size, "ReadWriteMany"), spec)
    for data in course.datasets:
        kept = args.storage.datasets.get(data)
        if kept is None:
            known = ", ".join(args.storage.datasets) or "none"
            fix = "correct the name, or say where the dataset lies"
            raise StackError(problem("no such dataset", f"course {name}", data, known, fix))
        # Neither name has a point: `a` with `b-c` is not size `b` of `a` with `c`.
        volume, claim = f"bedplate-{DATA}-{name}{'.' if course.of else '-'}{data}", f"{DATA}-{data}"
        about = f"Dataset {data}, read-only whatever a pod asks for."
        spec = _source(kept, hosts, read_only=True)
        if kept.url is not None:
            spec = _on(hosts) | {
                "hostPath": {"path": data_cache.folder(data), "type": "DirectoryOrCreate"}
            }
        yield from _claimed(volume, (name, claim), about, (UNCOUNTED, "ReadOnlyMany"), spec)


def nodes(lock: Lock, *pools: str) -> list[str]:
    """Name the nodes of pools."""
    return sorted(
        name
        for name, host in lock.hosts.items()
        if host.pool in pools and set(NODES) & set(host.groups)
    )


def _source(kept: Volume, hosts: list[str], *, folder: str = "", read_only: bool = False) -> Object:
    """Return where a volume's files are. A folder of hosts is a volume of these hosts alone."""
    if kept.nfs is not None:
        path = f"{kept.nfs.path.rstrip('/')}/{folder}".rstrip("/")
        options = ["ro"] if read_only else []
        nfs = {"server": kept.nfs.server, "path": path, "readOnly": read_only}
        return {"nfs": nfs, "mountOptions": ["nosuid", "nodev", *options]}
    path = f"{(kept.path or '').rstrip('/')}/{folder}".rstrip("/")
    # A local volume takes mount options, so that no pod mounts a dataset for writing.
    mounted = {"mountOptions": ["ro"]} if read_only else {}
    return {"local": {"path": path}, **mounted, **_on(hosts)}


def terms(hosts: list[str]) -> Object:
    """Return what selects these nodes."""
    wanted = [{"key": HOST, "operator": "In", "values": hosts}]
    return {"nodeSelectorTerms": [{"matchExpressions": wanted}]}


def _on(hosts: list[str]) -> Object:
    return {"nodeAffinity": {"required": terms(hosts)}}


def _claimed(
    volume: str, claim: tuple[str, str], about: str, size: tuple[str, str], source: Object
) -> Iterator[Object]:
    """Yield a volume and the one claim that may have it."""
    namespace, name = claim
    storage, mode = size
    common: Object = {"accessModes": [mode], "storageClassName": ""}
    yield made(
        "PersistentVolume",
        volume,
        about,
        version="v1",
        spec={
            **common,
            "capacity": {"storage": storage},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": name},
            **source,
        },
    )
    wanted = {**common, "resources": {"requests": {"storage": storage}}, "volumeName": volume}
    yield made("PersistentVolumeClaim", name, about, version="v1", namespace=namespace, spec=wanted)


def _folder(course: str, homes: Volume, hosts: list[str], image: str) -> Object:
    """Return the job that makes the folder of a course's homes, on a host that sees it."""
    if homes.nfs is not None:
        source: Object = {"nfs": {"server": homes.nfs.server, "path": homes.nfs.path}}
    else:
        source = {"hostPath": {"path": homes.path, "type": "DirectoryOrCreate"}}
    container = {
        "name": "folder",
        "image": image,
        "command": ["sh", "-ec", MAKE, "folder", f"/homes/{course}", str(GROUP)],
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "FOWNER", "DAC_OVERRIDE", "FSETID"]},
        },
        "volumeMounts": [{"name": HOMES, "mountPath": "/homes"}],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        # The volume is for the whole pool; where it is one host's folder, the pool is one host.
        "nodeSelector": {HOST: hosts[0]},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": HOMES, **source}],
    }
    about = f"Makes the folder of the homes of course {course}; it does nothing where it is there."
    return made(
        "Job",
        f"{HOMES}-{course}",
        about,
        version="batch/v1",
        namespace=NAMESPACE,
        spec={"backoffLimit": 2, "template": {"spec": pod}},
    )


def _policies() -> Iterator[Object]:
    """Yield what the API server refuses: homes but by the hub, and the end of a claim.

    The hub's shares are Jobs, whose pods the controller makes, as it makes those of anybody's Job.
    So Jobs with homes are the hub's alone. One of before this policy carries the name of its maker.
    """
    user = "request.userInfo.username"
    maker = f"object.metadata.?annotations[?'{USER}'].orValue('{HUB}')"
    of_jobs = f"({user} == '{JOB_CONTROLLER}' && {maker} == '{HUB}')"
    for name, kind, where, makers in (
        (POLICIES[0], ("", "pods"), "object.spec", f"({user} == '{HUB}' || {of_jobs})"),
        (POLICIES[2], ("batch", "jobs"), "object.spec.template.spec", f"{user} == '{HUB}'"),
    ):
        theirs = (
            f"has({where}.volumes) ? {where}.volumes.filter(v, has(v.persistentVolumeClaim) "
            f"&& v.persistentVolumeClaim.claimName == '{HOMES}').map(v, v.name) : []"
        )
        containers = (
            f"{where}.containers + (has({where}.initContainers) ? {where}.initContainers : [])"
        )
        own = (
            "variables.containers.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m, "
            "!(m.name in variables.homes) || (has(m.subPath) && m.subPath != '' "
            "&& !m.subPath.contains('/'))))"
        )
        yield from _policy(
            name,
            "Homes are mounted by the hub alone, each by one name.",
            (*kind, "CREATE"),
            f"size(variables.homes) == 0 || ({makers} && {own})",
            cel.message(
                f"{kind[1].removesuffix('s')} with homes",
                "namespace {object.metadata.namespace}",
                f"a mount by {{{user}}}",
                "the hub, one home in each pod",
                "start a server from the hub; for shared files make a claim of your own",
            ),
            {"homes": theirs, "containers": containers},
        )
    yield from _policy(
        POLICIES[1],
        "Claims of homes and datasets are deleted by users who may delete volumes.",
        ("", "persistentvolumeclaims", "DELETE"),
        f"!(oldObject.metadata.name == '{HOMES}' || oldObject.metadata.name.startsWith('{DATA}-'))"
        " || authorizer.group('').resource('persistentvolumes').check('delete').allowed()",
        cel.message(
            "claim {oldObject.metadata.name}",
            "namespace {oldObject.metadata.namespace}",
            "delete by {request.userInfo.username}",
            "users who may delete volumes",
            "ask the administrator",
        ),
        {},
    )


def _policy(
    name: str,
    about: str,
    what: tuple[str, str, str],
    expression: str,
    message: str,
    variables: dict[str, str],
) -> Iterator[Object]:
    group, resource, operation = what
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": [operation],
    }
    validation = {"expression": expression, "messageExpression": message, "reason": "Forbidden"}
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [validation],
    }
    if variables:
        spec["variables"] = [{"name": key, "expression": said} for key, said in variables.items()]
    yield made("ValidatingAdmissionPolicy", name, about, version=POLICY, spec=spec)
    teams = {"matchExpressions": [{"key": TEAM_LABEL, "operator": "Exists"}]}
    bound = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": teams},
    }
    yield made("ValidatingAdmissionPolicyBinding", name, about, version=POLICY, spec=bound)
