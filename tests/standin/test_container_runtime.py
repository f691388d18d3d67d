"""Role container_runtime with a vendor's repository: containerd.io in place of others, and CRI-O.

Systems and packages are stand-ins: no daemon is started, and no container runs here.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.portable import owned
from bedplate.portable.runtime import containerd
from tests.standin import playing
from tests.substrate.standin import runtime_packages, system
from tests.substrate.standin.packages import format_of

if TYPE_CHECKING:
    from pathlib import Path

ROLE = playing.ROOT / "roles/container_runtime"
FAMILY = {"deb": "Debian", "rpm": "RedHat"}
VENDOR = "containerd.io"
JOINED = "etc/kubernetes/kubelet.conf"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


@pytest.fixture(scope="module", params=playing.ONE_BY_DEFAULT)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host: a stand-in system with all that the runtime may come from."""
    os_name, work = request.param, tmp_path_factory.mktemp("runtime")
    data = yaml.safe_load((ROLE / f"vars/{FAMILY[format_of(os_name)]}.yml").read_text())
    names = {*data["__container_runtime_needs"]["containerd"], "containerd"}
    repository = playing.unpacked(
        os_name, work, runtime_packages(os_name, "containerd", sorted(names))
    )
    if format_of(os_name) == "rpm":
        # What the distribution has is offered without the role too.
        base = f"[base]\nname=base\nbaseurl=file:///{playing.REPOSITORY}\nexcludepkgs={VENDOR}\n"
        folder = work / "host/etc/yum.repos.d"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "base.repo").write_text(base + "gpgcheck=0\n")
    programs = work / "bin"
    programs.mkdir()
    for name in ("containerd", "containerd-shim-runc-v2", "ctr"):
        (programs / name).write_text("#!/bin/false\n")
    with tarfile.open(work / "host" / playing.REPOSITORY / "containerd.tar.gz", "w:gz") as archive:
        archive.add(programs, "bin")
    wishes = {
        "bedplate_container_runtime": {"source": "vendor-repo"},
        "container_runtime_repository": repository | {"suite": "/"},
    }
    return playing.planned(os_name, work, wishes)


def play(site: Path, *arguments: str, **variables: object) -> tuple[int, str]:
    """Install the runtime: how many tasks changed something (-1: failed), and what was said."""
    return playing.play(site, "container_runtime", "install", *arguments, **variables)


def pinned(site: Path) -> str:
    """The vendor's version that the lock names."""
    lock = yaml.safe_load((site / ".bedplate.lock.yml").read_text())
    return str(lock["cluster"]["containerd"]["packages"][VENDOR])


def archive(site: Path) -> dict[str, object]:
    """Variables that wish for the release archive."""
    name = f"{playing.REPOSITORY}/containerd.tar.gz"
    content = (site.parent / "host" / name).read_bytes()
    version = "2.4.2"
    return {
        "container_runtime_source": "archive",
        "container_runtime_version": version,
        "container_runtime_packages": {},
        "container_runtime_archive": {
            "version": version,
            "url": f"file:///{name}",
            "sha256": hashlib.sha256(content).hexdigest(),
        },
    }


def test_check_mode_changes_nothing_and_says_what_would(site: Path) -> None:
    changed, said = play(site, "--check", "--diff")
    assert changed > 0, said
    assert VENDOR in said
    assert VENDOR not in playing.installed(site)


def test_the_locks_version_is_installed_once_and_held(site: Path) -> None:
    changed, said = play(site)
    assert changed > 0, said
    found = playing.installed(site)
    assert found[VENDOR].removeprefix("0:") == pinned(site).removeprefix("0:")
    # The vendor's brings its own.
    assert {"runc", "containerd"} & set(found) == set()
    assert playing.held(site, VENDOR)
    record = owned.load(system.host(site.parent / "host"))
    mine = {path for path, entry in record.items() if entry["role"] == "container_runtime"}
    assert len(mine) >= 2, "the repository's file and its key, for a reset to take away"
    assert all("bedplate-docker" in path for path in mine)
    changed, said = play(site)
    assert changed == 0, said


def test_the_packages_own_file_is_no_users(site: Path) -> None:
    """It switches off what kubelet talks to: untouched, ours takes its place."""
    path, ours, pattern = "/etc/containerd/config.toml", "version = 3\n", "/etc/mine/*.toml"
    host = system.host(site.parent / "host")
    brought = host.read(path) or ""
    assert "disabled_plugins" in brought
    outcome = containerd.ensure(host, path, ours, pattern, check=True)
    assert (outcome.problems, outcome.adopted) == ([], False)
    host.write(path, f"# mine now\n{brought}")
    outcome = containerd.ensure(host, path, ours, pattern, check=True)
    assert outcome.adopted
    assert "switches Kubernetes' interface off" in outcome.problems[0]
    host.write(path, brought)


def test_an_archive_stands_beside_the_vendors_package(site: Path) -> None:
    changed, said = play(site, **archive(site))
    assert changed > 0, said
    assert VENDOR in playing.installed(site)
    link = site.parent / "host/usr/local/bin/containerd"
    assert link.is_symlink()
    changed, said = play(site, **archive(site))
    assert changed == 0, said
    link.unlink()  # as the role's `configure` does once the package's daemon runs


@pytest.mark.parametrize("site", ["ubuntu-24.04"], indirect=True)
def test_the_distributions_goes_for_the_vendors_and_back(site: Path) -> None:
    """Red Hat's family has no containerd of its own."""
    distro = {"container_runtime_source": "distro", "container_runtime_version": "99.0"}
    changed, said = play(site, **distro, container_runtime_packages={})
    assert changed > 0, said
    found = playing.installed(site)
    assert {"containerd", "runc"} <= set(found)
    assert VENDOR not in found
    changed, said = play(site)
    assert changed > 0, said
    found = playing.installed(site)
    assert VENDOR in found
    assert not {"runc", "containerd"} & set(found)


def test_a_node_that_has_joined_keeps_what_it_has(site: Path) -> None:
    conf = site.parent / "host" / JOINED
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("joined\n")
    before = playing.installed(site)
    other = {VENDOR: "9:9.9.9-1"}
    changed, said = play(site, container_runtime_packages=other)
    assert changed == 0, said
    assert "deferred until the node is drained" in said
    changed, said = play(site, **archive(site))
    assert changed == 0, said
    assert "another source than archive" in " ".join(said.split())
    assert playing.installed(site) == before
    conf.unlink()


@pytest.fixture(scope="module")
def crio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host that wishes for CRI-O of its own repository."""
    os_name, work = "ubuntu-24.04", tmp_path_factory.mktemp("crio")
    data = yaml.safe_load((ROLE / "vars/Debian.yml").read_text())
    names = sorted(data["__container_runtime_needs"]["cri-o"])
    repository = playing.unpacked(os_name, work, runtime_packages(os_name, "cri-o", names))
    wishes = {
        "bedplate_container_runtime": {"name": "cri-o", "source": "vendor-repo"},
        "container_runtime_repository": repository,
    }
    return playing.planned(os_name, work, wishes)


def test_crio_comes_beside_the_distributions_runc(crio: Path) -> None:
    changed, said = play(crio)
    assert changed > 0, said
    lock = yaml.safe_load((crio / ".bedplate.lock.yml").read_text())
    found = playing.installed(crio)
    assert {"cri-o": found["cri-o"]} == lock["cluster"]["cri_o"]["packages"]
    assert {"runc", "conmon"} <= set(found)
    assert playing.held(crio, "cri-o")
    changed, said = play(crio)
    assert changed == 0, said
    assert (crio.parent / "host/etc/apt/sources.list.d/bedplate-cri-o.sources").is_file()


def test_crio_runs_from_where_the_package_has_it(crio: Path) -> None:
    changed, said = playing.play(crio, "container_runtime", "configure", "--check", "--diff")
    assert changed > 0, said
    assert "ExecStart=/usr/bin/crio" in said
    assert 'pinns_path = "/usr/bin/pinns"' in said


def test_crios_own_repository_is_that_of_its_minor_version(crio: Path) -> None:
    changed, said = play(crio, "--check", "--diff", container_runtime_repository={})
    assert changed > 0, said
    lock = yaml.safe_load((crio / ".bedplate.lock.yml").read_text())
    minor = lock["cluster"]["cri_o"]["version"].rpartition(".")[0]
    assert f"isv:/cri-o:/stable:/v{minor}/deb/" in said
    assert "{minor}" not in said


@pytest.mark.parametrize("site", ["rocky-9"], indirect=True)
def test_red_hats_family_has_no_repository_of_crio(site: Path) -> None:
    wishes = {"container_runtime_engine": "cri-o", "container_runtime_repository": {}}
    changed, said = playing.play(site, "container_runtime", "validate", **wishes)
    assert changed == -1, said
    told = " ".join(said.split())
    assert "the runtime cannot be had from there — container_runtime_source" in told
    assert "allowed archive for cri-o on rocky-9" in told
