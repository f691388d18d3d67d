"""Where nodes stand: from the site, from the hardware, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.components.config import StackError
from bedplate.components.schedulers import topology
from bedplate.components.schedulers.topology import CLIQUE, Places, node_labels, object_name, places
from tests.stacks.locks import lock_of


def test_labels_of_a_node_are_its_pool_its_place_and_what_was_discovered() -> None:
    lock = lock_of({"gpu-a": {"rack": "r1", "leaf": "l1", "nvlink_domain": "d1"}, "gpu-b": {}})

    labels = node_labels(lock, {"gpu-a": {"nvidia.com/gpu.product": "Tesla-V100"}})

    assert labels == {
        "gpu-a": {
            "nvidia.com/gpu.product": "Tesla-V100",
            "bedplate.io/pool": "pool_class",
            "bedplate.io/sharing": "time-slicing",
            "topology.bedplate.io/rack": "r1",
            "topology.bedplate.io/leaf": "l1",
            "topology.bedplate.io/nvlink-domain": "d1",
        },
        "gpu-b": {"bedplate.io/pool": "pool_class", "bedplate.io/sharing": "time-slicing"},
    }


def test_a_host_of_slurm_is_no_node() -> None:
    lock = lock_of({"gpu-a": {"rack": "r1"}}, groups=["slurm"])

    assert node_labels(lock, {}) == {}


def test_an_nvlink_domain_that_the_site_leaves_open_is_the_hardware_s() -> None:
    lock = lock_of({"gpu-a": {"rack": "r1"}, "gpu-b": {"rack": "r1"}})

    found = places(lock, {"gpu-a": {CLIQUE: "7.1"}, "gpu-b": {CLIQUE: "7.1"}})

    assert found.levels == ("rack", "nvlink_domain")
    assert found.nodes["gpu-b"] == {"rack": "r1", "nvlink_domain": "7.1"}


@pytest.mark.parametrize(
    ("domains", "cliques", "got"),
    [
        (("d1", "d2"), ("7.1", "7.1"), "fabric 7.1 is in the domains d1 and d2"),
        (("d1", "d1"), ("7.1", "8.1"), "d1 is in the fabrics 7.1 and 8.1"),
    ],
)
def test_domains_that_are_not_the_hardware_s_are_refused(
    domains: tuple[str, str], cliques: tuple[str, str], got: str
) -> None:
    lock = lock_of({"gpu-a": {"nvlink_domain": domains[0]}, "gpu-b": {"nvlink_domain": domains[1]}})

    with pytest.raises(StackError) as refused:
        places(lock, {"gpu-a": {CLIQUE: cliques[0]}, "gpu-b": {CLIQUE: cliques[1]}})

    assert str(refused.value) == (
        "NVLink domains of the site are not those of the hardware — bedplate_topology of gpu-a, "
        f"gpu-b — got {got} / allowed one domain for each fabric that GPU feature discovery "
        "reports — correct nvlink_domain of these hosts, or leave it out: it is then taken from "
        "the hardware"
    )


def test_racks_may_have_leaves_and_leaves_may_have_racks() -> None:
    two_leaves = lock_of({"a": {"rack": "r1", "leaf": "l1"}, "b": {"rack": "r1", "leaf": "l2"}})
    two_racks = lock_of({"a": {"rack": "r1", "leaf": "l1"}, "b": {"rack": "r2", "leaf": "l1"}})

    assert places(two_leaves, {}).levels == ("rack", "leaf")
    assert places(two_racks, {}).levels == ("leaf", "rack")


def test_levels_of_a_pool_are_those_that_all_its_hosts_have() -> None:
    lock = lock_of({"a": {"rack": "r1", "leaf": "l1"}, "b": {"rack": "r1"}})

    assert topology.levels(lock, "pool_class") == ["topology.bedplate.io/rack"]
    assert topology.levels(lock, "pool_other") == []


def test_levels_that_overlap_are_refused() -> None:
    lock = lock_of(
        {
            "a": {"rack": "r1", "leaf": "l1"},
            "b": {"rack": "r1", "leaf": "l2"},
            "c": {"rack": "r2", "leaf": "l1"},
        }
    )

    with pytest.raises(StackError) as refused:
        places(lock, {})

    assert str(refused.value) == (
        "a part of the topology has two parents — bedplate_topology of a, c — got leaf l1 in "
        "rack r1 and r2 / allowed each leaf in one rack — correct rack or leaf of these hosts"
    )


def test_a_domain_in_two_leaves_is_refused() -> None:
    lock = lock_of(
        {"a": {"leaf": "l1", "nvlink_domain": "d"}, "b": {"leaf": "l2", "nvlink_domain": "d"}}
    )

    with pytest.raises(StackError, match="got NVLink domain d in leaf l1 and l2 / allowed each"):
        places(lock, {})


VALUES = st.from_regex(r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?$", fullmatch=True)


@given(one=VALUES, other=VALUES)
def test_two_values_never_share_a_name(one: str, other: str) -> None:
    names = [object_name("leaf", value) for value in (one, other)]

    assert (names[0] == names[1]) == (one == other)
    assert all(name.replace("-", "").isalnum() and name == name.lower() for name in names)


HOST = st.fixed_dictionaries(
    {},
    optional={"rack": st.sampled_from("rs"), "leaf": st.sampled_from("lm")}
    | {"nvlink_domain": st.sampled_from("de")},
)


@settings(deadline=None)  # the first example reads the demo's lock
@given(hosts=st.lists(HOST, min_size=1, max_size=5))
def test_places_are_nested_or_refused(hosts: list[dict[str, Any]]) -> None:
    lock = lock_of({f"n{number}": place for number, place in enumerate(hosts)})
    try:
        found = places(lock, {})
    except StackError:
        return

    for outer, inner in zip(found.levels, found.levels[1:], strict=False):
        for value in {place[inner] for place in found.nodes.values() if inner in place}:
            within = [p.get(outer) for p in found.nodes.values() if p.get(inner) == value]
            assert len(set(within)) == 1


def test_a_node_without_a_place_has_no_labels_of_one() -> None:
    assert Places().labels("gpu-a") == {}
    assert set(topology.LABELS.values()) == {
        f"topology.bedplate.io/{name}" for name in ("rack", "leaf", "nvlink-domain")
    }
