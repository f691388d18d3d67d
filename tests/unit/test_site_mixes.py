"""Sites of every mix: one machine, workers without GPUs, Slurm alone, hypervisors alone, racks."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.bill.needs import needs_of
from bedplate.catalogue import load_catalogue
from bedplate.components.cluster.wished import cluster_args
from bedplate.components.locked_site import artifacts
from bedplate.lock import content_of, load_lock, write_lock
from bedplate.mirror.packages.wanted import systems
from bedplate.planning import changes
from bedplate.planning.changes import host_changes
from bedplate.resolver import Plan, resolve
from bedplate.resolver.installable import parts
from bedplate.resolver.plan import plan
from bedplate.site import load_site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TODAY = date(2026, 11, 21)
T4 = {"bedplate_gpu": {"model": "t4-16gb", "count": 2}}
KUBERNETES = {"bedplate_kubernetes": {"endpoint": "192.0.2.1:6443"}}
GIVEN = {
    "bedplate_host": {"os": "debian-12", "kind": "hypervisor"},
    "bedplate_passthrough": {"devices": ["0000:17:00.0"], "iommu_groups": [["0000:17:00.0"]]},
}

type Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A function that writes a site: its groups, and the variables of groups by name."""

    def write(groups: dict[str, Any], shared: dict[str, Any], **variables: Any) -> Path:
        folder = tmp_path / "site"
        (folder / "group_vars").mkdir(parents=True)
        inventory = {"all": {"children": groups}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))
        shared = {"bedplate_host": {"os": "debian-12"}, **shared}
        for name, wishes in {"all": shared, **variables}.items():
            (folder / "group_vars" / f"{name}.yml").write_text(yaml.safe_dump(wishes))
        return folder

    return write


def planned(site: Path) -> Plan:
    """Plan a site, or fail with the reasons."""
    answer = resolve(load_site(site), load_catalogue(), TODAY)
    assert isinstance(answer, Plan), [str(problem) for problem in answer.problems]
    return answer


def hosts(*names: str) -> dict[str, Any]:
    """Return hosts of an inventory."""
    return {"hosts": {name: {} for name in names}}


def test_workers_without_gpus_join_and_get_nothing_of_nvidias(make: Make) -> None:
    groups = {
        "control_plane": hosts("cp1"),
        "gpu_pools": {"children": {"pool_a": hosts("a1")}},
        "workers": {"children": {"rack_1": hosts("w1", "w2")}},
    }
    site = make(groups, KUBERNETES, pool_a=T4)
    lock = planned(site).lock
    assert {name: host.pool for name, host in lock.hosts.items()} == {
        "a1": "pool_a",
        "cp1": None,
        "w1": None,
        "w2": None,
    }
    args = cluster_args(lock, "", 1)
    assert [host["name"] for host in args["workers"]] == ["a1", "w1", "w2"]
    assert set(args["gpus"]) == {"a1"}
    found = host_changes(None, lock)
    got = {name: {one.component for one in its} for name, its in found.items()}
    assert {"kubernetes", "containerd", "cni"} <= got["w1"] == got["cp1"]
    assert not any(part.startswith("nvidia") for part in got["w1"])
    assert {"nvidia_container_toolkit", "nvidia_device_plugin"} <= got["a1"]
    # Pods have a node without the control plane.
    assert lock.cluster is not None
    assert lock.cluster.kubernetes.untainted == []


@pytest.mark.parametrize("whole", [1, 0])
def test_the_cluster_waits_for_every_resource_of_gpus_that_are_divided_differently(
    make: Make, whole: int
) -> None:
    groups = {"control_plane": hosts("cp1"), "gpu_pools": {"children": {"pool_a": hosts("a1")}}}
    lock = planned(make(groups, KUBERNETES, pool_a=T4)).lock
    expects = lock.pools["pool_a"].expects
    assert expects is not None
    also = {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.10gb": 3}
    divided = expects.model_copy(update={"count": whole, "also": also})
    lock.pools["pool_a"] = lock.pools["pool_a"].model_copy(update={"expects": divided})
    (waited,) = cluster_args(lock, "", 1)["gpus"].values()
    counts = {waited["resource"]: waited["count"], **waited.get("also", {})}
    assert counts == ({"nvidia.com/gpu": 1} if whole else {}) | also


def test_hosts_that_end_up_nowhere_are_named(make: Make) -> None:
    groups = {
        "control_plane": hosts("cp1"),
        "gpu_pools": {"children": {"pool_a": hosts("a1")}},
        "databases": hosts("db1", "db2"),
    }
    warnings = planned(make(groups, KUBERNETES, pool_a=T4)).warnings
    assert [one for one in warnings if "db1" in one] == [
        "in no group of Bedplate's, and get nothing: db1, db2; "  # noqa: ISC004
        "the groups are control_plane, gpu_pools, workers, hypervisors, slurm"
    ]


@pytest.mark.parametrize("group", ["slurm", "hypervisors"])
def test_a_site_without_kubernetes_has_no_word_of_it(make: Make, group: str) -> None:
    groups = {group: {"children": {"pool_a": hosts("a1", "a2")}}}
    own = T4 | GIVEN if group == "hypervisors" else T4
    shared = {"bedplate_sources": {"mode": "mirror", "url": "http://192.0.2.9:5080"}}
    site = make(groups, shared, pool_a=own)
    answer = planned(site)
    assert "cluster" not in content_of(answer.lock)
    assert answer.lock.not_yet == answer.lock.pools["pool_a"].not_yet == []
    said = "\n".join([*answer.warnings, *(f"{one.component}" for one in answer.reasons)])
    assert not [word for word in ("ubernetes", "control", "etcd", "cni") if word in said], said
    got = {one.component for one in host_changes(None, answer.lock)["a1"]}
    assert not got & {"kubernetes", "containerd", "nvidia_container_toolkit", "cni"}
    write_lock(site, answer.lock)
    assert plan(site, TODAY).up_to_date
    # Nothing is fetched for it: no mirror has to be filled.
    assert artifacts(site, load_lock(site)) == {"artifacts": {}, "images": {}}


def test_settings_of_a_cluster_that_no_host_is_in_are_warned_of(make: Make) -> None:
    groups = {"slurm": {"children": {"pool_a": hosts("a1")}}}
    site = make(groups, KUBERNETES | {"bedplate_schedulers": ["kueue"]}, pool_a=T4)
    warnings = planned(site).warnings
    assert (
        "bedplate_kubernetes, bedplate_schedulers: not used, since the site has no Kubernetes"
    ) in warnings


def test_hosts_with_docker_have_toolkit_and_packages_and_nothing_of_kubernetes(make: Make) -> None:
    groups = {"gpu_pools": {"children": {"pool_a": hosts("a1", "a2")}}}
    shared = {
        "bedplate_container_runtime": {"name": "docker"},
        "bedplate_sources": {"mode": "mirror", "url": "http://192.0.2.9:5080"},
    }
    site = make(groups, shared, pool_a=T4)
    answer = planned(site)
    assert answer.lock.cluster is None
    assert answer.lock.containers is not None
    assert parts(answer.lock) == []
    assert answer.lock.pools["pool_a"].expects is None
    said = "\n".join([*answer.warnings, *(f"{one.component}" for one in answer.reasons)])
    assert not [word for word in ("ubernetes", "control", "etcd", "cni") if word in said], said
    got = {one.component: one.after for one in host_changes(None, answer.lock)["a1"]}
    assert got["docker"] == "20.10.24 distro"
    assert {"nvidia_container_toolkit", "nvidia_driver"} <= set(got)
    assert not set(got) & {"kubernetes", "containerd", "nvidia_device_plugin", "cni"}
    write_lock(site, answer.lock)
    assert plan(site, TODAY).up_to_date
    needs = needs_of(answer.lock, load_catalogue())
    assert sorted(needs.files) == ["nvidia-container-toolkit", "nvidia-container-toolkit-base"]
    assert not needs.images
    (system,) = systems(answer.lock, load_catalogue())
    (wanted,) = system.wanted
    assert wanted.packages["docker.io"] == "20.10.24*"


def test_nodes_of_slurm_have_podman_and_toolkit_where_jobs_run_containers(make: Make) -> None:
    groups = {"slurm": {"hosts": {"ctl": {}}, "children": {"pool_a": hosts("a1", "a2")}}}
    shared = {
        "bedplate_container_runtime": {"name": "podman"},
        "bedplate_sources": {"mode": "mirror", "url": "http://192.0.2.9:5080"},
    }
    lock = planned(make(groups, shared, pool_a=T4)).lock
    assert lock.cluster is None
    assert parts(lock) == []
    changes = host_changes(None, lock)
    got = {one.component: one.after for one in changes["a1"]}
    assert got["podman"] == "4.3.1 distro"
    assert {"nvidia_container_toolkit", "nvidia_driver"} <= set(got)
    assert not {one.component for one in changes.get("ctl", ())} & set(got)
    needs = needs_of(lock, load_catalogue())
    assert sorted(needs.files) == ["nvidia-container-toolkit", "nvidia-container-toolkit-base"]
    (system,) = systems(lock, load_catalogue())
    (pool,) = (one for one in system.wanted if one.name == "pool_a")
    assert pool.packages["podman"] == "4.3.1*"
    assert {"crun", "uidmap"} <= set(pool.packages)


def test_a_change_for_docker_says_what_its_containers_have_of_it(make: Make) -> None:
    groups = {"gpu_pools": {"children": {"pool_a": hosts("a1", "a2")}}}
    lock = planned(make(groups, {"bedplate_container_runtime": {"name": "docker"}}, pool_a=T4)).lock
    pool = lock.pools["pool_a"]
    assert lock.containers is not None
    assert pool.nvidia_driver is not None
    docker = lock.containers.docker.model_copy(update={"version": "26.1.5"})
    driver = pool.nvidia_driver.model_copy(update={"version": "550.1"})
    changed = {
        "hosts": {"a1": lock.hosts["a1"]},
        "pools": {"pool_a": pool.model_copy(update={"nvidia_driver": driver, "os": "debian-13"})},
        "containers": lock.containers.model_copy(update={"docker": docker}),
    }
    told = host_changes(lock, lock.model_copy(update=changed))
    assert {one.component: one.effects for one in told["a1"]} == {
        "docker": ("refused while containers use it",),
        "nvidia_driver": ("refused while containers use it", "rebooted"),
        "os": ("rebooted",),
    }
    assert [str(one) for one in told["a2"]] == [
        "remove site membership member (as it is until bedplate.gpu.reset)"
    ]


def test_docker_of_its_vendor_is_mirrored_with_the_repository_that_it_comes_from(
    make: Make,
) -> None:
    groups = {"gpu_pools": {"children": {"pool_a": hosts("a1")}}}
    runtime = {"bedplate_container_runtime": {"name": "docker", "source": "vendor-repo"}}
    lock = planned(make(groups, runtime, pool_a=T4)).lock
    assert lock.containers is not None
    (system,) = systems(lock, load_catalogue())
    (wanted,) = system.wanted
    assert lock.containers.docker.packages.items() <= wanted.packages.items()
    assert "https://download.docker.com/linux/debian/" in {
        one.repository.index for one in system.sources
    }


def test_pools_may_lie_deep_and_have_groups_below_them(make: Make) -> None:
    racks = {"children": {"rack_1": hosts("a1"), "rack_2": hosts("a2")}}
    groups = {
        "control_plane": hosts("cp1"),
        "gpu_pools": {"children": {"dc1": {"children": {"row": {"children": {"pool_a": racks}}}}}},
        "slurm": {"children": {"dc2": {"children": {"pool_b": hosts("b1")}}}},
    }
    lock = planned(make(groups, KUBERNETES, pool_a=T4, pool_b=T4)).lock
    found = {name: (host.pool, host.groups) for name, host in lock.hosts.items()}
    assert found == {
        "a1": ("pool_a", ["gpu_pools", "pool_a"]),
        "a2": ("pool_a", ["gpu_pools", "pool_a"]),
        "b1": ("pool_b", ["pool_b", "slurm"]),
        "cp1": (None, ["control_plane"]),
    }


def test_a_node_does_not_change_its_container_runtime(make: Make, tmp_path: Path) -> None:
    groups = {"control_plane": hosts("cp1"), "gpu_pools": {"children": {"pool_a": hosts("a1")}}}
    before = planned(make(groups, KUBERNETES, pool_a=T4)).lock
    crio = {"bedplate_container_runtime": {"name": "cri-o", "source": "archive"}}
    (tmp_path / "site").rename(tmp_path / "before")
    after = planned(make(groups, KUBERNETES | crio, pool_a=T4)).lock
    told = {one.component: one.effects for one in host_changes(before, after)["a1"]}
    assert told["containerd"] == told["cri_o"] == ("refused where the cluster runs",)
    assert "cri_socket" not in cluster_args(before, "", 1)
    assert cluster_args(after, "", 1)["cri_socket"] == "unix:///run/crio/crio.sock"
    assert {one.effects for one in host_changes(None, after)["a1"]} == {()}
    # Of Slurm before: there is no runtime that another one would take the place of.
    slurm = {"nvidia_driver": "535.1"}
    (change,) = changes._changes(slurm, slurm | {"containerd": "2.4.2"})
    assert change.component == "containerd"
    assert changes.KEPT not in change.effects


def test_one_machine_needs_no_other_host(make: Make) -> None:
    groups = {
        "control_plane": hosts("one"),
        "gpu_pools": {"children": {"pool_a": hosts("one")}},
    }
    lock = planned(make(groups, KUBERNETES, pool_a=T4)).lock
    args = cluster_args(lock, "", 1)
    assert [host["name"] for host in args["control_planes"]] == ["one"]
    assert args["workers"] == []
    assert args["gpus"] == {"one": {"resource": "nvidia.com/gpu", "count": 2}}
    assert args["kubernetes"]["untainted"] == ["one"]
