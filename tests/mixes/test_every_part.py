"""Every part that shares or queues GPUs, in one cluster: DRA driver, Kueue, JobSet and Volcano."""

from __future__ import annotations

import json
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.components.schedulers.dra import SHARE
from tests.mixes.living import Mix, installed, living
from tests.mixes.pods import IMAGE, Pods, mode
from tests.schedulers.dra import template
from tests.schedulers.nodes import GPU
from tests.schedulers.volcano import JOBS
from tests.site.cluster import allocatable, conditions, node, unwrapped, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

#: `first` is the control plane, and its GPUs are the device plugin's; `second` has them by claim.
CARDS = 4
ADDONS = ("jobset", "kueue", "volcano")
#: Of the team's quota, which is all that the device plugin has.
TEAM = {"members": ["ada"], "gpus": {"pool_gpu": {"guaranteed": CARDS}}}
PARTS = Mix(
    "parts",
    "10.213.20.0/25",
    ["first"],
    ["first"],
    gpu={"model": "t4-16gb", "count": CARDS},
    pools={"pool_claims": ["second"]},
    settings={
        "bedplate_preset": {"name": "training"},
        "bedplate_schedulers": ["volcano-1.14.1"],
        "bedplate_teams": {"lab": TEAM},
    },
)
LAB = ("-n", "lab")


def locked(site: SiteCommands) -> set[str]:
    """Name the parts that the lock has together."""
    lock = yaml.safe_load((site.site / ".bedplate.lock.yml").read_text())
    modes = {pool["sharing"]["mode"] for pool in lock["pools"].values()}
    return {one["name"] for one in lock["cluster"]["addons"]} | (modes & {"dra"})


def listed(site: SiteCommands, kind: str, *where: str) -> list[dict[str, Any]]:
    """Return the objects of a kind, of a namespace."""
    found = site.kubectl("get", kind, *where, "-o", "json")
    items: list[dict[str, Any]] = json.loads(found.stdout)["items"]
    return items


@pytest.mark.prove
def test_every_part_in_one_cluster(tmp_path: Path, figures: dict[str, dict[str, float]]) -> None:
    """Each pair of the four is there at once, and each of the four does its work."""
    with living(PARTS, tmp_path) as site:
        mode(site, pool="pool_claims", mode="dra")
        installed(site)
        assert locked(site) == {"dra", *ADDONS}
        assert len(list(combinations(locked(site), 2))) == 6
        site.select("schedulers")
        site.up("schedulers")
        assert allocatable(site) == {"first": CARDS}
        (found,) = listed(site, "resourceslices")
        assert (found["spec"]["nodeName"], len(found["spec"]["devices"])) == ("second", CARDS)

        pods = Pods(site)
        a_queued_gang(site, pods)
        a_gang_of_volcano(site, pods)
        shares(pods)
        site.playbook("playbooks/verify.yml")
        again = site.pulumi("schedulers", "preview", "--expect-no-changes")
        assert again.returncode == 0
        gone(site, pods)
        figures["every part in one cluster: seconds"] = {
            label: site.phases[label] for label in ("pulumi up cluster", "pulumi up schedulers")
        }


def a_queued_gang(site: SiteCommands, pods: Pods) -> None:
    """A JobSet waits for its team's quota, and Kueue admits it whole; Volcano places its pods."""
    pods.apply(job("before", CARDS))
    running = ("get", "job", "before", *LAB, "-o", "jsonpath={.status.ready}")
    wait_for("the job before runs", lambda: site.kubectl(*running).stdout == "1")
    site.example("gang")

    def waits() -> bool:
        said = [one for one in listed(site, "workloads", *LAB) if "gang" in one["metadata"]["name"]]
        return any(
            (one["type"], one["status"]) == ("QuotaReserved", "False")
            and "insufficient unused quota" in one["message"]
            for workload in said
            for one in workload.get("status", {}).get("conditions", [])
        )

    wait_for("the gang waits for quota", waits)
    of_gang = (*LAB, "-l", "jobset.sigs.k8s.io/jobset-name=gang")
    assert listed(site, "pods", *of_gang) == []
    site.kubectl("delete", "job", "before", *LAB, "--timeout=120s")

    def ended() -> bool:
        phases = [one["status"].get("phase") for one in listed(site, "pods", *of_gang)]
        return phases == ["Succeeded"] * 4

    wait_for("the gang's pods have run", ended)
    for one in listed(site, "pods", *of_gang):
        assert (one["spec"]["schedulerName"], one["spec"]["nodeName"]) == ("volcano", "first")
        said = site.kubectl("logs", *LAB, one["metadata"]["name"]).stdout
        assert said.startswith("GPU 0: Tesla T4 (UUID: GPU-")
        assert said.count("GPU ") == 1
    (workload,) = [
        one for one in listed(site, "workloads", *LAB) if "gang" in one["metadata"]["name"]
    ]
    assert "Admitted" in conditions(workload)
    assert {one["spec"]["minMember"] for one in listed(site, "podgroups", *LAB)} >= {4}


def job(name: str, gpus: int) -> dict[str, Any]:
    """Return a Job of the team, of one pod with so many GPUs, that stays."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sleep", "86400"],
        "resources": {"limits": {GPU: str(gpus)}},
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    metadata = {"name": name, "namespace": "lab"}
    template = {"spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template},
    }


def gang(name: str, pods: int) -> dict[str, Any]:
    """Return a job of Volcano's own, outside the teams, whose pods stay."""
    of = job(name, 1)["spec"]["template"]
    task = {"name": "worker", "replicas": pods, "template": of}
    return {
        "apiVersion": JOBS,
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "volcano", "minAvailable": pods, "tasks": [task]},
    }


def a_gang_of_volcano(site: SiteCommands, pods: Pods) -> None:
    """One pod more than there are GPUs holds none of them; as many as there are run together."""
    more, whole = gang("more", CARDS + 1), gang("whole", CARDS)
    pods.apply(more)
    of = ("-l", "volcano.sh/job-name=more")

    def refused() -> bool:
        groups = [one for one in listed(site, "podgroups") if "more" in one["metadata"]["name"]]
        return any(
            "unschedulable" in one.get("message", "")
            for group in groups
            for one in group.get("status", {}).get("conditions", [])
        )

    wait_for("the larger gang is not scheduled", refused)
    assert [one["spec"].get("nodeName") for one in listed(site, "pods", *of)].count(None) == len(
        listed(site, "pods", *of)
    )
    pods.apply(whole)
    of = ("-l", "volcano.sh/job-name=whole")

    def runs() -> bool:
        phases = [one["status"].get("phase") for one in listed(site, "pods", *of)]
        return phases == ["Running"] * CARDS

    wait_for("the gang runs beside it", runs)
    seen = {
        site.kubectl("exec", one["metadata"]["name"], "--", "nvidia-smi", "-L").stdout
        for one in listed(site, "pods", *of)
    }
    assert len(seen) == CARDS, "each pod has a GPU of its own"
    pods.withdraw(more)


def shares(pods: Pods) -> None:
    """Claims are by the second node, also that of a pod that knows none; Volcano takes none."""
    pods.apply(*(template("default", f"share-{n}gi", f"{n}Gi", SHARE) for n in (2, 8)))
    for size in (2, 8):
        pods.start(f"s{size}", f"share-{size}gi")
    pods.start("plain")  # nvidia.com/gpu: 1, of which the first node has none left
    assert pods.seen("s2") == pods.seen("s8")
    assert pods.seen("plain") != pods.seen("s2")
    assert {pods.get(name)["spec"]["nodeName"] for name in ("s2", "s8", "plain")} == {"second"}
    wrong = pods.made("wrong", "share-2gi")
    wrong["spec"]["schedulerName"] = "volcano"
    assert "pod with resource claims at a scheduler that allocates none" in pods.refused(wrong)


def gone(site: SiteCommands, pods: Pods) -> None:
    """The stack goes, and with it no node and no pod of others."""
    pods.withdraw(gang("whole", CARDS))
    site.kubectl("delete", "jobsets,jobs", "--all", *LAB, "--timeout=120s")
    before = {name: node(site, name)["metadata"]["uid"] for name in PARTS.hosts}
    started = {name: pods.get(name)["status"]["startTime"] for name in ("s2", "s8", "plain")}
    done = site.pulumi("schedulers", "destroy", "--yes", "--skip-preview")
    assert "lab" in unwrapped(site.kubectl("get", "namespaces", "-o", "name").stdout), done.stdout
    assert {name: node(site, name)["metadata"]["uid"] for name in PARTS.hosts} == before
    for name, when in started.items():
        status = pods.get(name)["status"]
        assert (status["phase"], status["startTime"]) == ("Running", when)
        assert status["containerStatuses"][0]["restartCount"] == 0
