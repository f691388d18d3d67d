"""Which tools hosts get by the lock, and the evidence of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock
from bedplate.portable.evidence import hpc
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.host import Host, Result
from bedplate.resolver import hpc_tools
from bedplate.site.model import Wishes as Site
from tests.unit.test_plan_table import DEMO, SHOWN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CATALOGUE = load_catalogue()
DISTRO = ["infiniband-diags", "openmpi", "perftest", "ucx"]
SOURCE = ["nccl-tests", "nvbandwidth"]


def tools(
    source: str | None, branch: str | None = None, **wishes: Any
) -> tuple[dict[str, str], list[str]]:
    """Return the tools with a package, and those without, by where the driver comes from."""
    facts = (fact.value for fact in CATALOGUE.driver_packages.values())
    found = next((value for value in facts if value.source == source), None)
    assert (found is None) == (source is None)
    if found is not None and branch is not None:
        found = found.model_copy(update={"branch": branch})
    given = {"bedplate_host": {"os": "debian-12"}, **wishes}
    decided = hpc_tools.decided(Site.model_validate(given), found, CATALOGUE)
    return (decided.packages, sorted(decided.left)) if decided else ({}, [])


def test_hosts_get_the_distributions_tools_and_the_lock_says_what_is_left_out() -> None:
    packages, left = tools("distro")
    assert packages == {name: name for name in DISTRO} | {
        "openmpi": "openmpi-bin",
        "ucx": "ucx-utils",
    }
    assert left == ["dcgm", *SOURCE]


def test_dcgm_comes_from_the_drivers_repository_by_the_cuda_of_its_branch() -> None:
    for branch, major in (("535", "12"), ("580", "13")):
        packages, left = tools("vendor-repo", branch)
        assert packages["dcgm"] == f"datacenter-gpu-manager-4-cuda{major}"
        assert left == SOURCE


def test_hosts_without_nvidias_driver_get_none_of_its_tools() -> None:
    assert tools(None) == (tools("distro")[0], [])


def test_a_site_leaves_them_out_and_hypervisors_have_none() -> None:
    assert tools("distro", bedplate_hpc_tools=False) == ({}, [])


def test_a_plan_says_which_tools_hosts_get_and_which_are_left_out() -> None:
    """In one line of the table; why, with `--why`."""
    pools = {name: load_lock(DEMO).pools[name].hpc_tools for name in ("pool_class", "pool_train")}
    reasons = [one for name, of in pools.items() for one in hpc_tools.reasons(name, of)]
    assert [(one.subject, one.component, one.decided) for one in reasons] == [
        ("pool_class", "hpc_tools", "infiniband-diags, openmpi, perftest, ucx"),
        *(("pool_class", tool, "left out") for tool in ("dcgm", "nccl-tests", "nvbandwidth")),
    ]
    table = SHOWN[""].read_text(encoding="utf-8").splitlines()
    assert [line.split(maxsplit=2) for line in table if " hpc_tools " in line] == [
        ["pool_class", "hpc_tools", "4 tools; left out: dcgm, nccl-tests, nvbandwidth"]
    ]
    host = {"os": "debian-12", "kind": "hypervisor"}
    assert tools("distro", bedplate_host=host) == ({}, [])


class Machine:
    """A Debian host whose packages and MPI are what a test lets them be."""

    def __init__(self, root: Path) -> None:
        self.packages = ["openmpi-bin", "perftest"]
        self.started = Result(0, "host\nhost\n", "")
        self.host = Host(str(root), self.run)
        for name, text in (
            ("etc/os-release", 'ID="debian"\nVERSION_ID="12"\n'),
            ("usr/bin/mpirun", ""),
        ):
            path = root / name
            path.parent.mkdir(parents=True)
            path.write_text(text)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        if argv[0] == "dpkg-query":
            return Result(0, "".join(f"{n}\t1\tinstall\tinstalled\n" for n in self.packages), "")
        assert argv[0].endswith("mpirun")
        return self.started

    def results(self, **given: Any) -> dict[str, str]:
        to = Collected([], {}, {})
        hpc.collect(self.host, Wishes(hpc=given), to)
        return {one["id"]: one["reason"] or one["result"] for one in to.checks}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


PACKAGES = {"openmpi": "openmpi-bin", "perftest": "perftest"}


def test_evidence_passes_and_repeats_why_a_tool_is_left_out(machine: Machine) -> None:
    assert machine.results(packages=PACKAGES, left={"nvbandwidth": "source only"}) == {
        "hpc.packages": "pass",
        "hpc.mpi": "pass",
        "hpc.nvbandwidth": "source only",
    }
    assert machine.results() == {"hpc": "the lock has none for this host"}


def test_evidence_fails_for_a_package_and_for_an_mpi_that_starts_less(machine: Machine) -> None:
    machine.packages = ["openmpi-bin"]
    machine.started = Result(0, "host\n", "")
    assert machine.results(packages=PACKAGES)["hpc.packages"] == "fail"
    assert machine.results(packages=PACKAGES)["hpc.mpi"] == "fail"
    machine.started = Result(1, "", "no slots")
    assert machine.results(packages=PACKAGES)["hpc.mpi"] == "no slots"
    machine.host.remove("/usr/bin/mpirun")
    assert machine.results(packages=PACKAGES)["hpc.mpi"] == "no mpirun"
