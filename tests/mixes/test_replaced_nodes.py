"""Nodes die and are replaced, control planes become more and fewer, while a client writes."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.portable import encryption_keys
from tests.mixes.clients import begin, ended
from tests.mixes.living import Mix, installed, living
from tests.mixes.test_restore import PAUSE
from tests.site.cluster import gpus_in_pod, node, node_names, ready, wait_for
from tests.site.hosts import on_host
from tests.substrate.hosts.containers import remove
from tests.substrate.hosts.description import load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

CONTROL_PLANES = ["cp1", "cp2", "cp3"]
MIX = Mix(
    "heirs-mix",
    "10.213.28.0/25",
    CONTROL_PLANES,
    ["w1"],
)
GROWS = Mix(
    "grows-mix",
    "10.213.29.0/25",
    ["cp1"],
    ["w1"],
    bare=["cp2", "cp3"],
    shared=True,
)
SMALL = Mix(
    "adopt-mix",
    "10.213.30.0/25",
    ["cp1"],
    ["w1"],
)
SECONDS = 240.0
#: An own answer of etcd, from one that is not the replaced one.
MEMBERS = """
id=$(crictl ps --name='^etcd$' --state Running --quiet)
cd /etc/kubernetes/pki/etcd
crictl exec --sync "$id" etcdctl --endpoints=https://127.0.0.1:2379 --cacert=$PWD/ca.crt \\
  --cert=$PWD/healthcheck-client.crt --key=$PWD/healthcheck-client.key member list -w json
"""


def dies(site: SiteCommands, name: str) -> None:
    """Let a host be gone from one moment to the next."""
    description = load(site.description)
    container = description.container(description.host(name))
    subprocess.run(["podman", "kill", container], check=True, capture_output=True)


def replaced(site: SiteCommands, name: str) -> None:
    """Have another machine with its name and address in the cluster, as the page says."""
    description = load(site.description)
    remove(description.container(description.host(name)))
    site.substrate("up")
    site.playbook("playbooks/site.yml", "--limit", name)
    site.pulumi("cluster", "refresh", "--yes", "--skip-preview")
    site.up("cluster")
    wait_for(f"node {name}", lambda: ready(site, name), SECONDS)


def voters(site: SiteCommands, host: str) -> list[str]:
    """Return etcd's members that vote, by name."""
    listed = json.loads(on_host(site, host, MEMBERS))["members"]
    return sorted(one["name"] for one in listed if not one.get("isLearner"))


def api_again(site: SiteCommands) -> float:
    """Return the seconds until the API answers at the endpoint."""
    began = time.monotonic()
    ask = ["--request-timeout=2s", "get", "--raw", "/readyz"]
    wait_for("an answer", lambda: site.kubectl(*ask).stdout == "ok", SECONDS, 0.2)
    return time.monotonic() - began


def identities(site: SiteCommands) -> dict[tuple[str, ...], str]:
    """Return what has to stay as it is: nodes, pods and what makes them, by UID."""
    kinds = "nodes,pods,daemonsets,configmaps,serviceaccounts"
    listed = json.loads(site.kubectl("get", kinds, "--all-namespaces", "-o", "json").stdout)
    found = ((one["kind"], one["metadata"]) for one in listed["items"])
    return {(kind, of.get("namespace", ""), of["name"]): of["uid"] for kind, of in found}


@pytest.mark.prove
def test_each_control_plane_dies_and_another_machine_takes_its_name(
    tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    with living(MIX, tmp_path) as site:
        installed(site)
        for name in MIX.hosts:
            wait_for(f"node {name}", lambda name=name: ready(site, name), SECONDS)
        site.kubectl("create", "namespace", "written")
        site.kubectl("create", "deployment", "web", f"--image={PAUSE}", "--replicas=2")
        rolled = ["rollout", "status", "deployment/web", f"--timeout={SECONDS:.0f}s"]
        assert site.kubectl(*rolled).returncode == 0
        begin(site, "w1", MIX)
        away, taken = {}, {}
        for name in CONTROL_PLANES:
            assert site.kubectl("rollout", "restart", "deployment/web").returncode == 0
            dies(site, name)
            away[name] = api_again(site)
            assert site.kubectl(*rolled).returncode == 0
            # etcd is asked elsewhere.
            other = next(one for one in CONTROL_PLANES if one != name)
            assert voters(site, other) == CONTROL_PLANES
            before = node(site, name)["metadata"]["uid"]
            began = time.monotonic()
            replaced(site, name)
            taken[name] = time.monotonic() - began
            assert voters(site, other) == CONTROL_PLANES
            assert node(site, name)["metadata"]["uid"] != before
        said = ended(site, "w1")["api"]
        there = site.kubectl("-n", "written", "get", "configmaps", "-o", "name").stdout
        print(away, taken, len(said["done"]), said["gap"], said["failed"])
        figures["a control plane dies: seconds until the API answers"] = away
        figures["the longest gap between two writes, seconds"] = {"of all": said["gap"]}
        figures["a control plane is replaced, seconds"] = taken
        assert set(said["done"]) <= set(re.findall(r"w-\d+", there))
        assert said["gap"] < 10
        site.pulumi("cluster", "preview", "--expect-no-changes")
        site.playbook("playbooks/verify.yml")


@pytest.mark.prove
def test_a_lost_state_is_made_again_and_a_dead_worker_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with living(SMALL, tmp_path) as site:
        installed(site)
        for name in SMALL.hosts:
            wait_for(f"node {name}", lambda name=name: ready(site, name), SECONDS)
        known = identities(site)
        site.pulumi("cluster", "stack", "rm", "--force", "--yes")
        site.select("cluster")
        monkeypatch.setenv("PULUMI_K8S_ENABLE_PATCH_FORCE", "true")
        site.up("cluster")
        monkeypatch.delenv("PULUMI_K8S_ENABLE_PATCH_FORCE")
        assert identities(site) == known
        site.pulumi("cluster", "preview", "--expect-no-changes")

        dies(site, "w1")
        replaced(site, "w1")
        site.pulumi("cluster", "preview", "--expect-no-changes")
        assert node_names(site) == {*SMALL.hosts}
        assert gpus_in_pod(site, "w1", tmp_path).startswith("GPU 0: Tesla T4 (UUID: GPU-")
        site.playbook("playbooks/verify.yml")


def pods(site: SiteCommands) -> list[str]:
    """Return the names of the pods of a Deployment, which tell one from another."""
    return sorted(site.kubectl("get", "pods", "-o", "name").stdout.split())


def controls(site: SiteCommands, *names: str) -> None:
    """Have these control planes in the site, and plan it."""
    path = site.site / "hosts.yml"
    inventory = yaml.safe_load(path.read_text())
    planes = dict.fromkeys(names)
    inventory["all"]["children"]["control_plane"]["hosts"] = planes
    path.write_text(yaml.safe_dump(inventory))
    site.plan()
    site.resolve()


def secrets_keys(site: SiteCommands) -> set[str]:
    """Return the name of the key of Secrets; all control planes have the same one alone."""
    shown = f"cat {encryption_keys.FILE}"
    (text,) = {on_host(site, name, shown) for name in CONTROL_PLANES}
    return {key.name.partition("-")[0] for key in encryption_keys.read(text)}


@pytest.mark.prove
def test_one_control_plane_becomes_three_and_then_another_one(
    tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    with living(GROWS, tmp_path) as site:
        installed(site)
        for name in ("cp1", "w1"):
            wait_for(f"node {name}", lambda name=name: ready(site, name), SECONDS)
        site.kubectl("create", "namespace", "written")
        site.kubectl("create", "deployment", "web", f"--image={PAUSE}", "--replicas=2")
        rolled = ["rollout", "status", "deployment/web", f"--timeout={SECONDS:.0f}s"]
        assert site.kubectl(*rolled).returncode == 0
        before = pods(site)
        begin(site, "w1", GROWS)

        controls(site, *CONTROL_PLANES)
        began = time.monotonic()
        site.playbook("playbooks/site.yml")
        site.up("cluster")
        for name in GROWS.hosts:
            wait_for(f"node {name}", lambda name=name: ready(site, name), SECONDS)
        grown = time.monotonic() - began
        assert voters(site, "cp1") == CONTROL_PLANES
        site.pulumi("cluster", "preview", "--expect-no-changes")
        site.playbook("playbooks/verify.yml")

        # Those that came have the key of Secrets, and another one comes while the client writes.
        began = time.monotonic()
        site.playbook("playbooks/encryption.yml", "-e", "encryption_rotate=true")
        figures["another key for Secrets on three control planes, seconds"] = {
            "as a play": time.monotonic() - began
        }
        assert secrets_keys(site) == {"key2"}
        site.playbook("playbooks/verify.yml")

        # The first by name goes too, and the cluster stays.
        controls(site, "cp2")
        began = time.monotonic()
        site.up("cluster")
        figures["control planes become more and fewer, seconds"] = {
            "one to three": grown,
            "three to one": time.monotonic() - began,
        }
        assert voters(site, "cp2") == ["cp2"]
        assert node_names(site) == {"cp2", "w1"}
        said = ended(site, "w1")["api"]
        there = site.kubectl("-n", "written", "get", "configmaps", "-o", "name").stdout
        print(len(said["done"]), said["gap"], said["failed"])
        figures["the longest gap between two writes, seconds"] = {"more and fewer": said["gap"]}
        assert set(said["done"]) <= set(re.findall(r"w-\d+", there))
        assert pods(site) == before
        site.pulumi("cluster", "preview", "--expect-no-changes")
        gone = "cp1,cp3"
        site.playbook("playbooks/reset.yml", "--limit", gone, "-e", f"reset_hosts={gone}")
        site.playbook("playbooks/site.yml", "--limit", "control_plane")
        site.playbook("playbooks/verify.yml")
        site.pulumi("cluster", "refresh", "--yes", "--skip-preview")
        site.pulumi("cluster", "preview", "--expect-no-changes")
