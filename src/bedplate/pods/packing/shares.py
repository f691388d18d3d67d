"""What a pod asks for: thousandths of one GPU, or whole GPUs."""

from __future__ import annotations

from dataclasses import dataclass

RESOURCE = "bedplate.io/gpu-milli"
"""Extended resource of pods and nodes: thousandths of a GPU, whole GPUs in thousands."""

GPUS = "bedplate.io/gpus"
"""Annotation that the binding writes on the pod: indexes of its GPUs, separated by commas."""

SCHEDULER = "bedplate-packing"
"""Name of the scheduler; its pods without GPUs are tasks of the mix too."""

WHOLE = 1000
"""Thousandths of a GPU."""


class ShareError(ValueError):
    """An amount that no GPU can give."""


@dataclass(frozen=True, slots=True)
class Request:
    """One task: CPU in thousandths of a core, and on each of `gpus` GPUs `milli` thousandths.

    Without GPUs (`gpus` 0) it takes part in the mix of tasks and is never placed.
    """

    cpu: int
    gpus: int
    milli: int


def request(amount: int, cpu: int = 0) -> Request:
    """Return what an amount of RESOURCE asks for.

    Up to 1000 it is a share of one GPU, over it whole GPUs. Raises ShareError for the rest.
    """
    if amount < 0 or (amount > WHOLE and amount % WHOLE):
        raise ShareError(
            f"{RESOURCE}: {amount} is neither a share of one GPU (1 to {WHOLE}) nor whole GPUs "
            f"(a multiple of {WHOLE})"
        )
    if amount == 0:
        return Request(cpu, 0, 0)
    return Request(cpu, max(1, amount // WHOLE), min(amount, WHOLE))
