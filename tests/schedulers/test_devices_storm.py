"""A random storm of work that asks for GPUs in every way there is: no team has more than its own.

The pools give GPUs by claim and by a device plugin, and who submits has all rights. A watch adds up
at every event of a pod what the teams' bound pods hold. No Job is deleted: its quota is free at
once, its GPUs when its pods have ended (docs/sharing.md).
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest
import requests

from bedplate.components.schedulers import dra
from bedplate.components.schedulers.kueue.groups import GROUP
from bedplate.components.schedulers.kueue.objects import QUEUE, QUEUE_LABEL
from tests.schedulers import ways
from tests.schedulers.api import Api, ApiError, eventually
from tests.schedulers.dra import resource_slice, template
from tests.schedulers.kubelets import SECONDS, KubeletDouble, devices
from tests.schedulers.kueue import RunningKueue, kueue_of
from tests.schedulers.locks import lock_of, nodes_of
from tests.schedulers.nodes import GPU, add_nodes, remove_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.prove

#: GPUs of each team in each pool, and on the one node of each.
QUOTAS, GPUS = {"one": 2, "two": 3}, 8
BY_CLAIM, BY_PLUGIN = "pool_claims", "pool_plugin"
LOCK = lock_of(
    {BY_CLAIM: [{}], BY_PLUGIN: [{}]},
    {name: {"gpus": {BY_CLAIM: (most, 0), BY_PLUGIN: (most, 0)}} for name, most in QUOTAS.items()},
    gpus=GPUS,
    preset={"placement": {"pods": "spread"}},
)
#: What runs until it is deleted.
ENDLESS = {
    "deployments": "apps/v1",
    "replicasets": "apps/v1",
    "statefulsets": "apps/v1",
    "replicationcontrollers": "v1",
}
KINDS = ("jobs", "pods", "groups", *ENDLESS)
PLACES = {
    "container": ways.asking({GPU: "1"}),
    "init": ways.asking({GPU: "1"}, kind="init"),
    "sidecar": ways.asking({GPU: "1"}, kind="sidecar"),
    "init, container": {
        **ways.asking({GPU: "1"}),
        "initContainers": [ways.early({GPU: "2"}, "init")],
    },
    "two": ways.asking({GPU: "2"}),
}
COUNTED = tuple(itertools.product(KINDS, PLACES))
#: What a user tries with a Job and with a pod that may wait or run.
CHANGES: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "jobs": ("batch/v1", ({"spec": {"suspend": False}}, {"spec": {"parallelism": 2}})),
    "pods": ("v1", ({"spec": {"schedulingGates": None}},)),
}
WAY = "tests.bedplate/way"
COUNT = 120


class Held:
    """Watches what the teams' pods hold.

    Attributes:
        most: by team and node, the most GPUs that bound pods without an end had at one event.
        ran: by way, how many pods were bound.
        now: by UID, the pods that are bound now.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self.most: Counter[tuple[str, str]] = Counter()
        self.ran: Counter[str] = Counter()
        self.now: dict[str, tuple[tuple[str, str], int]] = {}

    def __enter__(self) -> Self:
        self._path = self._api.path("pods")
        self._from = self._api.call("GET", self._path)["metadata"]["resourceVersion"]
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the watch to end with the API server."""

    def over(self) -> dict[tuple[str, str], int]:
        """Return who has had more than its quota, and how much. The watch has missed no event."""
        assert self._watching.is_alive()
        return {who: most for who, most in self.most.items() if most > QUOTAS[who[0]]}

    def _watch(self) -> None:
        try:
            for event in self._api.watch(self._path, self._from):
                if event["object"]["metadata"]["namespace"] in QUOTAS:
                    self._seen(event["type"], event["object"])
        except requests.RequestException:  # the API server has ended, with the test or before
            return

    def _seen(self, what: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        uid = meta["uid"]
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if what == "DELETED" or ended or "deletionTimestamp" in meta:
            self.now.pop(uid, None)
        elif "nodeName" in pod["spec"]:
            where = meta["namespace"], pod["spec"]["nodeName"]
            self.ran[meta["annotations"][WAY]] += uid not in self.now
            self.now[uid] = where, devices(pod)
            has = sum(many for of, many in self.now.values() if of == where)
            self.most[where] = max(self.most[where], has)


@pytest.fixture(scope="module")
def kueue() -> Iterator[RunningKueue]:
    """Start a control plane with both pools, and the queues of the teams; nobody clears them."""
    with kueue_of(LOCK) as started:
        api = started.api
        for one in ways.classes():
            api.apply(one)
        nodes = nodes_of(LOCK)
        (by_claim,) = (
            one for one in nodes if one["metadata"]["labels"]["bedplate.io/pool"] == BY_CLAIM
        )
        for offered in ("capacity", "allocatable"):
            by_claim["status"][offered].pop(GPU, None)
        remove_nodes(api)
        add_nodes(api, nodes)
        api.create(resource_slice(by_claim["metadata"]["name"], GPUS))
        for team in QUOTAS:
            api.create(template(team, "whole", None, dra.WHOLE))
            eventually(lambda team=team: ways.in_force(api, team))
        yield started


def counted(team: str, name: str, kind: str, place: str, seconds: float) -> list[dict[str, Any]]:
    """Return work that a queue counts: one object, or the two pods of a group."""
    told = {WAY: f"{kind}: {place}", **({} if kind in ENDLESS else {SECONDS: str(seconds)})}
    plural = "pods" if kind == "groups" else kind
    made = ways.templates(team, dict(PLACES[place]), name, told)
    (one,) = (one for (_, of), one in made.items() if of == plural)
    if kind == "jobs" and place == "container":
        one["spec"]["completions"] = 2
    if kind != "groups":
        return [one]
    other = ways.templates(team, ways.asking({}), f"{name}-b", told)["", "pods"]
    for pod in (one, other):
        # Of a pod without GPUs no queue takes notice unless it names one.
        pod["metadata"]["labels"] = {GROUP: name, QUEUE_LABEL: QUEUE}
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2"
    return [one, other]


def storm(chance: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Yield the objects: each counted way and each refused one, and more of both by chance."""
    refused = {way: spec for way, (spec, _) in ways.REFUSED.items()}
    chosen: list[tuple[str, ...]] = [*COUNTED, *((way,) for way in refused)]
    chosen += chance.choices(chosen, k=COUNT - len(chosen))
    chance.shuffle(chosen)
    for number, what in enumerate(chosen):
        team, name = chance.choice(list(QUOTAS)), f"w{number}"
        seconds = round(chance.uniform(0.5, 3), 2)
        if len(what) == 2:
            yield counted(team, name, *what, seconds)
        else:
            made = ways.templates(team, refused[what[0]], name, {WAY: what[0]})
            made.pop(("jobset.x-k8s.io", "jobsets"))
            yield [chance.choice(list(made.values()))]


def unfinished(api: Api) -> list[str]:
    """Return what is not over. What has no end is deleted once its pod is ready."""
    found = []
    for team in QUOTAS:
        for plural, version in ENDLESS.items():
            for one in api.get(plural, version, team):
                if one["status"].get("readyReplicas"):
                    api.delete(api.path(plural, version, team, one["metadata"]["name"]))
                found.append(one["metadata"]["name"])
        found += [
            one["metadata"]["name"]
            for one in api.get("jobs", "batch/v1", team)
            if "completionTime" not in one["status"]
        ]
        found += [
            one["metadata"]["name"]
            for one in api.get("pods", "v1", team)
            if one["status"]["phase"] != "Succeeded"
        ]
    return found


def test_in_a_storm_of_every_way_no_team_has_more_than_its_quota(
    kueue: RunningKueue, record_property: Any
) -> None:
    chance, api = random.Random(COUNT), kueue.api  # noqa: S311 - a storm, no secret
    objects = list(storm(chance))
    answers: Counter[str] = Counter()
    began = time.monotonic()

    def tried(what: str, method: str, path: str, body: dict[str, Any]) -> None:
        try:
            api.create(body) if method == "POST" else api.patch(path, body)
            answers[f"{what} taken"] += 1
        except ApiError:
            answers[f"{what} refused"] += 1

    with KubeletDouble(api), Held(api) as held:
        for made in objects:
            for one in made:
                tried("made", "POST", "", one)
            plural, team = chance.choice(list(CHANGES)), chance.choice(list(QUOTAS))
            version, changes = CHANGES[plural]
            if found := api.get(plural, version, team):
                name = chance.choice(found)["metadata"]["name"]
                path = api.path(plural, version, team, name)
                tried("changed", "PATCH", path, chance.choice(changes))
        eventually(
            lambda: [] if held.over() else unfinished(api) or list(held.now),
            300,
            pause=0.5,
            until=lambda left: not left,
        )
        took = time.monotonic() - began
    most = {f"{team} on {node}": many for (team, node), many in sorted(held.most.items())}
    record_property(
        "told",
        f"{dict(answers)}; {sum(held.ran.values())} pods had a node, in {took:.0f} s; most GPUs at"
        f" one event: {most} of {QUOTAS} in each pool; load {os.getloadavg()[0]:.0f}",
    )
    assert held.over() == {}, held.ran
    assert set(held.ran) == {f"{kind}: {place}" for kind, place in COUNTED}
    assert len(most) == len(QUOTAS) * 2
    assert answers["made refused"] >= len(ways.REFUSED)
    assert answers["changed refused"] > 0
