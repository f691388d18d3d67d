"""Shares of GPUs: no GPU gives more than it has, at any moment, whatever comes in what order."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.pods.packing.mix import Mix, typical
from bedplate.pods.packing.node import Node
from bedplate.pods.packing.packer import Packer
from bedplate.pods.packing.policy import STEP, Gradient
from bedplate.pods.packing.shares import GPUS, RESOURCE, WHOLE, Request, request
from bedplate.pods.packing.state import LABEL, Held, RefusalError, State

AMOUNTS = st.one_of(st.integers(1, WHOLE), st.sampled_from([250, 333, 500, 1000, 2000, 3000]))
REQUESTS = st.builds(request, AMOUNTS, st.sampled_from([0, 500, 3152, 8000]))
MIXES = st.dictionaries(REQUESTS, st.integers(1, 50), max_size=12)
FREE = st.lists(st.integers(0, WHOLE), min_size=1, max_size=8)


def plain_fragments(mix: dict[Request, int], cpu: int, free: list[int]) -> int:
    """The paper's definition, task by task: what each can't use of the node."""
    total = 0
    for task, count in mix.items():
        places = [milli for milli in free if milli >= task.milli]
        starts = task.gpus and task.cpu <= cpu and len(places) >= task.gpus
        total += count * (sum(free) - (sum(places) if starts else 0))
    return total


@given(MIXES, st.integers(0, 20_000), FREE)
def test_the_tables_give_the_fragments_of_the_definition(
    kinds: dict[Request, int], cpu: int, free: list[int]
) -> None:
    mix = Mix(kinds)
    assert mix.fragments(mix.step(cpu), free) == (
        plain_fragments(kinds, cpu, free) if kinds else sum(free)
    )


@given(MIXES, REQUESTS, st.integers(8000, 20_000), FREE)
def test_the_choice_has_the_smallest_fragment_of_all(
    kinds: dict[Request, int], asked: Request, cpu: int, free: list[int]
) -> None:
    node = Node("n", len(free), cpu, free=list(free))
    choice = Gradient(Mix(kinds)).choose(node, asked)
    fits = [gpu for gpu, milli in enumerate(free) if milli >= asked.milli]
    if len(fits) < asked.gpus:
        assert choice is None
        return
    assert choice is not None

    mix = Mix(kinds)

    def after(gpus: tuple[int, ...]) -> int:
        left = [m - asked.milli if gpu in gpus else m for gpu, m in enumerate(free)]
        return mix.fragments(mix.step(cpu - asked.cpu), left)

    before = mix.fragments(mix.step(cpu), free)
    assert choice.score == (before - after(choice.gpus)) // (STEP * mix.weight)
    if asked.gpus == 1:
        assert after(choice.gpus) == min(after((gpu,)) for gpu in fits)


@given(
    MIXES,
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30_000)), min_size=1, max_size=5),
    st.lists(st.tuples(REQUESTS, st.booleans()), max_size=40),
)
def test_kept_scores_equal_scores_made_now(
    kinds: dict[Request, int], sizes: list[tuple[int, int]], asked: list[tuple[Request, bool]]
) -> None:
    policy = Gradient(Mix(kinds))
    packer = Packer([Node(f"n{at}", *size) for at, size in enumerate(sizes)], policy)
    placed: list[tuple[str, Request, tuple[int, ...]]] = []
    for wanted, leaves in asked:
        now = [policy.choose(node, wanted) for node in packer.nodes]
        assert list(packer.choices(wanted)) == now
        place = packer.choose(wanted, packer.places)
        scores = [choice.score for choice in now if choice]
        assert (place is None) == (not scores)
        if place is not None:
            first = next(
                at for at, choice in enumerate(now) if choice and choice.score == max(scores)
            )
            assert place.node == packer.nodes[first].name
            packer.nodes[first].take(wanted, place.gpus)
            packer.changed(place.node)
            placed.append((place.node, wanted, place.gpus))
        if leaves and placed:
            name, gone, gpus = placed.pop()
            node = packer.node(name)
            assert node is not None
            node.give(gone, gpus)
            packer.changed(name)


@given(st.dictionaries(REQUESTS, st.integers(1, 99), min_size=1))
def test_typical_tasks_cover_their_part_and_no_kind_more(seen: dict[Request, int]) -> None:
    kinds = typical(seen)
    wanted = 0.95 * sum(seen.values())
    assert sum(kinds.values()) >= wanted
    assert sum(kinds.values()) - min(kinds.values()) < wanted
    assert min(kinds.values()) >= max((c for k, c in seen.items() if k not in kinds), default=0)


class Cluster:
    """An API server's view, as the state gets it: late, repeated, and after a restart whole."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.time = 0.0
        self.nodes = [
            {
                "metadata": {"name": f"n{at}", "labels": {LABEL: str(1 + at % 3)}},
                "status": {"allocatable": {"cpu": "16"}},
            }
            for at in range(4)
        ]
        self.pods: dict[str, dict[str, object]] = {}
        self.late: list[tuple[str, dict[str, object]]] = []
        self.made = 0
        self.restart()

    def restart(self) -> None:
        """A new process: nothing in memory, everything from the API."""
        self.late = []
        self.state = State(lambda: self.time)
        self.state.set_nodes(self.nodes)
        self.state.set_pods(self.pods.values(), self.time)  # type: ignore[arg-type]

    def pod(self) -> dict[str, object]:
        """A new pod, pending."""
        self.made += 1
        amount = self.chance.choice([100, 250, 333, 460, 500, 500, 500, 810, 1000, 2000, 3000])
        asked = {"requests": {RESOURCE: str(amount), "cpu": "500m"}}
        pod: dict[str, object] = {
            "metadata": {"uid": f"u{self.made}", "name": f"p{self.made}", "namespace": "x"},
            "spec": {"containers": [{"resources": asked}]},
            "status": {},
        }
        self.pods[f"u{self.made}"] = pod
        return pod

    def bound(self, pod: dict[str, object], node: str, gpus: tuple[int, ...]) -> None:
        """What the API server writes for a Binding."""
        metadata = {**pod["metadata"], "annotations": {GPUS: ",".join(map(str, gpus))}}  # type: ignore[dict-item]
        new = {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}}  # type: ignore[dict-item]
        self.pods[metadata["uid"]] = new
        self.late.append(("MODIFIED", new))

    def deliver(self, count: int) -> None:
        """Some of the events that are under way."""
        for kind, pod in self.late[:count]:
            self.state.pod_event(kind, pod)
        del self.late[:count]

    def check(self) -> None:
        """No GPU over, counted from the API's pods alone; a GPU's shares sum to at most 1000."""
        taken: dict[tuple[str, str], list[int]] = defaultdict(list)
        for pod in self.pods.values():
            node = pod["spec"].get("nodeName")  # type: ignore[attr-defined]
            if not node:
                continue
            amount = int(pod["spec"]["containers"][0]["resources"]["requests"][RESOURCE])  # type: ignore[index]
            for gpu in pod["metadata"]["annotations"][GPUS].split(","):  # type: ignore[index]
                taken[node, gpu].append(min(amount, WHOLE))
        for place, shares in taken.items():
            assert sum(shares) <= WHOLE, (place, shares)
            if 500 in shares and shares.count(500) == 2:
                assert shares == [500, 500], "two halves are the only ones on their GPU"


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_gpu_is_over_at_any_moment_of_a_storm(chance: random.Random) -> None:
    cluster = Cluster(chance)
    decided: dict[str, tuple[dict[str, object], str, tuple[int, ...]]] = {}
    names = [str(node["metadata"]["name"]) for node in cluster.nodes]
    for _ in range(120):
        cluster.time += chance.choice([0.1, 1.0, 20.0])
        match chance.choice(
            ["come", "come", "bind", "bind", "leave", "deliver", "list", "restart"]
        ):
            case "come":
                pod = cluster.pod()
                uid = str(pod["metadata"]["uid"])  # type: ignore[index]
                cluster.late.append(("ADDED", pod))
                wanted = request(
                    int(pod["spec"]["containers"][0]["resources"]["requests"][RESOURCE]),  # type: ignore[index]
                    500,
                )
                place = cluster.state.decide(uid, wanted, chance.sample(names, 3))
                if place:
                    decided[uid] = (pod, place.node, place.gpus)
            case "bind" if decided:
                uid = chance.choice(sorted(decided))
                pod, node, gpus = decided.pop(uid)
                try:
                    held = cluster.state.begin(uid, node)
                except RefusalError:
                    continue  # it waited too long, or the process was another
                assert held.gpus == gpus
                fails = chance.random() < 0.2
                if not fails:
                    cluster.bound(pod, node, gpus)
                cluster.state.end(uid, written=not fails)
            case "leave":
                on = [uid for uid, pod in cluster.pods.items() if pod["spec"].get("nodeName")]  # type: ignore[attr-defined]
                if on:
                    gone = cluster.pods.pop(chance.choice(on))
                    cluster.late.append(("DELETED", gone))
            case "deliver":
                cluster.deliver(chance.randrange(5))
            case "list":
                cluster.late = []
                cluster.state.set_pods(cluster.pods.values(), cluster.time)  # type: ignore[arg-type]
            case "restart":
                cluster.restart()
                decided = {}
        cluster.check()
    cluster.time += 100
    cluster.deliver(len(cluster.late))
    # More than a node has: nothing is placed, and what was decided and not bound expires.
    cluster.state.decide("last", request(9 * WHOLE), names)
    kept = cluster.state
    kept_free = {n.name: sorted(n.free) for n in kept.packer.nodes}
    kept_wrong = dict(kept.wrong)
    cluster.restart()
    cluster.state.decide("last", request(9 * WHOLE), names)
    assert not kept_wrong
    assert not cluster.state.wrong
    assert kept_free == {n.name: sorted(n.free) for n in cluster.state.packer.nodes}


class NotWalked(dict[str, Held]):
    """Pods that may be asked for by their uid alone."""

    def _walked(self) -> Never:
        raise AssertionError("a decision looked at every pod of the cluster")

    __iter__ = keys = values = items = _walked  # type: ignore[assignment]


def test_a_decision_does_not_look_at_every_pod() -> None:
    cluster = Cluster(random.Random(1))  # noqa: S311 - a storm, no secret
    state = cluster.state
    assert state.decide("forgotten", request(WHOLE), ["n0"]) is not None
    state.held = NotWalked(state.held)
    assert state.decide("late", request(WHOLE), ["n0"]) is None
    cluster.time += 61  # and yet one whose binding is never asked for is found
    assert state.decide("late", request(WHOLE), ["n0"]) is not None
    state.begin("late", "n0")
    cluster.time += 61
    assert state.decide("next", request(WHOLE), ["n0"]) is None


@pytest.mark.parametrize("amount", [-1, 1001, 1500, 2001])
def test_amounts_that_no_gpu_can_give_are_refused(amount: int) -> None:
    with pytest.raises(ValueError, match="neither a share of one GPU"):
        request(amount)


def test_a_pod_that_nobody_counted_shuts_its_node_until_it_is_gone() -> None:
    cluster = Cluster(random.Random(1))  # noqa: S311 - a storm, no secret
    pod = cluster.pod()
    stranger = {**pod, "spec": {**pod["spec"], "nodeName": "n1"}}  # type: ignore[dict-item]
    cluster.state.pod_event("ADDED", stranger)
    cluster.state.set_nodes(cluster.nodes)  # a rebuild doesn't forget it
    half = request(500)
    assert cluster.state.decide("a", half, ["n1"]) is None
    assert cluster.state.reason("n1", half) == (
        "GPUs can't be counted: x/p1: bedplate.io/gpu-milli without GPUs in annotation "
        "bedplate.io/gpus: ''"
    )
    cluster.state.pod_event("DELETED", stranger)
    assert cluster.state.decide("a", half, ["n1"]) is not None


def test_a_node_with_two_owners_gets_nothing() -> None:
    cluster = Cluster(random.Random(1))  # noqa: S311 - a storm, no secret
    node = {**cluster.nodes[0], "status": {"allocatable": {"cpu": "16", "nvidia.com/gpu": "1"}}}
    cluster.state.node_event("MODIFIED", node)
    assert cluster.state.decide("a", request(500), ["n0"]) is None
    assert cluster.state.reason("n0", request(500)) == (
        "GPUs can't be counted: n0 has nvidia.com/gpu of a device plugin too"
    )


def test_unknown_nodes_are_refused() -> None:
    cluster = Cluster(random.Random(1))  # noqa: S311 - a storm, no secret
    with pytest.raises(RefusalError, match=r"unknown nodes: elsewhere \(1 in all\)"):
        cluster.state.decide("a", request(500), ["n0", "elsewhere"])


def test_counts_are_no_smaller_than_the_mix() -> None:
    seen = Counter({Request(1, 1, 500): 3})
    assert Mix(typical(seen)).weight == 3
