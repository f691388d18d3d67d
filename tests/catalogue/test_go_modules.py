"""The catalogue's Kubernetes ranges against what the modules themselves require.

A component may be compiled against a release one newer than the newest that it is supported on: the
client libraries speak to the release before. It is never older than the oldest one.
"""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.common.versions import minor, number, parts
from tests.catalogue import go_modules

MODULES = go_modules.stored("modules")
KUBEADM = go_modules.stored("kubeadm")
CATALOGUE = load_catalogue()


def newest(requires: dict[str, str]) -> int | None:
    """Return the newest Kubernetes minor among a module's requirements: 36 of 1.36."""
    found = [parts(version)[1] for path, version in requires.items() if path in go_modules.STAGED]
    return max(found, default=None)


def bounds(fact: Any) -> tuple[int | None, int | None]:
    """Return the minor versions of Kubernetes that a fact begins and ends with."""
    ends = (getattr(fact.value, f"kubernetes_{end}", None) for end in ("from", "upto"))
    first, last = (parts(end)[1] if end else None for end in ends)
    return first, last


def compare(rows: dict[str, dict[str, str] | None]) -> tuple[int, list[str]]:
    """Return how many facts were compared, and what is wrong with them."""
    compared, wrong = 0, []
    for identifier, requires in rows.items():
        fact = CATALOGUE.fact(identifier)
        first, last = bounds(fact)
        built = newest(requires or {})
        if built is None or (first is None and last is None):
            continue
        compared += 1
        if first is not None and built < first:
            wrong.append(f"{identifier} is built for 1.{built}, and begins at 1.{first}")
        if last is not None and built > last + 1:
            wrong.append(f"{identifier} is built for 1.{built}, and ends at 1.{last}")
    return compared, wrong


def disagreements(fact: Any, said: dict[str, Any]) -> list[str]:
    """Return where a Kubernetes release differs from what its kubeadm and kubelet say."""
    ours = fact.value
    exact = {
        "etcd": (ours.etcd.image_tag, said["etcd"]),
        "coredns": (ours.coredns.image_tag, f"v{said['coredns']}"),
        "pause": (ours.pause.version, said["pause"]),
        "cgroup v1 off": (ours.cgroup_v1 is not None, said["fail_cgroup_v1"]),
    }
    wrong = [f"{what} {got}, not {want}" for what, (got, want) in exact.items() if got != want]
    return [f"{ours.version}: {text}" for text in wrong]


def test_ranges_hold_what_the_modules_are_built_for(
    figures: dict[str, dict[str, float]],
) -> None:
    """Add-ons, components and runtimes: newest k8s.io requirement inside the range."""
    assert set(MODULES) == set(go_modules.modules()), "run python -m tests.catalogue.refresh_go"
    compared, wrong = compare(MODULES)
    figures["catalogue against go.mod: Kubernetes"] = {
        "rows compared": compared,
        "could not be had": sum(requires is None for requires in MODULES.values()),
    }
    assert compared >= 25
    assert not wrong


def test_etcd_is_of_the_minor_version_that_kubernetes_is_built_for(
    figures: dict[str, dict[str, float]],
) -> None:
    """Each release's etcd against the etcd client in its go.mod."""
    rows = {
        identifier: requires[go_modules.ETCD]
        for identifier, requires in MODULES.items()
        if identifier.startswith("kubernetes/") and requires
    }
    figures["catalogue against go.mod: etcd"] = {"rows compared": len(rows)}
    assert len(rows) >= 5
    for identifier, client in rows.items():
        ours = CATALOGUE.fact(identifier).value.etcd.version
        assert minor(ours) == minor(client.removeprefix("v")), identifier


def test_kubernetes_brings_what_its_kubeadm_says(figures: dict[str, dict[str, float]]) -> None:
    """etcd, CoreDNS, pause and failCgroupV1 against the constants of kubeadm and kubelet."""
    assert set(KUBEADM) == set(CATALOGUE.kubernetes), "run python -m tests.catalogue.refresh_go"
    rows = {version: said for version, said in KUBEADM.items() if said}
    figures["catalogue against kubeadm"] = {"rows compared": len(rows)}
    assert len(rows) >= 5
    wrong = [
        text
        for version, said in rows.items()
        for text in disagreements(CATALOGUE.kubernetes[version], said)
    ]
    assert not wrong


@pytest.mark.parametrize("identifier", ["addon/volcano-1.15.1", "runtime/containerd-2.2.9"])
def test_a_wrong_range_is_seen(identifier: str) -> None:
    """The comparison fails for a module two minor versions beyond its range, and for one before."""
    first, last = bounds(CATALOGUE.fact(identifier))
    assert first is not None
    assert last is not None
    for built in (first - 1, last + 2):
        compared, wrong = compare({identifier: {"k8s.io/api": f"v0.{built}.0"}})
        assert compared == 1
        assert len(wrong) == 1


def test_a_wrong_constant_is_seen() -> None:
    """Every single difference from kubeadm is named."""
    version = "1.35.6"
    for key, other in {"etcd": "3.5.0-0", "coredns": "1.0.0", "pause": "3.9"}.items():
        assert disagreements(CATALOGUE.kubernetes[version], KUBEADM[version] | {key: other})
    assert disagreements(
        CATALOGUE.kubernetes[version], KUBEADM[version] | {"fail_cgroup_v1": False}
    )


@pytest.mark.prove
def test_stored_modules_are_what_can_be_had() -> None:
    """Fetch every go.mod again; a published version never changes."""
    with go_modules.cache() as folder:
        same = 0
        for identifier, (paths, version) in go_modules.modules().items():
            if (known := MODULES[identifier]) is not None:
                assert go_modules.requirements(folder, paths, version) == known
                same += 1
    assert same >= 25


@pytest.mark.prove
def test_stored_constants_are_what_can_be_had() -> None:
    """Fetch the newest release's source again."""
    newest_release = max(KUBEADM, key=number)
    with go_modules.cache() as folder:
        assert go_modules.kubeadm(folder, newest_release) == KUBEADM[newest_release]
