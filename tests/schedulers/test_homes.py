"""Homes and datasets on a real API server: bound, and mounted by nobody but the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.accounting.records import USER
from bedplate.components.frameworks import hub_objects, hub_volume, volumes
from bedplate.components.schedulers.kueue.objects import TEAM_LABEL, made
from bedplate.components.schedulers.kueue.tenancy import RBAC
from bedplate.lock.courses import Course, Storage
from bedplate.lock.model import Host
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.locks import lock_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.lock import Lock
    from tests.schedulers.control_plane import ControlPlane

COURSE = "intro-homes"
PATIENCE = 240
FOLDER = {"path": "/srv/mnist"}
POLICIES = ("validatingadmissionpolicybindings", volumes.POLICY)


def locked(homes: Mapping[str, Any], hosts: int = 1, dataset: Mapping[str, Any] = FOLDER) -> Lock:
    """Return a lock with one course that has homes and a dataset."""
    lock = lock_of({"pool_class": [{}] * hosts}, {})
    assert lock.cluster is not None
    course = Course.model_validate(
        {
            "students": 36,
            "share": {"resource": "nvidia.com/gpu", "count": 1},
            "pool": "pool_class",
            "idle_timeout_s": 1800,
            "storage_mib": 2048,
            "datasets": ["mnist"],
        }
    )
    storage = Storage.model_validate({"homes": homes, "datasets": {"mnist": dataset}})
    cluster = lock.cluster.model_copy(update={"courses": {COURSE: course}, "storage": storage})
    return lock.model_copy(update={"cluster": cluster})


def objects(lock: Lock) -> list[dict[str, Any]]:
    """Return everything about a lock's data."""
    return volumes.objects(volumes.volumes_args(lock), "debian")


LOCK = locked({"path": "/srv/homes"})


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Iterator[Api]:
    """The course's namespace with its volumes, and a teacher who may do what members may."""
    found = control_plane.api
    space = made("Namespace", COURSE, "Tests.", version="v1", labels={TEAM_LABEL: COURSE})
    rules = [
        {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": ["*"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
    ]
    role = made("Role", "member", "Tests.", version=RBAC, namespace=COURSE, rules=rules)
    who = [
        {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        for name in ("ada", volumes.HUB)
    ]
    ref = {"kind": "Role", "name": "member", "apiGroup": "rbac.authorization.k8s.io"}
    bound = made("RoleBinding", "member", "Tests.", version=RBAC, namespace=COURSE)
    bound |= {"subjects": who, "roleRef": ref}
    every = [space, role, bound, *objects(LOCK)]
    for one in every:
        found.apply(one)
    eventually(lambda: in_force(found), PATIENCE)
    yield found
    for one in reversed(every):
        found.delete(found.path_of(one))


def pod(mounts: list[dict[str, Any]] | None = None, first: bool = False) -> dict[str, Any]:
    """Return a pod with the homes' claim, mounted as a student of the hub's has it or otherwise."""
    given = volumes.of_course(LOCK, COURSE)
    own = [{**one, "subPath": "bob"} if "subPath" in one else one for one in given["volume_mounts"]]
    main = {
        "name": "main",
        "image": "x",
        "volumeMounts": own if mounts is None or first else mounts,
    }
    spec: dict[str, Any] = {"containers": [main], "volumes": given["volumes"]}
    if first:
        spec["initContainers"] = [{"name": "first", "image": "x", "volumeMounts": mounts}]
    return made("Pod", "server-bob", "Tests.", version="v1", namespace=COURSE, spec=spec)


def job(name: str, mounts: list[dict[str, Any]] | None = None, maker: str = "") -> dict[str, Any]:
    """Return a Job of such a pod; `maker` is who a Job of before the policy was made by."""
    spec = pod(mounts)["spec"] | {"restartPolicy": "Never"}
    meta = {"annotations": {USER: maker}} if maker else {}
    content = {"spec": {"template": {"metadata": meta, "spec": spec}, "backoffLimit": 0}}
    return made("Job", name, "Tests.", version="batch/v1", namespace=COURSE, **content)


def in_force(api: Api) -> bool:
    """Tell whether the API server has read each of the policies: it reads one after another."""
    return bool(
        refusal(api, "ada", pod())
        and refusal(api, "ada", job("early"))
        and kept(api, volumes.HOMES)
    )


def kept(api: Api, claim: str) -> str:
    """Return why a member may not delete a claim, empty where she may; none is deleted."""
    path = api.path("persistentvolumeclaims", "v1", COURSE, claim)
    try:
        api.acting_as("ada").delete(path, dryRun=["All"])
    except ApiError as error:
        return str(error)
    return ""


def refusal(api: Api, user: str, wanted: dict[str, Any]) -> str:
    """Return why the API refuses a pod, empty where it does not."""
    try:
        made_one = api.acting_as(user).create(wanted)
    except ApiError as error:
        return str(error)
    api.delete(api.path_of(made_one), gracePeriodSeconds=0)
    return ""


@pytest.mark.parametrize(
    ("homes", "claim"),
    [
        ({"path": "/srv/homes"}, "bedplate-hub-state"),
        ({"nfs": {"server": "nas", "path": "/export/homes"}}, "bedplate-hub-state-shared"),
    ],
)
def test_the_hub_is_taken_with_its_accounts_wherever_they_lie(
    control_plane: ControlPlane, homes: dict[str, Any], claim: str
) -> None:
    """The API server takes volume, claim and Deployment, and binds the claim."""
    api, lock = control_plane.api, locked(homes, hosts=2)
    first = Host(address="192.0.2.1", port=22, user="root", pool=None, groups=["control_plane"])
    hosts = lock.hosts | {"cp1": first}
    state = hub_volume.of(lock.model_copy(update={"hosts": hosts}))
    volume, wanted = hub_objects.state_volume(state)
    made_ones = [hub_objects.namespace(), volume, wanted]
    made_ones.append(hub_objects.hub_deployment("hub", "mark", state))
    for one in made_ones:
        api.apply(one)

    def bound() -> list[str]:
        found = api.get("persistentvolumeclaims", "v1", hub_objects.NAMESPACE)
        return [
            one["metadata"]["name"]
            for one in found
            if one.get("status", {}).get("phase") == "Bound"
        ]

    try:
        assert claim in eventually(bound, PATIENCE, until=lambda found: claim in found)
    finally:
        for one in reversed(made_ones[1:]):
            api.delete(api.path_of(one))


def test_claims_are_bound_to_the_volumes_of_their_course(api: Api) -> None:
    def claims() -> dict[str, Any]:
        found = api.get("persistentvolumeclaims", "v1", COURSE)
        return {
            one["metadata"]["name"]: one["spec"]["volumeName"]
            for one in found
            if one.get("status", {}).get("phase") == "Bound"
        }

    wanted = {
        "homes": f"bedplate-homes-{COURSE}",
        "data-mnist": f"bedplate-data-{COURSE}-mnist",
    }
    eventually(lambda: claims() == wanted, PATIENCE)


def test_the_hub_alone_mounts_homes_and_each_by_one_name(api: Api) -> None:
    assert refusal(api, volumes.HUB, pod()) == ""
    assert "got a mount by ada / allowed the hub" in refusal(api, "ada", pod())
    whole: dict[str, Any] = {"name": volumes.HOMES, "mountPath": "/all"}
    for mount in (whole, whole | {"subPath": "bob/peek"}, whole | {"subPath": ""}):
        assert "allowed the hub, one home" in refusal(api, volumes.HUB, pod([mount]))
        assert "allowed the hub, one home" in refusal(api, volumes.HUB, pod([mount], first=True))
    assert "must not contain '..'" in refusal(api, volumes.HUB, pod([whole | {"subPath": ".."}]))


def test_the_hub_alone_makes_jobs_with_homes(api: Api) -> None:
    """Of its shares the controller makes the pods; of a Job of before it makes none."""

    def pods(name: str) -> list[str]:
        found = api.get("pods", "v1", COURSE)
        return [one["metadata"]["name"] for one in found if name in one["metadata"]["name"]]

    def said(name: str) -> str:
        found = [one for one in api.get("events", "v1", COURSE)
                 if one["involvedObject"]["name"] == name]  # fmt: skip
        return " ".join(one["message"] for one in found)

    assert "job with homes" in refusal(api, "ada", job("of-ada"))
    whole = {"name": volumes.HOMES, "mountPath": "/all"}
    assert "allowed the hub, one home" in refusal(api, volumes.HUB, job("whole", [whole]))
    hub = api.acting_as(volumes.HUB)
    ours = [hub.create(job("share")), hub.create(job("before", maker="ada"))]
    try:
        eventually(lambda: pods("share"), PATIENCE)
        eventually(lambda: said("before"), PATIENCE, until=lambda told: "pod with homes" in told)
        assert pods("before") == []
    finally:
        for one in ours:
            api.delete(api.path_of(one), propagationPolicy="Background")
        eventually(lambda: not pods("share"), PATIENCE)


def test_who_may_make_pods_reads_all_homes_where_the_policy_is_off(api: Api) -> None:
    """The attack that the policy is for. Data alone is never refused."""
    whole = pod([{"name": volumes.HOMES, "mountPath": "/all"}])
    binding = api.path(*POLICIES, name=volumes.POLICIES[0])
    (kept,) = (
        one
        for one in objects(LOCK)
        if one["kind"] == "ValidatingAdmissionPolicyBinding"
        and one["metadata"]["name"] == volumes.POLICIES[0]
    )
    api.delete(binding)
    try:
        eventually(lambda: refusal(api, "ada", whole) == "", PATIENCE)
    finally:
        api.apply(kept)
        eventually(lambda: refusal(api, "ada", whole) != "", PATIENCE)
    only_data = pod()
    only_data["spec"]["volumes"] = only_data["spec"]["volumes"][1:]
    only_data["spec"]["containers"][0]["volumeMounts"] = []
    assert refusal(api, "ada", only_data) == ""


def test_a_member_cannot_delete_the_claims(api: Api) -> None:
    ada = api.acting_as("ada")
    for claim in ("homes", "data-mnist"):
        assert "users who may delete" in kept(api, claim)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    own = made("PersistentVolumeClaim", "own", "Hers.", version="v1", namespace=COURSE, spec=spec)
    ada.create(own)
    ada.delete(api.path_of(own))


def test_rendered_for_a_server_and_for_file_systems_of_all_hosts() -> None:
    """What is rendered is looked at; tests/frameworks/test_nfs.py mounts an NFS server's."""
    nfs = locked({"nfs": {"server": "nas", "path": "/export/homes/"}}, hosts=2)
    source = {one["kind"]: one for one in objects(nfs)}
    (folder,) = source["Job"]["spec"]["template"]["spec"]["volumes"]
    assert folder["nfs"] == {"server": "nas", "path": "/export/homes/"}
    (homes,) = (
        one["spec"]
        for one in objects(nfs)
        if one["metadata"]["name"] == f"bedplate-homes-{COURSE}" and "spec" in one
    )
    assert homes["nfs"]["path"] == f"/export/homes/{COURSE}"
    assert homes["mountOptions"] == ["nosuid", "nodev"]
    shared = objects(locked({"path": "/mnt/lustre", "shared": True}, hosts=2))
    (spec,) = (
        one["spec"]
        for one in shared
        if "homes-intro" in one["metadata"]["name"] and one["kind"] == "PersistentVolume"
    )
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["pool-class-0", "pool-class-1"]


def test_without_storage_there_is_nothing() -> None:
    assert objects(lock_of({"pool_class": [{}]}, {})) == []
    assert volumes.of_course(LOCK, "other") == {"volumes": [], "volume_mounts": []}
