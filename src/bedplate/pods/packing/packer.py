"""Nodes in their order, and the best of them for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedplate.pods.packing.node import Node
    from bedplate.pods.packing.policy import Choice, Policy
    from bedplate.pods.packing.shares import Request


KINDS = 1000
"""Kinds of requests whose scores are kept; the one that came first goes first."""


class Place(NamedTuple):
    """A node and GPUs of it."""

    node: str
    gpus: tuple[int, ...]


class _Scores:
    """A request's choice on every node; `stale` are those that changed since."""

    __slots__ = ("choices", "stale")

    def __init__(self, nodes: int) -> None:
        self.choices: list[Choice | None] = [None] * nodes
        self.stale: set[int] = set(range(nodes))


class Packer:
    """Chooses one node and its GPUs. Equal scores go to the first node of the order.

    The order is: nodes with fewer GPUs first, then by name. A placement changes one node, so only
    that node is scored again for each kind of request.
    """

    def __init__(self, nodes: Iterable[Node], policy: Policy) -> None:
        self.nodes: list[Node] = sorted(nodes, key=lambda node: (node.gpus, node.name))
        self.places: Mapping[str, int] = {node.name: at for at, node in enumerate(self.nodes)}
        self._policy = policy
        self._scores: dict[Request, _Scores] = {}

    @property
    def policy(self) -> Policy:
        """The policy in use."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        self._scores.clear()

    def node(self, name: str) -> Node | None:
        """Return a node by its name, or None."""
        at = self.places.get(name)
        return None if at is None else self.nodes[at]

    def changed(self, name: str) -> None:
        """Say that something was taken of a node or given back to it."""
        at = self.places[name]
        for scores in self._scores.values():
            scores.stale.add(at)

    def choices(self, request: Request) -> Sequence[Choice | None]:
        """Return every node's choice for a request, in the nodes' order."""
        scores = self._scores.get(request)
        if scores is None:
            if len(self._scores) >= KINDS:
                del self._scores[next(iter(self._scores))]
            scores = self._scores[request] = _Scores(len(self.nodes))
        if scores.stale:
            choose = self._policy.choose
            for at in scores.stale:
                scores.choices[at] = choose(self.nodes[at], request)
            scores.stale.clear()
        return scores.choices

    def choose(self, request: Request, allowed: Iterable[str]) -> Place | None:
        """Return the best place among the allowed nodes, or None where the request fits on none.

        Names of nodes that the packer doesn't have are the caller's mistake (KeyError).
        """
        choices = self.choices(request)
        places = self.places
        best: Choice | None = None
        best_at = -1
        for name in allowed:
            at = places[name]
            choice = choices[at]
            if choice is None:
                continue
            if (
                best is None
                or choice.score > best.score
                or (choice.score == best.score and at < best_at)
            ):
                best, best_at = choice, at
        return None if best is None else Place(self.nodes[best_at].name, best.gpus)
