"""What remote GPUs are in a cluster, as documents: a claim's pod, rights, names."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.common.errors import BedplateError
from bedplate.components.frameworks import remote_install as install
from bedplate.components.schedulers.kueue.objects import TEAM_LABEL
from bedplate.pods.remote import objects
from bedplate.pods.remote.claims import LIVE, Claim
from bedplate.pods.remote.controller import _crowded as crowded
from bedplate.pods.remote.controller import _last_words as last_words
from tests.schedulers.locks import lock_of

if TYPE_CHECKING:
    from pathlib import Path

TEAMS: dict[str, Any] = {
    "vision": {"gpus": {"pool_a": (1, 0)}, "members": ["alice"], "namespaces": ["vision", "lab"]},
    "audio": {"gpus": {"pool_a": (1, 0)}},
}
ENGINE = "engine.invalid/stand-in@sha256:" + "0" * 64


def lock(teams: dict[str, Any] = TEAMS) -> Any:
    return lock_of({"pool_a": [{}]}, teams)


def settings(teams: dict[str, Any] = TEAMS) -> objects.Settings:
    return install.settings(lock(teams).teams, ["nvidia.com/gpu"], ENGINE, "python")


def claim(**more: Any) -> Claim:
    spec = {"resource": "nvidia.com/gpu.shared", "count": 1, "limitSeconds": 600}
    meta = {
        "uid": "1-2",
        "name": "train",
        "namespace": "lab",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"bedplate.io/user": "alice"},
    }
    return Claim.of({"metadata": meta, "spec": spec, **more})


def test_the_engines_pod_holds_the_share_and_nothing_else() -> None:
    """It has no token and no right to grow; its engine is a sidecar, so the front ends the pod."""
    made = objects.job(claim(), settings())
    assert (made["metadata"]["namespace"], made["spec"]["suspend"]) == ("remote-vision", True)
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert made["spec"]["activeDeadlineSeconds"] == 600 + objects.GRACE
    pod = made["spec"]["template"]["spec"]
    (engine,) = pod["initContainers"]
    (front,) = pod["containers"]
    assert engine["resources"] == {"limits": {"nvidia.com/gpu.shared": "1"}}
    assert (engine["image"], engine["restartPolicy"]) == (ENGINE, "Always")
    assert "volumeMounts" not in engine, "the engine has no key"
    assert pod["automountServiceAccountToken"] is False
    assert front["securityContext"]["runAsNonRoot"]
    assert not front["securityContext"]["allowPrivilegeEscalation"]


def test_an_opening_after_a_stop_has_what_is_left() -> None:
    made = objects.job(claim(status={"usedSeconds": 500.4}), settings())
    assert made["spec"]["activeDeadlineSeconds"] == 100 + objects.GRACE


def test_only_the_claims_namespace_and_the_controller_reach_a_front() -> None:
    made = objects.policy(claim(), settings())["spec"]
    (rule,) = made["ingress"]
    names = [one["namespaceSelector"]["matchLabels"] for one in rule["from"]]
    key = "kubernetes.io/metadata.name"
    assert names == [{key: "lab"}, {key: "bedplate-remote"}]
    assert rule["ports"] == [{"protocol": "TCP", "port": objects.PORT}]
    assert (made["egress"], made["policyTypes"]) == ([], ["Ingress", "Egress"])


def test_members_have_no_rights_where_engines_run() -> None:
    found = install.objects(lock().teams, settings())
    spaces = [one["metadata"] for one in found if one["kind"] == "Namespace"]
    assert {one["name"]: one["labels"].get(TEAM_LABEL) for one in spaces} == {
        "bedplate-remote": None,
        "remote-audio": "audio",
        "remote-vision": "vision",
    }
    bound = {
        (one["metadata"]["namespace"], subject["name"])
        for one in found
        if one["kind"] == "RoleBinding"
        for subject in one["subjects"]
    }
    controller = "bedplate-remote"
    assert bound == {
        ("remote-audio", controller),
        ("remote-vision", controller),
        ("audio", controller),
        ("vision", controller),
        ("lab", controller),
        ("vision", "alice"),
        ("lab", "alice"),
    }
    everywhere = [one for one in found if one["kind"] == "ClusterRoleBinding"]
    assert [one["roleRef"]["name"] for one in everywhere] == ["bedplate-remote-claims"]
    (role,) = [
        one
        for one in found
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "bedplate-remote-claims")
    ]
    assert {resource for rule in role["rules"] for resource in rule["resources"]} == {
        "remoteclaims",
        "remoteclaims/status",
    }


@pytest.mark.parametrize(
    ("teams", "message"),
    [
        (
            {**TEAMS, "night": {"gpus": {}, "namespaces": ["remote-vision"]}},
            (
                "namespace remote-vision is that of a team's remote GPUs — "
                "bedplate_teams.night.namespaces — got remote-vision / allowed a name that is not "
                "remote-TEAM, so that no member enters an engine's pod — rename it"
            ),
        ),
        (
            {"t" * 60: {"gpus": {}}},
            (
                f"the name of team {'t' * 60} is too long for the namespace of its remote GPUs — "
                f"bedplate_teams.{'t' * 60} — got 67 characters in remote-{'t' * 60} / "
                "allowed 63 — give it a shorter name"
            ),
        ),
    ],
)
def test_names_that_would_let_members_in_are_refused(teams: Any, message: str) -> None:
    with pytest.raises(BedplateError) as refused:
        settings(teams)
    assert str(refused.value) == message


def test_a_namespace_asks_for_so_many_at_once() -> None:
    """The oldest and those that run come first; ended ones don't count."""

    def numbered(number: int, **more: Any) -> Claim:
        meta = {
            "uid": f"{number:03}",
            "name": f"c{number}",
            "namespace": "lab",
            "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
        }
        return claim(metadata=meta, **more)

    ended = [numbered(number, status={"phase": "Ended"}) for number in range(30)]
    waiting = [numbered(number) for number in range(30, 32 + LIVE)]
    assert crowded([*ended, *waiting], {}) == {"080", "081"}
    assert crowded([*ended, *waiting], {"081": {}}) == {"079", "080"}


def test_the_front_needs_python_alone(tmp_path: Path) -> None:
    program = tmp_path / "remote.pyz"
    program.write_bytes(install.archive())
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-I", "-S", "-B", str(program), "front", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--engine-port" in done.stdout


def test_a_front_that_failed_says_why_in_the_claim() -> None:
    def pod(**front: Any) -> dict[str, Any]:
        return {"status": {"containerStatuses": [{"name": "front", **front}]}}

    ended = {"terminated": {"exitCode": 1, "message": "closed\nthe engine is reached\n"}}
    assert last_words([pod(ready=False, lastState=ended)]) == "the engine is reached"
    assert last_words([pod(ready=True, lastState=ended)]) == ""
    assert last_words([pod(ready=False), {"status": {}}]) == ""
