"""Tasks that come one by one until the cluster is full, without a scheduler."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from bedplate.pods.packing.mix import Mix, typical
from bedplate.pods.packing.packer import Packer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bedplate.pods.packing.node import Node
    from bedplate.pods.packing.policy import Choice, Policy
    from bedplate.pods.packing.shares import Request
    from tests.benchmarks.packing.trace import Task, Trace


class Allocated(NamedTuple):
    """Per cent of the GPUs when the tasks that came asked for 100 % of them, and at the end."""

    at_all: float
    at_end: float


def mix_of(tasks: Sequence[Task]) -> Mix:
    """Return the mix of the typical tasks."""
    return Mix(typical(Counter(task.request for task in tasks)))


def run(
    trace: Trace,
    seed: int,
    policy: Policy,
    *,
    random_ties: bool = False,
    order: Callable[[Node], tuple[float | str, ...]] | None = None,
    learn: Callable[[Mix], Policy] | None = None,
) -> Allocated:
    """Place a seed's arrivals. Ties go to the first node of the order, or to a random one.

    With `learn` the mix is not known before: the policy is made of the tasks that came so far.
    """
    arrivals = trace.arrivals(seed)
    chance = random.Random(seed)  # noqa: S311 - ties, no secret
    packer = Packer(trace.fresh(), policy)
    if order is not None:
        packer.nodes.sort(key=order)
        packer.places = {node.name: at for at, node in enumerate(packer.nodes)}
    asked = taken = 0
    at_all: float | None = None
    seen: Counter[Request] = Counter()
    due = 1
    for count, task in enumerate(arrivals, 1):
        asked += task.milli
        if learn is not None:
            seen[task.request] += 1
            if count == due:
                packer.policy = learn(Mix(typical(seen)))
                due = count + max(1, count // 10)
        taken += _place(packer, task, chance if random_ties else None)
        if at_all is None and asked >= trace.capacity:
            at_all = 100 * taken / trace.capacity
    assert at_all is not None
    return Allocated(at_all, 100 * taken / trace.capacity)


def _place(packer: Packer, task: Task, ties: random.Random | None) -> int:
    request, memory = task.request, task.memory
    nodes = packer.nodes
    best: Choice | None = None
    equal: list[int] = []
    for at, choice in enumerate(packer.choices(request)):
        if choice is None or (best is not None and choice.score < best.score):
            continue
        node = nodes[at]
        if node.cpu < request.cpu or node.memory < memory:
            continue
        if best is None or choice.score > best.score:
            best = choice
            equal = [at]
        else:
            equal.append(at)
    if best is None:
        return 0
    at = ties.choice(equal) if ties else equal[0]
    choice = packer.choices(request)[at]
    assert choice is not None
    nodes[at].take(request, choice.gpus, memory)
    packer.changed(nodes[at].name)
    return task.milli
