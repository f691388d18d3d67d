"""What the end-to-end tests read of the cluster, and of what Ansible printed."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.site.hosts import on_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import IO

    from tests.substrate.commands import SiteCommands

#: The nodes of the site that have GPUs, and how many of them they offer: whole, or ten shares each.
GPUS = {"gpu-a": 8, "gpu-b": 40, "gpu-c": 40}
CARDS = {"gpu-a": 8, "gpu-b": 4, "gpu-c": 4}


def node(site: SiteCommands, name: str) -> dict[str, Any]:
    """Return a Node object."""
    return json.loads(site.kubectl("get", "node", name, "-o", "json").stdout)


def limits_of_controllers(site: SiteCommands) -> list[str]:
    """Return the flags of kube-controller-manager that limit its requests."""
    named = ("-n", "kube-system", "-l", "component=kube-controller-manager", "-o", "json")
    (pod,) = json.loads(site.kubectl("get", "pods", *named).stdout)["items"]
    command = pod["spec"]["containers"][0]["command"]
    return sorted(one for one in command if one.startswith("--kube-api-"))


def starts(site: SiteCommands, name: str) -> int:
    """Count how often a host's kubelet was started, but for systemd's own restarts.

    A join starts it once; a second join resets the host first, which stops it. A kubelet that ends
    before it has its certificate asks for one again, so the requests say nothing of joins.
    """
    journal = on_host(site, name, "journalctl -b -u kubelet -o cat --no-pager")
    print(
        name,
        *re.findall("^.*(?:kubelet.service|ertificate|failed to run).*$", journal, re.MULTILINE)[
            :40
        ],
        sep="\n",
    )
    return journal.count("Starting kubelet.service") - journal.count("Scheduled restart job")


def joining(site: SiteCommands) -> list[str]:
    """Name the hosts on which a join has begun and not ended."""
    look = "cat /var/lib/bedplate/membership.json 2>/dev/null || echo '{}'"
    return [n for n in GPUS if json.loads(on_host(site, n, look)).get("phase") == "begun"]


def node_names(site: SiteCommands) -> set[str]:
    """Name the nodes that the cluster has."""
    return set(site.kubectl("get", "nodes", "-o", "name").stdout.replace("node/", "").split())


def allocatable(site: SiteCommands) -> dict[str, int]:
    """Return each node's allocatable GPUs, nodes without any left out."""
    listed = json.loads(site.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    counts = {
        n["metadata"]["name"]: n["status"]["allocatable"].get("nvidia.com/gpu") for n in listed
    }
    return {name: int(count) for name, count in counts.items() if count is not None}


def ready(site: SiteCommands, name: str) -> bool:
    """Tell whether a node says of itself that it is ready."""
    conditions = {c["type"]: c["status"] for c in node(site, name)["status"]["conditions"]}
    return conditions["Ready"] == "True"


def await_boot(site: SiteCommands, name: str, boot: str, gpus: Mapping[str, int]) -> None:
    """Wait until a rebooted node is ready, and the cluster has its GPUs again."""

    def back() -> bool:
        # Until the new kubelet has spoken, the node's last word is of the boot before.
        told = node(site, name)["status"]["nodeInfo"]["bootID"]
        return told == boot and ready(site, name) and allocatable(site) == gpus

    wait_for(f"{name} Ready with its GPUs", back)


def gpu_pod(site: SiteCommands, pod: str, name: str, command: list[str], folder: Path) -> None:
    """Create a pod on a node that asks for one GPU."""
    container = {
        "name": "look",
        "image": "docker.io/library/debian:12-slim",
        "command": command,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": name},
            "containers": [container],
        },
    }
    path = folder / f"{pod}.yml"
    path.write_text(yaml.safe_dump(manifest))
    site.kubectl("create", "-f", str(path))


def gpus_in_pod(site: SiteCommands, name: str, folder: Path) -> str:
    """Return what nvidia-smi lists in a pod on a node that asked for one GPU."""
    pod = f"look-{name}"
    gpu_pod(site, pod, name, ["nvidia-smi", "-L"], folder)
    phase = ["get", "pod", pod, "-o", "jsonpath={.status.phase}"]
    wait_for(f"pod {pod} ends", lambda: site.kubectl(*phase).stdout in {"Succeeded", "Failed"})
    said = site.kubectl("logs", pod).stdout
    site.kubectl("delete", "pod", pod, "--now")
    return said


@contextmanager
def guest(site: SiteCommands, name: str) -> Iterator[IO[str]]:
    """Run a pod on a node and yield the watch over it: the reasons of its conditions, line by line.

    The watch ends with the block, and what it wrote can then be read to its end.
    """
    spec = {"nodeName": name, "terminationGracePeriodSeconds": 1}
    site.kubectl(
        "run", "guest", "--image=docker.io/library/debian:12-slim", "--restart=Never",
        f"--overrides={json.dumps({'spec': spec})}", "--command", "--", "sleep", "3600",
    )  # fmt: skip
    phase = ["get", "pod", "guest", "-o", "jsonpath={.status.phase}"]
    wait_for(f"a pod on {name} runs", lambda: site.kubectl(*phase).stdout == "Running")
    reasons = r'jsonpath={.status.conditions[*].reason}{"\n"}'
    watch = subprocess.Popen(
        ["kubectl", "get", "pod", "guest", "--watch", "-o", reasons],
        env=site.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    watch.stdout.readline()  # it is there
    try:
        yield watch.stdout
    finally:
        watch.terminate()
        watch.wait()


def wait_for(
    what: str, condition: Callable[[], object], seconds: float = 180, pause: float = 2
) -> None:
    """Wait until a condition holds; fail with *what* when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)


def unwrapped(output: str) -> str:
    """Join the lines into which Ansible's YAML output folds long messages."""
    return " ".join(output.split())


def set_aside(site: SiteCommands, name: str) -> str:
    """Return why a host was set aside, as its evidence tells it."""
    evidence = json.loads((site.site / ".bedplate/evidence" / f"host-{name}.json").read_text())
    (check,) = evidence["checks"]
    assert check["result"] == "fail"
    return unwrapped(check["reason"])


def changed_tasks(output: str, host: str) -> list[str]:
    """Return the tasks, handlers aside, that changed a host, or in check mode would have."""
    found, task = [], ""
    for line in output.splitlines():
        if header := re.match(r"(TASK|RUNNING HANDLER) \[(.+)\] \*+$", line):
            task = header[2] if header[1] == "TASK" else ""
        elif task and re.match(rf"changed: \[{host}[] ]", line):
            found.append(task)
    return found


def recap(output: str) -> dict[str, dict[str, int]]:
    """Read the play recap: for each host, its counters."""
    lines = output.split("PLAY RECAP")[-1].splitlines()[1:]
    rows = [line.split(":", 1) for line in lines if "changed=" in line]
    return {
        name.strip(): {k: int(v) for k, v in (pair.split("=") for pair in counters.split())}
        for name, counters in rows
    }


def round_trips(output: str) -> Counter[str]:
    """Count the commands that went to each address, as Ansible's `-vvv` shows them."""
    return Counter(re.findall(r"^<(\S+)> SSH: EXEC", output, re.MULTILINE))


def conditions(workload: dict[str, Any]) -> dict[str, str]:
    """Return when each condition of a workload became true; times sort as text."""
    found = workload["status"]["conditions"]
    return {one["type"]: one["lastTransitionTime"] for one in found if one["status"] == "True"}
