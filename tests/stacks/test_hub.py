"""The hub's component under Pulumi's mocks, and what it is told of the lock."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulumi
import pytest

from bedplate.components.cluster import artifact
from bedplate.components.config import StackError
from bedplate.components.frameworks import (
    hub_images,
    hub_objects,
    hub_proxy,
    hub_settings,
    hub_use,
    hub_volume,
    storage,
    volumes,
)
from bedplate.components.frameworks.hub import Hub
from bedplate.lock import hub_address
from bedplate.lock.courses import Course, Nfs, Notebook, OAuth, Share, Storage, Volume
from bedplate.lock.courses import Hub as LockedHub
from bedplate.lock.model import Taint, TeamImage
from tests.schedulers.certificates import Authority
from tests.stacks.locks import lock_of
from tests.stacks.test_components import Engine, run

if TYPE_CHECKING:
    from bedplate.lock import Lock

SEED = "s" * 64
COURSE: dict[str, Any] = {
    "students": 36,
    "share": Share(resource="nvidia.com/gpu", count=1, user_mib=1200, user_part=0.073),
    "pool": "pool_class",
    "frameworks": ["jax-0.12"],
    "hours": ["Mon 10:00-12:00"],
    "idle_timeout_s": 900,
    "teachers": ["ada"],
    "members": ["group:students", "bob"],
}


def lock(hub: LockedHub | None = None, **course: Any) -> Lock:
    """Return the demo's lock with one course and a hub."""
    found = lock_of({"gpu-b": {}}, groups=["pool_class", "control_plane"])
    assert found.cluster is not None
    courses = {"intro": Course(**{**COURSE, **course})}
    given = {"courses": courses, "hub": hub or LockedHub(sign_in="native", admins=["root"])}
    return found.model_copy(update={"cluster": found.cluster.model_copy(update=given)})


def up(of: Lock, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[Engine, Any]:
    """Register the component; images are as the bill would have them."""
    monkeypatch.setattr(artifact, "image", lambda _site, _lock, name: f"registry/{name}@sha256:0")

    def program() -> dict[str, pulumi.Output[Any]]:
        args: Any = {"site": Path("site"), "lock": of, "oauth_secret": None, **more}
        hub = Hub("hub", args)
        return {"codes": hub.codes, "passwords": hub.passwords}

    return run(program)


def test_secrets_are_secret_and_all_come_from_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, outputs = up(lock(), monkeypatch)
    codes, secret = outputs["codes"]
    assert (list(codes), secret) == (["intro"], True)
    passwords, secret = outputs["passwords"]
    assert (list(passwords), secret) == (["ada", "bob", "root"], True)
    text = str([one.inputs for one in engine.seen["kubernetes:core/v1:ConfigMap"]])
    assert not any(value in text for value in (*codes.values(), *passwords.values()))
    deployments = engine.seen["kubernetes:apps/v1:Deployment"]
    assert not any(value in str(one.inputs) for one in deployments for value in codes.values())


def test_secrets_differ_by_purpose_and_stay() -> None:
    first = hub_settings.secrets(lock(), SEED, {})
    assert first == hub_settings.secrets(lock(), SEED, {})
    assert len(set(first.values())) == len(first)
    assert set(first) == {
        "proxy-token",
        "cookie-secret",
        "crypt-key",
        "code-intro",
        "account-ada",
        "account-bob",
        "account-root",
    }
    other = hub_settings.secrets(lock(), "t" * 64, {})
    assert not set(first.values()) & set(other.values())


def test_the_hub_starts_after_all_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = up(lock(), monkeypatch)
    for one in engine.seen["kubernetes:apps/v1:Deployment"]:
        assert {"hub-secrets", "hub-namespace-bedplate-hub"} <= one.depends_on
        assert "hub-configmap-bedplate-hub-hub" in one.depends_on
        assert "hub-rolebinding-intro-bedplate-hub" in one.depends_on
    daemons = engine.seen["kubernetes:apps/v1:DaemonSet"]
    found = {one.inputs["metadata"]["name"]: one for one in daemons}
    assert "registry/notebook-jax-0.12.0.1-cuda12@sha256:0" in str(
        found["images-pool-class"].inputs["spec"]
    )
    assert found["bedplate-use"].depends_on == {"hub-namespace-bedplate-use"}


def test_each_node_with_gpus_has_a_reader_of_them() -> None:
    """It has no token, and its namespace alone allows what it needs to begin with."""
    found = hub_use.objects(lock(), "registry/hub@sha256:0")
    reader, labels = (
        found[-1]["spec"]["template"]["spec"],
        hub_use.namespace()["metadata"]["labels"],
    )
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert "gpu-b" in str(reader["affinity"])
    assert (reader["hostPID"], reader["automountServiceAccountToken"]) == (True, False)
    (container,) = reader["containers"]
    assert container["command"][1:] == ["/etc/bedplate/program/node_use.py", "--root", "/host"]
    assert all(one["readOnly"] for one in container["volumeMounts"])
    (program,) = (one for one in found if one["kind"] == "ConfigMap")
    assert "bedplate" not in re.findall(
        r"^\s*(?:import|from) (\w+)", program["data"]["node_use.py"]
    )
    (role,) = (one for one in found if one["kind"] == "Role")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    (policy,) = (one for one in found if one["kind"] == "NetworkPolicy")
    assert [one for one in ("bedplate-hub", "bedplate-accounting") if one in str(policy)] == [
        "bedplate-hub",
        "bedplate-accounting",
    ]
    # A team's pool has no course, and its use is shown too.
    teams = lock_of({"gpu-a": {}, "gpu-b": {}}, groups=["pool_class", "control_plane"])
    assert "gpu-a" in str(hub_use.objects(teams, "registry/hub")[-1])


def test_notebooks_mount_what_shows_notices() -> None:
    volume = hub_objects.magic_volume()["configMap"]
    maps = [one for one in hub_objects.rights({"intro": {}}) if one["kind"] == "ConfigMap"]
    keys = {one["key"]: one["path"] for one in volume["items"]}
    assert volume["optional"]
    assert set(keys) == set(maps[0]["data"])
    assert "jupyter/labextensions/bedplate-notice/package.json" in keys.values()


def test_settings_have_the_numbers_that_students_read() -> None:
    found = hub_settings.settings(lock(), lambda name: f"registry/{name}")
    course = found["courses"]["intro"]
    assert course["limits"] == {"nvidia.com/gpu": "1"}
    assert (course["shares"], course["longest"], course["gpu_hours"]) == (1, 0, 0)
    limits = {"shares": 2, "time_s": 600, "hours": 5}
    of = hub_settings.settings(lock(per_user=limits), str)["courses"]["intro"]
    assert (of["shares"], of["longest"], of["gpu_hours"]) == (2, 600, 5)
    (profile,) = course["profiles"]
    assert profile["image"] == "registry/notebook-jax-0.12.0.1-cuda12"
    assert (
        profile["about"]
        == "Jax 0.12.0.1 on 1 of 10 shares of a t4-16gb, 1200 MiB for your program."
    )
    assert profile["environment"] == {
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.073",
        "BEDPLATE_SHARES_URL": "http://bedplate-shares.bedplate-hub:8082/services/shares/intro",
        "PYTHONPATH": "/etc/bedplate/python",
        "JUPYTER_CONFIG_PATH": "/etc/bedplate/python/jupyter",
        "JUPYTER_PATH": "/etc/bedplate/python/jupyter",
    }
    assert course["material"] == []
    address = "https://git.example.org/ada/intro.git"
    for given, branch in ((address, ""), (f"{address}#autumn", "autumn")):
        of = hub_settings.settings(lock(material=given), str)["courses"]["intro"]
        assert of["material"] == ["gitpuller", address, branch, "/home/jovyan/intro"]
    bare = hub_settings.settings(lock(frameworks=[]), str)
    assert bare["courses"]["intro"]["profiles"][0]["image"] == "notebook-base"


@pytest.mark.parametrize(
    ("notebook", "size"),
    [
        (Notebook(), {}),
        (Notebook(memory_mib=4096, shm_mib=1024, disk_mib=9216), {"sizeLimit": "1024Mi"}),
    ],
)
def test_each_notebook_has_shared_memory(notebook: Notebook, size: dict[str, str]) -> None:
    """A runtime gives 64 MiB, which the workers of a DataLoader fill; also of an unknown host."""
    found = hub_settings.settings(lock(notebook=notebook), str)["courses"]["intro"]
    (volume,) = (one for one in found["volumes"] if one["name"] == "shm")
    assert volume["emptyDir"] == {"medium": "Memory", **size}
    assert {"name": "shm", "mountPath": "/dev/shm"} in found["mounts"]
    assert found["shm_mib"] == (notebook.shm_mib or 0)
    assert found["disk_mib"] == (notebook.disk_mib or 0)
    assert (", 9216 MiB of disk" in found["profiles"][0]["about"]) == bool(size)


def test_notebooks_without_a_gpu_are_on_the_nodes_of_their_pool() -> None:
    of = lock(runs_at_once=5)
    taint = Taint(key="gpu", value="yes", effect="NoSchedule")
    hosts = {
        name: one.model_copy(update={"pool": "pool_class", "taints": [taint]})
        for name, one in of.hosts.items()
    }
    found = hub_settings.settings(of.model_copy(update={"hosts": hosts}), str)["courses"]["intro"]
    assert (found["runs"], found["limits"]) == (5, {"nvidia.com/gpu": "1"})
    tolerated = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    assert found["placed"] == {
        "node_selector": {"bedplate.io/pool": "pool_class"},
        "tolerations": [tolerated],
    }
    assert found["profiles"][0]["about"] == (
        "Jax 0.12.0.1 without a GPU. A run by %%share has 1 of 10 shares of a t4-16gb, 1200 MiB "
        "for your program."
    )
    with_gpus = hub_settings.settings(lock(), str)["courses"]["intro"]
    assert (with_gpus["runs"], with_gpus["placed"]) == (0, {})


def test_a_size_is_a_course_with_the_students_and_homes_of_the_other() -> None:
    of = lock(storage_mib=2048)
    assert of.cluster is not None
    more = {"of": "intro", "at_once": 2, "share": Share(resource="nvidia.com/gpu", count=2)}
    large = Course(**{**COURSE, **more, "storage_mib": 2048})
    changed = {
        "courses": of.cluster.courses | {"intro-large": large},
        "storage": Storage(homes=Volume(nfs=Nfs(server="nas", path="/homes"))),
    }
    of = of.model_copy(update={"cluster": of.cluster.model_copy(update=changed)})
    found = hub_settings.settings(of, str)["courses"]
    assert (found["intro"]["of"], found["intro"]["sizes"]) == ("", ["intro-large"])
    assert (found["intro-large"]["of"], found["intro-large"]["sizes"]) == ("intro", [])
    assert found["intro-large"]["limits"] == {"nvidia.com/gpu": "2"}
    (profile,) = found["intro-large"]["profiles"]
    assert profile["slug"] == "intro-large-jax"
    assert profile["about"].endswith(", 2048 MiB of home, for 2 at a time.")
    assert "code-intro" in (secrets := hub_settings.secrets(of, SEED, {}))
    assert "code-intro-large" not in secrets, "students sign up for the course"
    data = volumes.volumes_args(of)
    made = {
        one["metadata"]["name"]: one for one in volumes.objects(data, "debian") if "spec" in one
    }
    folders = [made[f"bedplate-homes-{name}"]["spec"]["nfs"]["path"] for name in found]
    assert folders == ["/homes/intro", "/homes/intro"]
    assert [name for name, one in made.items() if one["kind"] == "Job"] == ["homes-intro"]
    claim = next(one for one in made.values() if one["metadata"].get("namespace") == "intro-large")
    assert f"job-{volumes.NAMESPACE}-homes-intro" in storage._needs(claim, data.courses)


def test_a_size_in_another_pool_leaves_the_hubs_volume_where_it_is() -> None:
    """The API server refuses another node of a volume."""
    of = lock(storage_mib=2048)
    assert of.cluster is not None
    homes = Storage(homes=Volume(path="/srv/homes", shared=True))
    host = next(iter(of.hosts.values())).model_copy(update={"pool": "pool_b"})
    course = of.cluster.courses["intro"]
    more = {"of": "intro", "at_once": 2, "pool": "pool_b"}
    courses = {"intro": course, "intro-large": course.model_copy(update=more)}
    before, after = (
        of.model_copy(
            update={
                "hosts": of.hosts | {"b1": host},
                "cluster": of.cluster.model_copy(update={"storage": homes, "courses": found}),
            }
        )
        for found in ({"intro": course}, courses)
    )
    assert hub_volume.of(before) == hub_volume.of(after)


def test_volumes_of_a_size_and_of_a_course_have_names_of_their_own() -> None:
    of = lock()
    assert of.cluster is not None
    data = {name: Volume(path=f"/srv/{name}") for name in ("net", "large-net")}
    course = of.cluster.courses["intro"].model_copy(update={"datasets": list(data)})
    large = course.model_copy(update={"of": "intro", "at_once": 2})
    more = {
        "courses": {"intro": course, "intro-large": large},
        "storage": Storage(datasets=data),
    }
    of = of.model_copy(update={"cluster": of.cluster.model_copy(update=more)})
    found = [one["metadata"]["name"] for one in volumes.objects(volumes.volumes_args(of), "debian")]
    volumes_of = [name for name in found if name.startswith("bedplate-data-")]
    assert len(set(volumes_of)) == len(volumes_of) == 4


def test_notebooks_install_from_the_sites_package_mirrors() -> None:
    index, channels = "https://pip.example/simple", "https://conda.example"
    of = lock()
    mirrors = of.sources.model_copy(update={"pip": index, "conda": channels})
    found = hub_settings.settings(of.model_copy(update={"sources": mirrors}), str)
    environment = found["courses"]["intro"]["profiles"][0]["environment"]
    assert environment["CONDA_CHANNEL_ALIAS"] == channels
    assert environment["CONDA_CHANNELS"] == "conda-forge"
    pip = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(pip, env=environment, capture_output=True, text=True, check=True)
    assert f":env:.index-url='{index}'" in told.stdout


def test_a_share_by_claim_has_its_template_and_what_the_queue_counts() -> None:
    share = Share(resource="gpu", count=1, memory_mib=2448, user_mib=2048, user_part=0.125)
    found = hub_settings.settings(lock(share=share), str)["courses"]["intro"]
    assert (found["limits"], found["claim"]) == ({"bedplate.io/gpu-share": "1"}, "share-2448mi")
    (profile,) = found["profiles"]
    assert profile["about"].startswith("Jax 0.12.0.1 on 2448 MiB of a ")
    assert profile["environment"]["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.125"


def test_oauth_wants_its_secret_from_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    given = OAuth(
        client_id="bedplate",
        authorize_url="https://id.example.org/a",
        token_url="https://id.example.org/t",
        userdata_url="https://id.example.org/u",
        username="preferred_username",
    )
    hub = LockedHub(sign_in="oauth", url="https://hub.example.org", oauth=given)
    with pytest.raises(StackError, match="pulumi config set --secret bedplate:oauthClientSecret"):
        up(lock(hub), monkeypatch)
    engine, outputs = up(lock(hub), monkeypatch, oauth_secret="unguessable")
    assert outputs["codes"] == ({}, True)
    assert outputs["passwords"] == ({}, True)
    assert "unguessable" not in str(engine.seen["kubernetes:core/v1:ConfigMap"])


def test_a_certificate_wants_its_key_from_the_stack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of = lock(LockedHub(sign_in="native", certificate=".tls/hub.crt"))
    with pytest.raises(
        StackError, match=r"got no file at site/\.tls/hub\.crt / allowed a PEM file"
    ):
        up(of, monkeypatch, key="a key")
    (tmp_path / ".tls").mkdir()
    served = hub_address.host(of)
    certificate, key = Authority(tmp_path).issue("hub", names=[served], days=(-1, 29))
    other, _ = Authority(tmp_path).issue("other")
    (tmp_path / ".tls/hub.crt").write_text(other.read_text())
    with pytest.raises(
        StackError, match=rf"got one of localhost, 127.0.0.1 / allowed one of {served} — issue"
    ):
        up(of, monkeypatch, key="a key", site=tmp_path)
    certificate.rename(tmp_path / ".tls/hub.crt")
    warned: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, _: warned.append(text))
    with pytest.raises(StackError, match="got nothing / allowed the private key of the first"):
        up(of, monkeypatch, site=tmp_path)
    engine, _ = up(of, monkeypatch, site=tmp_path, key=key.read_text())
    (secret,) = (one for one in engine.seen["kubernetes:core/v1:Secret"] if "tls" in one.name)
    assert "days: renew" in warned[-1]
    mark = key.read_text().splitlines()[1]
    assert mark in str(secret.inputs)
    assert mark not in str(engine.seen["kubernetes:core/v1:ConfigMap"])
    (public,) = (one for one in engine.seen["kubernetes:core/v1:Service"] if "public" in one.name)
    assert [one["port"] for one in public.inputs["spec"]["ports"]] == [443]
    url = f"https://{served}:8443"
    named = lock(LockedHub(sign_in="native", certificate=".tls/hub.crt", url=url))
    engine, _ = up(named, monkeypatch, site=tmp_path, key=key.read_text())
    (public,) = (one for one in engine.seen["kubernetes:core/v1:Service"] if "public" in one.name)
    assert [one["port"] for one in public.inputs["spec"]["ports"]] == [443, 80]
    (proxy,) = (one for one in engine.seen["kubernetes:apps/v1:Deployment"] if "proxy" in one.name)
    assert "--redirect-to=8443" in str(proxy.inputs["spec"])
    with pytest.raises(StackError, match="got the key of another certificate"):
        hub_proxy.checked(other.read_text(), key.read_text())
    with pytest.raises(StackError, match="got a text that is no private key"):
        hub_proxy.checked(other.read_text(), "a key")


def test_students_and_strangers_get_no_rights() -> None:
    """The hub's account is the only subject; it reads no Secret and touches no node."""
    objects = hub_objects.rights({"intro": None})
    bindings = [one for one in objects if one["kind"].endswith("RoleBinding")]
    account = {"kind": "ServiceAccount", "name": "hub", "namespace": "bedplate-hub"}
    assert [one["subjects"] for one in bindings] == [[account]] * 2
    rules = [rule for one in objects for rule in one.get("rules", [])]
    assert {resource for rule in rules for resource in rule["resources"]} == {
        "clusterqueues",
        "events",
        "jobs",
        "localqueues",
        "localqueues/pendingworkloads",
        "pods",
        "pods/log",
        "resourceflavors",
        "workloads",
    }
    (queues,) = (rule for rule in rules if "clusterqueues" in rule["resources"])
    assert queues["resourceNames"] == ["intro"]


OF_ONE = {"hostPath": {"path": "/var/lib/bedplate/hub", "type": "DirectoryOrCreate"}}
OF_ALL = {"hostPath": {"path": "/lustre/homes/.bedplate-hub", "type": "DirectoryOrCreate"}}
OF_NFS = {
    "nfs": {"server": "nfs.example", "path": "/export/homes"},
    "mountOptions": ["nosuid", "nodev"],
}


@pytest.mark.parametrize(
    ("homes", "name", "source", "hosts", "folder"),
    [
        (None, "state", OF_ONE, ["cp1"], None),
        (Volume(path="/srv/homes"), "state", OF_ONE, ["cp1"], None),
        (
            Volume(path="/lustre/homes", shared=True),
            "state-shared",
            OF_ALL,
            ["gpu-a", "gpu-b"],
            None,
        ),
        (
            Volume(nfs=Nfs(server="nfs.example", path="/export/homes")),
            "state-shared",
            OF_NFS,
            ["gpu-a", "gpu-b"],
            ".bedplate-hub",
        ),
    ],
)
def test_accounts_lie_with_homes_that_outlive_each_host(
    homes: Volume | None, name: str, source: Any, hosts: list[str], folder: str | None
) -> None:
    """With such homes the hub starts again on another node; else it is the first host's."""
    found = lock_of({"gpu-a": {}, "gpu-b": {}, "cp1": {}}, groups=["pool_class", "gpu_pools"])
    assert found.cluster is not None
    control_plane = found.hosts["cp1"].model_copy(
        update={"groups": ["control_plane"], "pool": None}
    )
    given = {"courses": lock().cluster.courses, "storage": Storage(homes=homes)}
    update = {
        "cluster": found.cluster.model_copy(update=given),
        "hosts": found.hosts | {"cp1": control_plane},
    }
    state = hub_volume.of(found.model_copy(update=update))
    volume, claim = hub_objects.state_volume(state)
    names = {one["metadata"]["name"] for one in (volume, claim)} | {claim["spec"]["volumeName"]}
    assert names == {f"bedplate-hub-{name}"}
    assert {key: volume["spec"][key] for key in source} == source
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == hosts
    pod = hub_objects.hub_deployment("i", "m", state)["spec"]["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == f"bedplate-hub-{name}"
    for one in (pod["initContainers"][0], *pod["containers"]):
        assert one["volumeMounts"][0].get("subPath") == folder


def test_no_pod_of_the_hub_is_privileged() -> None:
    for made in (
        hub_objects.hub_deployment("i", "m", hub_volume.of(lock())),
        hub_proxy.deployment("i", "m", encrypted=True),
    ):
        spec = made["spec"]["template"]["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        for one in (*spec["containers"], *spec.get("initContainers", [])):
            security = one["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"]["drop"] == ["ALL"]
        assert not any("hostPath" in volume for volume in spec.get("volumes", []))


def test_an_image_that_the_bill_refuses_is_offered_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The course goes on with its others; one that has no other has no profile and no pod."""
    of = lock(frameworks=["mine", "jax-0.12"])
    assert of.cluster is not None
    own = {"mine": TeamImage(image=f"registry/mine@sha256:{'0' * 64}", pool="pool_class")}
    of = of.model_copy(update={"cluster": of.cluster.model_copy(update={"images": own})})
    found = hub_settings.settings(of, str, {"mine"})["courses"]["intro"]["profiles"]
    assert [(one["slug"], one["title"]) for one in found] == [
        ("intro-jax", "intro with jax 0.12.0.1")
    ]
    monkeypatch.setattr(artifact, "refused", lambda *_: {"mine": "no JupyterLab"})
    engine, _ = up(of, monkeypatch)
    assert "registry/mine" not in str([one.inputs for ones in engine.seen.values() for one in ones])
    assert of.cluster is not None
    alone = {"intro": of.cluster.courses["intro"].model_copy(update={"frameworks": ["mine"]})}
    cluster = of.cluster.model_copy(update={"courses": alone})
    settings = hub_settings.settings(of.model_copy(update={"cluster": cluster}), str, {"mine"})
    assert settings["courses"]["intro"]["profiles"] == []
    assert not list(hub_images.daemons(of.model_copy(update={"cluster": cluster}), settings))
