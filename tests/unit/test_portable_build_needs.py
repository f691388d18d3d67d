"""What a driver's module is built with: which packages, and what keeps them from being brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable.driver import build_needs
from bedplate.portable.host import Host, Result
from bedplate.portable.packages import rpm
from bedplate.portable.packages.transaction import TransactionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RELEASE = "6.1.0-37-amd64"
KERNELS = (
    "linux-image-6.1.0-37-amd64 ii \n"
    "linux-image-amd64 ii \n"
    "linux-image-cloud-amd64 hi \n"
    "linux-image-unsigned-generic ii \n"
    "linux-image-rt-amd64 rc \n"
)
EXCLUDED = "Error: Unable to find a match: kernel-devel"
UNREACHABLE = "E: The repository 'http://deb.example stable Release' does not have a Release file."


class Machine:
    """A host whose package managers give canned answers."""

    def __init__(self, root: Path, system: str) -> None:
        (root / "etc").mkdir()
        (root / "etc/os-release").write_text(f"ID={system}\n")
        self.root, self.host = root, Host(str(root), self._run)
        self.madison, self.updates, self.repoquery = "", Result(0, "", ""), Result(0, "", "")

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        words = " ".join(argv)
        if argv[0] == "dpkg-query":
            return Result(0, KERNELS, "") if words.endswith("linux-image-*") else Result(1, "", "")
        if argv[0] == "apt-cache":
            return Result(0, self.madison, "")
        if argv[0] == "apt-get":
            return self.updates
        if argv[0] == "rpm":
            return Result(1, "package dkms is not installed", "")
        assert argv[0] == "dnf"
        # The list in force where no other one is named.
        folder = next((w.rpartition(",")[2] for w in argv if "pluginconfpath" in w), "")
        locks = self.host.read(f"{folder}/../versionlock.list" if folder else rpm.LOCK_LIST) or ""
        if "\nkernel-devel-" in locks:
            return Result(1, "", EXCLUDED) if "install" in argv else Result(0, "", "")
        return self.repoquery


def test_the_running_kernels_headers_and_what_follows_its_updates(tmp_path: Path) -> None:
    """What is held draws in no kernel, and an unsigned one has no headers of its own."""
    host = Machine(tmp_path, "debian").host
    headers = ["linux-headers-6.1.0-37-amd64", "linux-headers-amd64"]
    assert build_needs.wanted(host, RELEASE, dkms=False) == headers
    assert build_needs.wanted(host, RELEASE, dkms=True) == [*headers, "dkms"]
    (tmp_path / f"lib/modules/{RELEASE}/build").mkdir(parents=True)
    assert build_needs.wanted(host, RELEASE, dkms=False) == ["linux-headers-amd64"]


def test_red_hats_headers_and_dkms(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "rhel")
    release = "5.14.0-611.5.1.el9_7.x86_64"
    assert build_needs.wanted(machine.host, release, dkms=True) == [
        f"kernel-devel-{release}",
        "dkms",
    ]
    found = build_needs.needs(machine.host, ["dkms"], refresh=True)
    assert found == build_needs.Needs([], ["dkms"])
    with pytest.raises(TransactionError, match="Offer EPEL to the host"):
        build_needs.refuse_without_dkms(found)


def test_the_lock_on_another_kernels_headers_does_not_shut_out_the_running_ones(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, "rhel")
    machine.repoquery = Result(0, "kernel-devel\n", "")
    name = "kernel-devel-5.14.0-611.5.1.el9_7.x86_64"
    locked = rpm.with_locks("bash-0:5.1-1.*\n", {"kernel-devel": "5.14.0-570.1.el9_6"})
    machine.host.write(rpm.LOCK_LIST, locked)
    found = build_needs.needs(machine.host, [name], refresh=True)
    assert found == build_needs.Needs([name], [])
    build_needs.install(machine.host, [name], "/tmp")
    assert machine.host.read(rpm.LOCK_LIST) == locked
    # The user's own lock on the same name stays in force.
    machine.host.write(rpm.LOCK_LIST, "# mine\nkernel-devel-0:5.14.0-570.1.el9_6.*\n")
    assert build_needs.needs(machine.host, [name], refresh=True).missing == [name]
    with pytest.raises(TransactionError, match="packages could not be installed"):
        build_needs.install(machine.host, [name], "/tmp")


def test_a_repository_that_does_not_answer_is_not_blamed_on_epel(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "rhel")
    machine.repoquery = Result(1, "", "Error: Failed to download metadata for repo 'baseos'")
    with pytest.raises(TransactionError, match="the package index cannot be fetched"):
        build_needs.needs(machine.host, ["dkms"], refresh=True)


def test_an_index_that_cannot_be_fetched_keeps_nobody_from_a_driver(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "debian")
    machine.updates = Result(100, "", UNREACHABLE)
    machine.madison = (
        "linux-headers-amd64 | 6.1.140-1 | http://deb.example bookworm/main Packages\n"
    )
    names = ["linux-headers-6.1.0-37-amd64", "linux-headers-amd64"]
    found = build_needs.needs(machine.host, names, refresh=True)
    assert found == build_needs.Needs(names[1:], names[:1])
    with pytest.raises(TransactionError, match="the package index cannot be fetched"):
        build_needs.needs(machine.host, [*names, "dkms"], refresh=True)
