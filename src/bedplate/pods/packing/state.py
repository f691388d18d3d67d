"""What the API server says is taken of each GPU, and what was decided and is not yet written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from bedplate.pods.packing.mix import Mix, typical
from bedplate.pods.packing.node import CountError, Node
from bedplate.pods.packing.packer import Packer, Place
from bedplate.pods.packing.policy import Gradient
from bedplate.pods.packing.quantities import milli, of_pod
from bedplate.pods.packing.shares import GPUS, RESOURCE, SCHEDULER, WHOLE, Request, ShareError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LABEL = "bedplate.io/packed-gpus"
"""Label of nodes whose GPUs the extender counts; its value is their number."""

OTHER_OWNERS = ("nvidia.com/gpu",)
"""Resources that a device plugin counts: on one node either it or the extender counts."""

PATIENCE = 60.0
"""Seconds that a decision is kept for a pod whose binding isn't asked for."""

RACE = 10.0
"""Seconds in which the scheduler may have seen a pod leave before this process saw it."""

Stage = Literal["decided", "binding", "written"]


class RefusalError(Exception):
    """What can't be decided now; the scheduler tries again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A pod's part of a node. `stage` is None once the API server has shown the pod there."""

    node: str
    gpus: tuple[int, ...]
    request: Request
    stage: Stage | None = None
    since: float = 0.0


class State:
    """Nodes, pods and decisions. Its callers hold one lock around every call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self.held: dict[str, Held] = {}
        self._unasked: dict[str, float] = {}
        """Decisions whose binding isn't asked for yet, the oldest first: by uid, since when."""
        self.wrong: dict[str, dict[str, str]] = {}
        """Nodes that get no share: by node, what is wrong, by pod's uid or owner."""
        self._uncounted: dict[str, tuple[str, str]] = {}
        self.unpublished: dict[str, int] = {}
        """Nodes whose status doesn't say what their label says, with the right capacity."""
        self.freed = ""
        """A node that got room just after a pod was refused: the scheduler must ask again."""
        self._refused_at = float("-inf")
        self._seen: dict[str, Request] = {}
        self._mix: Counter[Request] = Counter()
        self._due = 0
        self.packer = Packer((), Gradient(Mix({})))

    # What the API server says

    def set_nodes(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Replace all nodes."""
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self.unpublished = {
            name: milli
            for name, node in self._nodes.items()
            if (milli := _unsaid(node)) is not None
        }
        self._rebuild()

    def node_event(self, kind: str, node: Mapping[str, Any]) -> None:
        """Add, change or remove a node."""
        name = node["metadata"]["name"]
        old = self._nodes.pop(name, None)
        if kind != "DELETED":
            self._nodes[name] = node
        self.unpublished.pop(name, None)
        amount = _unsaid(node)
        if amount is not None and kind != "DELETED":
            self.unpublished[name] = amount
        if old is None or kind == "DELETED" or _size(old) != _size(node):
            self._rebuild()

    def set_pods(self, pods: Iterable[Mapping[str, Any]], asked: float) -> None:
        """Replace all pods by a list that was asked for at a moment of the clock.

        Decisions that are younger than the question are kept.
        """
        shown = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, held in list(self.held.items()):
            if uid not in shown and (held.stage is None or held.since < asked):
                self._release(uid)
        for uid in {*self._seen, *self._uncounted} - shown.keys() - self.held.keys():
            self._release(uid)
            self._forget(uid)
        for pod in shown.values():
            self.pod_event("ADDED", pod)

    def pod_event(self, kind: str, pod: Mapping[str, Any]) -> None:
        """Take, keep or give back what a pod holds."""
        uid = pod["metadata"]["uid"]
        ended = kind == "DELETED" or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if ended:
            self._release(uid)
            self._forget(uid)
            return
        node = pod["spec"].get("nodeName")
        try:
            request = of_pod(pod["spec"])
            if request.gpus or pod["spec"].get("schedulerName") == SCHEDULER:
                self._learn(uid, request)
            if not node:
                return
            gpus = _gpus(pod, request)
        except ShareError as error:
            if node:
                self._release(uid)
                self._uncounted[uid] = (node, f"{_name(pod)}: {error}")
                self._spoil(node, uid, f"{_name(pod)}: {error}")
            return
        held = self.held.get(uid)
        if held and (held.node, held.gpus, held.request) == (node, gpus, request):
            self.held[uid] = replace(held, stage=None)
            self._unasked.pop(uid, None)
            return
        self._release(uid)
        self._hold(uid, Held(node, gpus, request), _name(pod))

    # Decisions

    def decide(self, uid: str, request: Request, allowed: list[str]) -> Place | None:
        """Choose a place and keep it for the pod, or return None. Raises RefusalError."""
        held = self.held.get(uid)
        if held and held.stage in {"written", None}:
            raise RefusalError(f"the pod is bound to {held.node} already")
        if held and held.stage == "binding":  # no answer came: the same once more, or nothing
            if held.node not in allowed:
                raise RefusalError(f"the pod's binding to {held.node} has had no answer yet")
            return Place(held.node, held.gpus)
        unknown = [name for name in allowed if name not in self.packer.places]
        if unknown:
            raise RefusalError(f"unknown nodes: {', '.join(unknown[:3])} ({len(unknown)} in all)")
        self._release(uid)
        self._expire()
        self._refresh()
        usable = allowed
        if self.wrong and request.gpus:
            usable = [name for name in allowed if name not in self.wrong]
        place = self.packer.choose(request, usable)
        if place is None:
            self._refused_at = self._clock()
        else:
            self._unasked[uid] = self._clock()
            self._hold(uid, Held(*place, request, "decided", self._unasked[uid]), uid)
        return place

    def reason(self, name: str, request: Request) -> str:
        """Return why a request doesn't fit on a node."""
        wrong = self.wrong.get(name)
        if wrong:
            return f"GPUs can't be counted: {next(iter(wrong.values()))}"
        node = self.packer.node(name)
        if node is None or not node.gpus:
            return "no GPUs that are counted in shares"
        if request.milli == WHOLE:
            return f"fewer than {request.gpus} GPUs free altogether"
        return f"no GPU has {request.milli} of {WHOLE} free"

    def begin(self, uid: str, node: str) -> Held:
        """Return the decision that a binding writes, and mark it so. Raises RefusalError."""
        held = self.held.get(uid)
        if held is None or held.stage not in {"decided", "binding"} or held.node != node:
            raise RefusalError(f"nothing is decided for this pod on {node}")
        self.held[uid] = replace(held, stage="binding")
        self._unasked.pop(uid, None)
        return held

    def end(self, uid: str, *, written: bool) -> None:
        """Keep a decision that was written, give back one that wasn't."""
        held = self.held.get(uid)
        if held is None or held.stage != "binding":
            return  # the watch was faster
        if written:
            self.held[uid] = replace(held, stage="written")
        else:
            self._release(uid)

    # Figures

    def allocated(self) -> tuple[int, int]:
        """Return thousandths of GPUs that are taken, and in all."""
        nodes = self.packer.nodes
        total = WHOLE * sum(node.gpus for node in nodes)
        return total - sum(sum(node.free) for node in nodes), total

    # Within

    def _rebuild(self) -> None:
        """Make all nodes from what the API server says, and take what is held."""
        nodes = []
        self.wrong = {}
        for name, node in self._nodes.items():
            gpus, cpu, other = _size(node)
            nodes.append(Node(name, gpus, cpu))
            if gpus and other:
                self.wrong[name] = {"owner": f"{name} has {other} of a device plugin too"}
        for uid, (name, reason) in self._uncounted.items():
            self._spoil(name, uid, reason)
        self.packer = Packer(nodes, self.packer.policy)
        for uid, held in self.held.items():
            self._take(uid, held, uid)

    def _hold(self, uid: str, held: Held, name: str) -> None:
        self.held[uid] = held
        self._take(uid, held, name)

    def _take(self, uid: str, held: Held, name: str) -> None:
        node = self.packer.node(held.node)
        if node is None:
            return
        try:
            node.take(held.request, held.gpus)
        except CountError as error:
            self._spoil(held.node, uid, f"{name}: {error}")
        else:
            self.packer.changed(held.node)

    def _release(self, uid: str) -> None:
        held = self.held.pop(uid, None)
        self._unasked.pop(uid, None)
        self._uncounted.pop(uid, None)
        spoilt = [name for name, wrong in self.wrong.items() if wrong.pop(uid, None)]
        for name in spoilt:
            if not self.wrong[name]:
                del self.wrong[name]
        if (spoilt or held) and self._clock() - self._refused_at < RACE:
            self.freed = spoilt[0] if spoilt else held.node if held else ""
        if held is None or held.node in spoilt:
            return
        node = self.packer.node(held.node)
        if node is not None:
            node.give(held.request, held.gpus)
            self.packer.changed(held.node)

    def _spoil(self, node: str, uid: str, reason: str) -> None:
        self.wrong.setdefault(node, {})[uid] = reason

    def _expire(self) -> None:
        limit = self._clock() - PATIENCE
        while self._unasked:
            uid, since = next(iter(self._unasked.items()))
            if since >= limit:
                return
            self._release(uid)

    def _learn(self, uid: str, request: Request) -> None:
        if uid not in self._seen:
            self._seen[uid] = request
            self._mix[request] += 1

    def _forget(self, uid: str) -> None:
        request = self._seen.pop(uid, None)
        if request is not None:
            self._mix[request] -= 1
            if not self._mix[request]:
                del self._mix[request]

    def _refresh(self) -> None:
        """Measure by the tasks seen now, whenever their number has changed by a tenth."""
        seen = len(self._seen)
        if abs(seen - self._due) * 10 >= max(1, self._due):
            self._due = seen
            self.packer.policy = Gradient(Mix(typical(self._mix)))


def _name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _gpus(pod: Mapping[str, Any], request: Request) -> tuple[int, ...]:
    """Return the GPUs that the binding wrote. Raises ShareError."""
    if not request.gpus:
        return ()
    text = (pod["metadata"].get("annotations") or {}).get(GPUS, "")
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ShareError(f"{RESOURCE} without GPUs in annotation {GPUS}: {text!r}") from None


def _amount(amounts: Mapping[str, Any] | None, name: str) -> int:
    return milli((amounts or {}).get(name, 0)) // 1000


def _unsaid(node: Mapping[str, Any]) -> int | None:
    """Return the capacity that a node's status should have and doesn't, or None."""
    wanted = WHOLE * _size(node)[0]
    status = node.get("status", {})
    said = {_amount(status.get(part), RESOURCE) for part in ("capacity", "allocatable")}
    return None if said == {wanted} else wanted


def _size(node: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return a node's GPUs by its label, its CPU in thousandths, and another owner's resource."""
    label = (node["metadata"].get("labels") or {}).get(LABEL, "0")
    allocatable = node.get("status", {}).get("allocatable") or {}
    other = next((name for name in OTHER_OWNERS if _amount(allocatable, name)), "")
    return int(label) if label.isdigit() else 0, milli(allocatable.get("cpu", 0)), other
