"""Which node a Workload has, in the forms in which Kueue writes it."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.pods.hub.placed import chosen

LEVELS = ["topology.bedplate.io/rack", "kubernetes.io/hostname"]
ONE = {"domainCount": 1, "podCounts": {"universal": 1}}


def of(values: list[dict[str, Any]], count: int = 1, **more: Any) -> dict[str, Any]:
    """Return a Workload that is admitted with pods in one domain."""
    levels = LEVELS[-len(values) :]
    assigned = {"levels": levels, "slices": [{**ONE, "valuesPerLevel": values, **more}]}
    sets = [{"name": "main", "count": count, "topologyAssignment": assigned}]
    return {"status": {"admission": {"podSetAssignments": sets}}}


@pytest.mark.parametrize(
    ("work", "node"),
    [
        (of([{"universal": "gpu-a"}]), {LEVELS[1]: "gpu-a"}),
        (of([{"individual": {"roots": ["gpu-a"]}}]), {LEVELS[1]: "gpu-a"}),
        (
            of([{"individual": {"prefix": "gpu-", "roots": ["a"], "suffix": ".lab"}}]),
            {LEVELS[1]: "gpu-a.lab"},
        ),
        (of([{"universal": "r1"}, {"universal": "gpu-a"}]), {LEVELS[0]: "r1", LEVELS[1]: "gpu-a"}),
        # Several pods or nodes: which pod goes where is for Kueue to say.
        (of([{"universal": "gpu-a"}], count=2), {}),
        (of([{"individual": {"roots": ["gpu-a", "gpu-b"]}}], domainCount=2), {}),
        # Stopped in between, admitted without a node, and not admitted.
        ({"status": {"admission": None}}, {}),
        ({"status": {"admission": {"podSetAssignments": [{"name": "main", "count": 1}]}}}, {}),
        ({}, {}),
    ],
)
def test_the_node_of_a_workload_of_one_pod(work: dict[str, Any], node: dict[str, str]) -> None:
    assert chosen(work) == node
