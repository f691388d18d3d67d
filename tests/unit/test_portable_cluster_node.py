"""Taking a node out of service and giving it back, on an API that answers from a dictionary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.accounting import store as accounting
from bedplate.components.frameworks import hub_objects
from bedplate.components.preflight import objects as preflight
from bedplate.components.schedulers import jobset, packing_config, volcano
from bedplate.components.schedulers.kueue import objects as kueue_objects
from bedplate.pods.remote import objects as remote
from bedplate.portable import cluster_node
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence


class Api:
    """Answers as kubectl does, for one node."""

    def __init__(self, **spec: Any) -> None:
        self.node: dict[str, Any] | None = {
            "metadata": {"annotations": {}},
            "spec": spec,
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"nvidia.com/gpu": "4"},
            },
        }
        self.drain = Result(0, "node/n drained", "")
        self.pods: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.flags: list[str] = []

    def __call__(self, argv: Sequence[str], *_: object) -> Result:
        words = [word for word in argv[3:] if not word.startswith("--request")]
        verb, rest = words[0], words[1:]
        self.said.append(verb)
        if rest[:1] == ["pods"]:
            return Result(0, json.dumps({"items": self.pods}), "")
        if verb == "get":
            return Result(0, json.dumps(self.node) if self.node else "", "")
        assert self.node is not None
        if verb == "annotate":
            key, equals, value = rest[2].partition("=")
            notes = self.node["metadata"]["annotations"]
            if equals:
                notes[key] = value
            else:
                notes.pop(key.removesuffix("-"))
        elif verb in ("cordon", "uncordon"):
            self.node["spec"]["unschedulable"] = verb == "cordon"
        elif verb == "drain":
            self.flags = rest[1:]
            return self.drain
        return Result(0, "", "")


def found(api: Api) -> cluster_node.Node:
    node = cluster_node.find(Host(runner=api), "n")
    assert node is not None
    return node


def test_a_node_closed_here_is_opened_again() -> None:
    api = Api()
    host = Host(runner=api)
    cluster_node.close(host, "n", found(api), "upgrade")
    assert (found(api).closed, found(api).reason) == (True, "upgrade")
    assert api.said.index("annotate") < api.said.index("cordon"), "a kill would leave it unnamed"
    assert cluster_node.reopen(host, "n", found(api))
    assert (found(api).closed, found(api).reason) == (False, None)
    assert not cluster_node.reopen(host, "n", found(api))


def test_a_node_that_the_user_closed_stays_closed() -> None:
    api = Api(unschedulable=True)
    host = Host(runner=api)
    cluster_node.close(host, "n", found(api), "upgrade")
    assert found(api).reason is None
    assert not cluster_node.reopen(host, "n", found(api))
    assert found(api).closed


def test_a_node_annotated_and_not_yet_cordoned_is_opened_too() -> None:
    api = Api()
    assert api.node is not None
    api.node["metadata"]["annotations"][cluster_node.ANNOTATION] = "upgrade"
    assert cluster_node.reopen(Host(runner=api), "n", found(api))
    assert "uncordon" not in api.said


def test_an_unknown_node_is_none_and_a_silent_api_an_error() -> None:
    api = Api()
    api.node = None
    assert cluster_node.find(Host(runner=api), "n") is None
    silent = Host(runner=lambda *_: Result(1, "", "Unable to connect to the server: EOF"))
    with pytest.raises(cluster_node.UnansweredError, match="Unable to connect"):
        cluster_node.find(silent, "n")


def test_pods_that_stay_are_named_once() -> None:
    api = Api()
    api.drain = Result(
        1,
        "",
        "Warning: ignoring DaemonSet-managed Pods: kube-system/kube-proxy-x\n"
        'error: unable to drain node "n" due to error: cannot delete Pods that declare no'
        " controller (use --force to override): default/bare\n"
        "There are pending nodes to be drained:\n n\n"
        "cannot delete Pods that declare no controller (use --force to override): default/bare\n",
    )
    told = cluster_node.drain(Host(runner=api), "n", 30, [])
    assert told is not None
    assert told.startswith("error: unable to drain")
    assert "default/bare" in told
    assert "DaemonSet" not in told


def pod(namespace: str, owner: str = "ReplicaSet", volume: str = "emptyDir") -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": namespace, "ownerReferences": [{"kind": owner}]},
        "spec": {"volumes": [{"name": "v", volume: {}}]},
    }


@pytest.mark.parametrize(
    ("pods", "evicted"),
    [
        ([], False),
        ([pod("kueue-system"), pod("bedplate-hub"), pod("team", volume="configMap")], True),
        ([pod("kueue-system"), pod("team", owner="DaemonSet")], True),
        ([pod("kueue-system"), pod("team")], False),
    ],
)
def test_what_the_cluster_itself_keeps_in_an_emptydir_holds_no_drain_up(
    pods: list[dict[str, Any]], evicted: bool
) -> None:
    api = Api()
    api.pods = pods
    cluster_node.drain(Host(runner=api), "n", 30, [])
    assert (cluster_node.EMPTYDIR in api.flags) is evicted


def test_the_clusters_own_namespaces_are_those_of_its_stacks() -> None:
    installed = {
        accounting.NAMESPACE,
        hub_objects.NAMESPACE,
        jobset.NAMESPACE,
        kueue_objects.NAMESPACE,
        packing_config.NAMESPACE,
        preflight.NAMESPACE,
        remote.NAMESPACE,
        volcano.NAMESPACE,
    }
    prefix = cluster_node.OWN_PREFIX
    assert {one for one in installed if not one.startswith(prefix)} == cluster_node.OWN


def test_waiting_says_what_lacks() -> None:
    api = Api()
    assert api.node is not None
    host = Host(runner=api)
    pauses: list[float] = []
    assert cluster_node.await_ready(host, "n", {"nvidia.com/gpu": 4}, 30, pauses.append) == []
    assert pauses == []
    api.node["status"]["conditions"][0]["status"] = "Unknown"
    assert cluster_node.await_ready(host, "n", {"nvidia.com/gpu": 8}, 6, pauses.append) == [
        "node n is not Ready",
        "nvidia.com/gpu: 4 instead of 8",
    ]
    assert len(pauses) == 2


def test_a_node_is_not_back_with_the_kubelet_that_it_had() -> None:
    """It stays Ready in the API for a while, by what that one has reported."""
    api = Api()
    assert api.node is not None
    api.node["status"]["nodeInfo"] = {"kubeletVersion": "v1.35.6"}
    lacks = cluster_node.await_ready(Host(runner=api), "n", {}, 0, kubelet="1.36.3")
    assert lacks == ["its kubelet reports 1.35.6 instead of 1.36.3"]
    api.node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.3"}
    assert cluster_node.await_ready(Host(runner=api), "n", {}, 0, kubelet="1.36.3") == []


def test_api_servers_that_are_older_than_a_kubelet_are_named() -> None:
    """By number; one that runs elsewhere, or is newer, keeps no kubelet from it."""
    api = Api()
    assert cluster_node.behind(Host(runner=api), "1.36.3") == []
    servers = {"cp1": "v1.36.10", "cp2": "v1.35.6", "cp3": "v1.36.3"}
    api.pods = [
        {"spec": {"nodeName": name, "containers": [{"image": f"x/kube-apiserver:{tag}"}]}}
        for name, tag in servers.items()
    ]
    assert cluster_node.behind(Host(runner=api), "1.36.3") == ["cp2 1.35.6"]


def test_a_control_plane_is_back_once_its_api_has_answered_for_a_while() -> None:
    """Its API server is started again after the new kubelet has reported."""
    api = Api()
    silent = iter([False, False, True, True, *[False] * 9])
    paused: list[float] = []

    def kubectl(argv: Sequence[str], *_: object) -> Result:
        return Result(1, "", "connection refused") if next(silent) else api(argv)

    host = Host(runner=kubectl)
    assert cluster_node.await_ready(host, "n", {}, 60, paused.append, steady=9) == []
    assert len(paused) == 7


def test_a_node_that_the_cluster_does_not_know_is_not_waited_for() -> None:
    api = Api()
    api.node = None
    lacks = cluster_node.await_ready(Host(runner=api), "n", {}, 60, lambda _: pytest.fail("waited"))
    assert lacks == ["the cluster does not know n"]
