"""What hosts install, by the catalogue, is what their roles install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock
from bedplate.lock.courses import Storage
from bedplate.mirror.packages.wanted import systems

ROOT = Path(__file__).parents[2]


def test_what_hosts_of_rocky_linux_install() -> None:
    lock = load_lock(ROOT / "inventories/demo")
    catalogue = load_catalogue()
    fact = next(
        fact.value
        for fact in catalogue.driver_packages.values()
        if (fact.value.os, fact.value.flavour) == ("rocky-9", "open")
    )
    one = lock.pools["pool_class"]
    assert one.nvidia_driver is not None
    driver = one.nvidia_driver.model_copy(
        update={
            "source": "vendor-repo",
            "flavour": "open",
            "branch": fact.branch,
            "version": fact.version,
            "packages": fact.packages,
        }
    )
    pool = one.model_copy(update={"os": "rocky-9", "nvidia_driver": driver, "kernel": "5.14.0-1"})
    (system,) = systems(lock.model_copy(update={"pools": {"pool_class": pool}}), catalogue)
    assert (system.name, system.format) == ("rocky-9", "rpm")
    signed_index = {one.repository.index: one.repository.signed_index for one in system.sources}
    vendor = catalogue.repositories["rocky-9-vendor-repo"].value
    assert signed_index[vendor.url]
    assert {one.repository.format for one in system.sources} == {"rpm"}
    assert len([index for index in signed_index if "/rocky/9/" in index]) == 3
    wanted = {one.name: one for one in system.wanted}["pool_class"]
    assert wanted.streams == {"nvidia-driver": f"{fact.branch}-open"}
    assert fact.packages.items() <= wanted.packages.items()
    versionlock = "python3-dnf-plugin-versionlock"
    assert {"dkms", "runc", "kernel-devel-5.14.0-1", "kernel-5.14.0-1", versionlock} <= set(
        wanted.packages
    )
    assert "kernel-devel" not in wanted.packages


def _vars(role: str, name: str) -> dict[str, Any]:
    text = (ROOT / f"roles/{role}/vars/{name}.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def _names_what_the_roles_install(os: str, family: str) -> dict[str, list[str]]:
    """Compare the facts of a system with the roles' variables for its family; return the facts."""
    facts = {
        key.removeprefix(f"{os}-"): fact.value.packages
        for key, fact in load_catalogue().host_packages.items()
        if fact.value.os == os
    }
    runtime = _vars("container_runtime", family)["__container_runtime_needs"]
    assert {name: facts.get(name, []) for name in runtime} == runtime
    assert facts["rdma"] == _vars("rdma", family)["__rdma_packages_of_stack"]["inbox"]
    assert facts["hypervisor"] == _vars("gpu_passthrough", family)["__gpu_passthrough_packages"]
    assert facts["nfs"] == _vars("kubernetes_node", family)["__kubernetes_node_nfs_packages"]
    endpoint = _vars("control_plane_endpoint", "main")["__control_plane_endpoint_packages"]
    assert all(f"'{name}'" in endpoint for name in {*facts["keepalived"], *facts["haproxy"]})
    return facts


@pytest.mark.parametrize("os", ["rocky-8", "rocky-9", "rhel-8", "rhel-9"])
def test_the_catalogue_names_what_the_roles_install_by_dnf(os: str) -> None:
    facts = _names_what_the_roles_install(os, "RedHat")
    assert facts["module"] == ["dkms", "kernel-devel"]


@pytest.mark.parametrize("os", ["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04"])
def test_the_catalogue_names_what_the_roles_install(os: str) -> None:
    facts = _names_what_the_roles_install(os, "Debian")
    followers = _vars("host_baseline", os)["__host_baseline_kernel_followers"]
    assert set(facts["module"]) - {"dkms"} <= set(followers)
    if "slurm" in facts:
        slurm = _vars("slurm", os)
        assert slurm.pop("__slurm_packages_podman") == ["podman", *facts["podman"]]
        assert facts["slurm"] == [name for part in slurm.values() for name in part]


def test_nodes_of_courses_on_nfs_have_its_client() -> None:
    """The others' nodes mount nothing of it, and a folder of the hosts needs no client."""
    lock, catalogue = load_lock(ROOT / "inventories/demo"), load_catalogue()
    assert lock.cluster is not None

    def has(storage: dict[str, Any]) -> set[str]:
        changed = {"storage": Storage.model_validate(storage)}
        cluster = lock.cluster and lock.cluster.model_copy(update=changed)
        found = systems(lock.model_copy(update={"cluster": cluster}), catalogue)
        client = {"nfs-common", "nfs-utils"}
        return {one.name for own in found for one in own.wanted if client & set(one.packages)}

    folder, server = {"path": "/srv/homes"}, {"nfs": {"server": "nas", "path": "/srv"}}
    taught = {course.pool for course in lock.cluster.courses.values()}
    assert taught == {"pool_class"} < set(lock.pools)
    assert has({"homes": server}) == taught
    assert has({"homes": folder, "datasets": {"mnist": server}}) == taught
    assert has({"homes": folder}) == has({}) == set()
