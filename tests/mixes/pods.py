"""Pods that look at their GPUs, and a site whose pool changes how they are shared."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from tests.schedulers.dra import pod
from tests.schedulers.nodes import GPU
from tests.site.cluster import unwrapped, wait_for
from tests.site.hosts import on_host
from tests.substrate.commands import ROOT

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

IMAGE = "docker.io/library/debian:12-slim"
VARIABLES = ROOT / "playbooks/vars/from_lock.yml"
#: Prints the cards and MIG devices that the container sees, by UUID and by device node, and stays.
LOOK = (
    "nvidia-smi -L; ls /dev/nvidia-caps 2> /dev/null;"
    " ls /dev | grep -E '^nvidia[0-9]+$'; exec sleep 86400"
)
LAST = re.compile("nvidia[0-9]+")
PENDING = "cannot allocate all claims"


class Pods:
    """Pods that look at their GPUs, in the namespace default."""

    def __init__(self, site: SiteCommands) -> None:
        self.site = site

    def _kubectl(self, items: tuple[dict[str, Any], ...], *words: str) -> tuple[bool, str]:
        path = self.site.site / ".bedplate" / "tests.yml"
        path.write_text(yaml.safe_dump_all(items))
        done = self.site.kubectl(*words, "-f", str(path))
        return done.returncode == 0, unwrapped(done.stdout)

    def apply(self, *items: dict[str, Any]) -> None:
        """Apply objects."""
        done, said = self._kubectl(items, "apply")
        assert done, said

    def refused(self, item: dict[str, Any]) -> str:
        """Return why the cluster would not take an object; nothing where it would."""
        done, said = self._kubectl((item,), "create", "--dry-run=server")
        return "" if done else said

    def withdraw(self, *items: dict[str, Any]) -> None:
        """Delete objects that were applied."""
        done, said = self._kubectl(items, "delete")
        assert done, said

    def start(self, name: str, *templates: str, resource: str = GPU, **env: str) -> None:
        """Make a pod that has a claim by each template; without one it asks for a GPU or share."""
        self.apply(self.made(name, *templates, resource=resource, **env))

    def made(self, name: str, *templates: str, resource: str = GPU, **env: str) -> dict[str, Any]:
        """Return the Pod object that `start` makes."""
        made = pod("default", name, *templates, **env)
        container = made["spec"]["containers"][0]
        container |= {"image": IMAGE, "command": ["sh", "-c", LOOK]}
        if not templates:
            container["resources"] = {"limits": {resource: "1"}}
        made["spec"]["terminationGracePeriodSeconds"] = 1
        return made

    def get(self, name: str) -> dict[str, Any]:
        """Return a Pod object."""
        found: dict[str, Any] = json.loads(
            self.site.kubectl("get", "pod", name, "-o", "json").stdout
        )
        return found

    def running(self, *names: str) -> None:
        """Wait until pods run."""
        for name in names:
            wait_for(
                f"pod {name} runs",
                lambda name=name: self.get(name)["status"].get("phase") == "Running",
            )

    def seen(self, name: str) -> list[str]:
        """Return what a pod sees: UUIDs of its GPU and of what it has of it, then device nodes, of
        MIG's capabilities first."""
        self.running(name)
        said: list[str] = []

        def told() -> bool:
            said[:] = self.site.kubectl("logs", name).stdout.splitlines()
            return any(LAST.fullmatch(line) for line in said)

        wait_for(f"pod {name} says what it sees", told)
        parts = [line.partition("(UUID: ")[2].rstrip(")") for line in said if "UUID" in line]
        return [*parts, *(line for line in said if line.startswith("nvidia"))]

    def kept(self, host: str, *names: str) -> None:
        """Have systemd on the pods' host read its units again: they see what they saw before."""
        look = (
            "--",
            "sh",
            "-c",
            "nvidia-smi -L; head -qc0 /dev/nvidia* 2>&1 | grep Operation; true",
        )
        before = {name: self.site.kubectl("exec", name, *look).stdout for name in names}
        assert all("UUID" in seen and "not permitted" not in seen for seen in before.values())
        for reload in ("daemon-reload", "daemon-reexec"):
            on_host(self.site, host, f"systemctl {reload}")
            assert {n: self.site.kubectl("exec", n, *look).stdout for n in names} == before, reload

    def waits(self, name: str, why: str = PENDING) -> str:
        """Return why the scheduler does not place a pod: for the reason that is expected."""
        reason: list[str] = []

        def told() -> bool:
            of = self.get(name)["status"].get("conditions", [])
            reason[:] = [one.get("message", "") for one in of if one["type"] == "PodScheduled"]
            return bool(reason) and why in reason[0]

        wait_for(f"pod {name} waits with a reason", told)
        return reason[0]

    def delete(self, *names: str) -> None:
        """Delete pods and wait until they are gone."""
        self.site.kubectl("delete", "pod", *names, "--timeout=120s")


def play(site: SiteCommands, role: str, entry: str) -> str:
    """Run an entry point of a role on the host and return what was printed."""
    task = {
        "name": "Run it",
        "ansible.builtin.include_role": {"name": f"bedplate.gpu.{role}", "tasks_from": entry},
    }
    book = {"name": "Run it", "hosts": "gpu_pools", "gather_facts": False, "tasks": [task]}
    path = site.site / ".bedplate" / "play.yml"
    path.write_text(yaml.safe_dump([book | {"vars_files": [str(VARIABLES)]}]))
    return unwrapped(site.playbook(str(path), check=False).stdout)


def mode(site: SiteCommands, *parts: dict[str, Any], pool: str = "pool_gpu", **sharing: Any) -> str:
    """Have a pool share its GPUs another way, all alike or some so, and decide the site again.

    Return what the plan says that this means for hosts.
    """
    settings = site.site / f"group_vars/{pool}.yml"
    content = yaml.safe_load(settings.read_text())
    settings.write_text(yaml.safe_dump(content | {"bedplate_sharing": list(parts) or sharing}))
    if not (site.site / ".bedplate.lock.yml").exists():
        return ""
    changes = unwrapped(site.plan("--diff").stdout)
    site.plan()
    site.resolve()
    return changes
