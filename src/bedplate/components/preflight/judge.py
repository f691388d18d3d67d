"""From what the job measured to evidence: pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bedplate.common.reading_yaml import first_of
from bedplate.portable.evidence import checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.lock import Lock

AGAIN = "Run bedplate preflight again; see kubectl describe for what kept the pods from starting."
#: What GPUs would be measured with, by the catalogue's name of the tool.
OF_GPUS = {
    "nvbandwidth": "copies between GPUs and memory by nvbandwidth",
    "nccl-tests": "collective operations by NCCL tests",
}


class Measured(BaseModel):
    """What the job leaves: its nodes, and for a rank microseconds and megabytes per second."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    nodes: Annotated[list[str], Field(min_length=1)]
    pairs: list[tuple[int, float, float]]
    rdma: list[str]

    @model_validator(mode="after")
    def _ranks(self) -> Measured:
        if not all(0 < rank < 2 * len(self.nodes) for rank, _, _ in self.pairs):
            raise ValueError("a rank of no node")
        return self


def read(text: str) -> Measured | str:
    """Return what a pod's last words say was measured, or why they are no figures."""
    try:
        return Measured.model_validate_json(text)
    except ValidationError as error:
        return f"the job left no figures: {first_of(error)}"


def failed(nodes: Sequence[str], reason: str) -> list[dict[str, Any]]:
    """Return the one check of a job that did not come to its end."""
    what = "processes of MPI send messages to each other on every node"
    return [checks.failed("preflight.mpi", what, reason, AGAIN, sorted(nodes))]


def checked(
    lock: Lock, wished: Sequence[str], measured: Measured, *, simulated: bool
) -> list[dict[str, Any]]:
    """Return the checks: each pair that was measured, and what was not, with the reason.

    A number is no verdict: what a network should give, no fact of the catalogue says.
    """
    nodes = measured.nodes
    what = "processes of MPI ran on every node"
    found = [checks.check("preflight.nodes", what, sorted(wished), sorted(nodes), AGAIN)]
    for rank, micro, rate in measured.pairs:
        same = rank < 2
        other = nodes[0] if same else nodes[rank // 2]
        where = f"inside a pod on {other}" if same else f"from {nodes[0]} to {other}"
        name = f"preflight.mpi.{'memory' if same else other}"
        what = f"Open MPI {where}: {rate:g} MB/s, {micro:g} microseconds"
        told = {"megabytes_per_second": rate, "microseconds": micro}
        found.append(checks.check(name, what, told, told, ""))
    found.append(_rdma(measured.rdma))
    for tool, what in OF_GPUS.items():
        found.append(checks.skipped(f"preflight.{tool}", what, _why(lock, tool, simulated)))
    return found


def _rdma(devices: Sequence[str]) -> dict[str, Any]:
    what = "messages by RDMA"
    reason = f"the first node has {', '.join(devices)}; the job's pods get no RDMA device"
    return checks.skipped("preflight.rdma", what, reason if devices else "no RDMA device was found")


def _why(lock: Lock, tool: str, simulated: bool) -> str:
    if simulated:
        return "the GPUs are simulated: there is no silicon to measure"
    left = (pool.hpc_tools.left.get(tool) for pool in lock.pools.values() if pool.hpc_tools)
    return next(filter(None, left), "the preflight's image does not have it")
