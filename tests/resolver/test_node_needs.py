"""Kernels and control groups of real systems: what kubeadm, kube-proxy and swap make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import Plan, Refusal, resolve
from tests.resolver.cases import CHECK, driver, one
from tests.resolver.judging import TODAY

if TYPE_CHECKING:
    from bedplate.common.errors import Problem

OLD, NFTABLES = "rocky-8", {"mode": "nftables"}
ALLOWED = {"failCgroupV1": False}
SWAP = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
OLD_KERNEL = "kubeadm asks for kernel {} or newer, and there is kernel 4.18.0-553.el8_10.x86_64"


def answer(os: str = OLD, **wishes: Any) -> Plan | Refusal:
    """Plan a site with a pool of L40S."""
    own = driver("580", source="vendor-repo")
    return resolve(one("l40s", os=os, driver=own, **wishes).site(), load_catalogue(), TODAY)


def refused(**wishes: Any) -> Problem:
    """Return the one problem of a site."""
    found = answer(**wishes)
    assert isinstance(found, Refusal)
    (problem,) = found.problems
    return problem


def planned(**wishes: Any) -> str:
    """Return the warnings of a plan."""
    found = answer(**wishes)
    assert isinstance(found, Plan), found
    return "\n".join(found.warnings)


def test_kubeadm_stops_on_an_old_kernel_before_1_34_and_warns_from_then_on() -> None:
    problem = refused(kubernetes="1.33", ignored=[])
    assert problem.rule == "node-needs"
    assert str(problem.got).endswith(": kubeadm needs kernel 4.19 or newer")
    assert problem.fix.startswith(f"add {CHECK} to bedplate_kubernetes.ignore_preflight, or write ")
    assert OLD_KERNEL.format("4.19") in planned(kubernetes="1.33", ignored=[CHECK])
    assert OLD_KERNEL.format("5.4") in planned(kubernetes="1.34", ignored=[])
    # What a plan proposes there without a version is one that kubeadm takes.
    assert OLD_KERNEL.format("5.4") in planned(ignored=[])


def test_cgroup_v1_takes_both_settings_from_1_35_on() -> None:
    """kubelet's own setting alone lets kubeadm stop, the ignored check alone lets kubelet end."""
    both = "set bedplate_kubernetes.kubelet.failCgroupV1: false, and add SystemVerification to "
    problem = refused(kubernetes="1.36", ignored=[])
    assert (problem.rule, problem.fix.startswith(both)) == ("cgroup-v1", True)
    assert refused(kubernetes="1.36", ignored=[CHECK]).rule == "cgroup-v1"
    problem = refused(kubernetes="1.36", kubelet=ALLOWED, ignored=[])
    assert problem.rule == "node-needs"
    assert str(problem.got).endswith(": kubeadm needs cgroup v2")
    told = planned(kubernetes="1.36", kubelet=ALLOWED, ignored=[CHECK])
    assert "kubeadm asks for cgroup v2, and there is cgroup v1" in told


@pytest.mark.parametrize("os", [OLD, "rhel-8"])
def test_kube_proxy_and_swap_are_refused_where_they_do_not_start(os: str) -> None:
    problem = refused(os=os, kubernetes="1.34", kube_proxy=NFTABLES)
    assert (problem.rule, problem.key) == ("node-needs", "bedplate_kubernetes.kube_proxy.mode")
    assert problem.fix.startswith("remove it, or write ")
    problem = refused(os=os, kubernetes="1.34", kubelet=SWAP)
    key = "bedplate_kubernetes.kubelet.memorySwap.swapBehavior"
    assert (problem.rule, problem.key) == ("node-needs", key)


def test_newer_systems_have_what_it_takes() -> None:
    """Of the others, the kernel of Ubuntu 22.04 lets memory-backed volumes be swapped out."""
    for os in ("ubuntu-24.04", "debian-12", "debian-13", "ubuntu-22.04", "rocky-9"):
        found = resolve(
            one("l40s", os=os, kube_proxy=NFTABLES, kubelet=SWAP).site(), load_catalogue(), TODAY
        )
        assert isinstance(found, Plan), (os, found)
        swapped = any("kernel 6.3 or newer" in text for text in found.warnings)
        assert swapped == (os not in {"ubuntu-24.04", "debian-13"}), os
