"""The demo: three bare hosts to a GPU pod that runs, every command shown before it runs."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.substrate.commands import ROOT, STACKS, SiteCommands
from tests.substrate.hosts import containers, description
from tests.substrate.tools import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

SITE = ROOT / "inventories" / "demo"
LONG = "--timeout=180s"
DESCRIPTION = ROOT / "tests" / "substrate" / "hosts" / "demo.yml"
# Hosts that are set up meanwhile come first.
BUILD = ["nice", sys.executable, "tests/substrate/tools/build.py", "--demo"]
# What a run of the demo is made of, beside its hosts; the fingerprint of the last one that passed.
PARTS = ("ansible.cfg", "examples", "inventories/demo", "playbooks", "plugins", "requirements.lock")
PARTS += ("roles", "src", "stacks", "tests/substrate")
NOT_PARTS = {"__pycache__", ".bedplate", "Pulumi.demo.yaml"}
PASSED = SITE / ".bedplate" / "demo"


def summary(demo: SiteCommands, seconds: float) -> str:
    """Tell what came out: nodes, GPUs per node, a pod's own view, and where to go from here."""
    columns = "NAME:.metadata.name,VERSION:.status.nodeInfo.kubeletVersion"
    columns += r",GPUS:.status.allocatable.nvidia\.com/gpu"
    columns += r",MODEL:.metadata.labels.nvidia\.com/gpu\.product"
    nodes = demo.kubectl("get", "nodes", "-o", f"custom-columns={columns}")
    nodes.check_returncode()
    pod = demo.pulumi("frameworks", "stack", "output", "logs", quiet=True).stdout
    hub = outputs(demo)
    return f"""
Nodes and their GPUs:
{nodes.stdout}
`nvidia-smi -L` from inside a pod that asked for one GPU (simulated silicon):
{pod}
Hub:        {hub["hub"]} — sign up with the code {hub["hub_codes"]["seminar"]} of the course
            seminar, which has room for two; teacher ada signs in with {hub["hub_passwords"]["ada"]}
Report:     {demo.show(demo.site)}/.bedplate/report.html
By hand:    {by_hand(demo)}
kubectl:    kubectl get nodes
Pulumi:     pulumi stack output -C stacks/cluster --stack {demo.stack_name}
Take down:  make clean
Took {seconds / 60:.1f} minutes.
"""


def outputs(demo: SiteCommands) -> dict[str, Any]:
    """Return the hub's address, the courses' codes and the first passwords."""
    shown = ["--json", "--show-secrets"]
    found = demo.pulumi("frameworks", "stack", "output", *shown, quiet=True).stdout
    content: dict[str, Any] = json.loads(found[found.index("{") :])
    return content


def wait_in_queue(demo: SiteCommands) -> None:
    """Submit two jobs to a team whose quota has room for the first alone, and see both end."""
    mine = ["--namespace", "lab"]
    demo.kubectl("delete", "jobs", "--all", *mine)
    first, second = "job/first", "job/second"
    waits = "--for=jsonpath={.spec.suspend}=true"
    demo.example("queue", "--selector=turn=first")
    demo.run("queue", ["kubectl", "wait", first, *mine, "--for=jsonpath={.status.ready}=4", LONG])
    demo.example("queue", "--selector=turn=second")
    demo.run("queue", ["kubectl", "wait", second, *mine, waits, LONG])
    demo.run("queue", ["kubectl", "get", "workloads", *mine])
    demo.run("queue", ["kubectl", "wait", second, *mine, "--for=condition=complete", LONG])
    demo.run("queue", ["kubectl", "logs", *mine, second])


def by_hand(demo: SiteCommands) -> str:
    """Return the command that gives a shell what the demo's commands find on their PATH."""
    site = demo.show(demo.site)
    return f'eval "$(.venv/bin/python -m tests.substrate.pulumi --print-env {site})"'


@contextmanager
def builds() -> Iterator[Callable[..., None]]:
    """Build in the background what is missing; yields what waits for all tools but those named.

    The wait raises `subprocess.CalledProcessError` where a build failed. Leaving ends the builds
    that are under way; finished ones are kept.
    """
    process = subprocess.Popen(BUILD, cwd=ROOT, stdin=subprocess.DEVNULL)
    wanted = [one for one in build.tools().values() if not (one.on_request or one.tests_only)]

    def wait(*but: str) -> None:
        def missing() -> bool:
            return any(one.name not in but and not build.built(one) for one in wanted)

        started = time.monotonic()
        while missing():
            status = process.poll()
            if status is not None and missing():
                raise subprocess.CalledProcessError(status or 1, BUILD)
            time.sleep(0.5)
        if (waited := time.monotonic() - started) >= 1:
            print(f"waited {waited:.0f} s for builds", flush=True)

    try:
        yield wait
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()


def fingerprint(root: Path, hosts: Iterable[str]) -> str:
    """Return a digest of the hosts' ids and of all files of `PARTS` below *root*."""
    found = hashlib.sha256("\n".join(sorted(hosts)).encode())
    for part in PARTS:
        below = root / part
        for path in sorted(below.rglob("*")) if below.is_dir() else [below]:
            name = path.relative_to(root)
            if path.is_file() and not NOT_PARTS & set(name.parts):
                found.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def still_passes(demo: SiteCommands, made_of: str) -> bool:
    """Tell whether the last run passed on the same hosts and files, and its checks still pass."""
    if not PASSED.exists() or PASSED.read_text(encoding="utf-8") != made_of:
        return False
    print("Hosts and files are those of the last run, which passed: its checks run, no more.")
    print("To run everything again: .venv/bin/python -m tests.substrate.demo --all", flush=True)
    if demo.playbook("playbooks/verify.yml", check=False).returncode:
        print("A check failed: everything runs again.", flush=True)
        return False
    return True


def main(arguments: list[str]) -> int:
    """Run the demo's commands in order; the first that fails ends it with its own exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--all", action="store_true", help="also where nothing changed since")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    demo = SiteCommands(SITE, DESCRIPTION)
    print(f"To repeat a command by hand, first run this once in the shell:\n  {by_hand(demo)}")
    try:
        with builds() as wait_for_all_but:
            demo.substrate("bases", "--demo")
            wait_for_all_but("pulumi", "pulumi-kubernetes")
            demo.substrate("up", "--demo")
            demo.plan()
            demo.resolve()
            hosts = containers.states(description.load(DESCRIPTION).network).values()
            made_of = fingerprint(ROOT, (host.id for host in hosts))
            again = not options.all and still_passes(demo, made_of)
            if not again:
                PASSED.unlink(missing_ok=True)
                demo.playbook()
            wait_for_all_but()
        if not again:
            for stack in STACKS:
                demo.select(stack)
                demo.up(stack)
            wait_in_queue(demo)
            demo.playbook("playbooks/verify.yml")
        demo.run("report", ["bedplate", "report", demo.show(SITE)])
        told = summary(demo, time.monotonic() - started)
    except subprocess.CalledProcessError as error:
        print(
            f"\nThe demo stopped: `{shlex.join(error.cmd)}` ended with status {error.returncode};"
            " its own message stands above. Running `make demo` again goes on from what is there;"
            " `make clean` takes everything down.",
            file=sys.stderr,
        )
        return error.returncode
    PASSED.write_text(made_of, encoding="utf-8")
    print(told)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
