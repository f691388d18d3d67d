"""The registry of courses as the stack has it: its pod, its settings, and what the hub sees."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.components.frameworks import hub_objects, hub_registry, hub_settings, hub_volume
from bedplate.lock.courses import Nfs, Storage, Volume
from bedplate.pods.hub import push
from tests.stacks.test_hub import lock, up

if TYPE_CHECKING:
    from bedplate.lock import Lock

IN_NFS = Storage(homes=Volume(nfs=Nfs(server="nfs.example", path="/export/homes")))


def made(of: Lock) -> dict[str, Any]:
    """Return the objects by their kind."""
    found = hub_registry.objects(of, "registry/{}@sha256:0".format, hub_volume.of(of))
    return {one["kind"]: one for one in found}


def containers(made: hub_objects.Object) -> dict[str, Any]:
    spec = made["spec"]["template"]["spec"]
    return {one["name"]: one for one in (*spec["initContainers"], *spec["containers"])}


@pytest.mark.parametrize("storage", [None, IN_NFS])
def test_the_hub_sees_what_the_registry_keeps(storage: Storage | None) -> None:
    of = lock(registry_mib=20480)
    assert of.cluster is not None
    cluster = of.cluster.model_copy(update={"storage": storage})
    of = of.model_copy(update={"cluster": cluster})
    pod = containers(made(of)["Deployment"])
    folder = {"name": "data", "mountPath": "/var/lib/registry", "subPath": ".bedplate-registry"}
    assert folder in pod["distribution"]["volumeMounts"]
    assert pod["owner"]["command"] == ["chown", "1000:1000", "/var/lib/registry"]
    assert folder in pod["owner"]["volumeMounts"]
    state = hub_volume.of(of)
    volumes = made(of)["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"]["claimName"] == state.claim
    hub = hub_registry.seen(hub_objects.hub_deployment("i", "m", state))
    seen = {"name": "state", "mountPath": str(push.DATA), "subPath": ".bedplate-registry"}
    assert seen in containers(hub)["hub"]["volumeMounts"]


def test_its_pod_is_not_privileged_and_nginx_alone_is_reached() -> None:
    found = made(lock(registry_mib=20480))
    for one in containers(found["Deployment"]).values():
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert json.loads(found["ConfigMap"]["data"]["registry.json"])["http"]["addr"] == (
        "127.0.0.1:5000"
    )
    (port,) = found["Service"]["spec"]["ports"]
    assert port["targetPort"] == 8443
    assert (
        "location /v2/intro/ { client_max_body_size 20480m;"
        in found["ConfigMap"]["data"]["nginx.conf"]
    )
    hub, *_ = (one for one in hub_objects.network_policies() if one["metadata"]["name"] == "hub")
    assert {"podSelector": {}} in hub["spec"]["ingress"][0]["from"]


@pytest.mark.parametrize(
    ("zone", "now", "left"),
    [
        ("UTC", "00:00:00", 3 * 3600),
        ("UTC", "03:00:59", 24 * 3600 - 59),
        ("Europe/Paris", "00:00:00", 2 * 3600),
        ("Asia/Kolkata", "21:00:00", 1800),
        ("America/New_York", "09:00:00", 23 * 3600),
    ],
)
def test_it_ends_at_three_in_the_night_of_the_hub(zone: str, now: str, left: int) -> None:
    """By the shell itself, with another clock and another registry."""
    _, _, text = hub_registry.command(zone)
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'registry() {{ :; }}; date() {{ command date -d "1970-01-05 {now} UTC" "$@"; }}; '
            + text.replace("exec timeout", "echo"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[0] == str(left + 60)


def test_without_a_course_that_has_one_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = up(lock(), monkeypatch)
    names = [one.inputs["metadata"]["name"] for one in engine.seen["kubernetes:core/v1:Service"]]
    assert "registry" not in names
    engine, _ = up(lock(registry_mib=20480), monkeypatch)
    made = [one.inputs["metadata"]["name"] for one in engine.seen["kubernetes:apps/v1:Deployment"]]
    assert {"hub", "proxy", "registry"} <= set(made)
    assert hub_settings.settings(lock(registry_mib=20480), str)["courses"]["intro"][
        "registry_mib"
    ] == (20480)
