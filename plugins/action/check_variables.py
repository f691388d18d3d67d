"""Refuse inventory variables that the lock owns or that no role knows: see the module's text."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.bedplate.gpu.plugins.plugin_utils.action import ControlSideAction
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package

if TYPE_CHECKING:
    from collections.abc import Iterable

problem = package("portable.message").problem

COLLECTION = Path(__file__).parents[2]
#: The wish that decides what a role's lock-owned variables say.
#: What gives roles their variables.
OWNERS = ("from_lock.yml", "access.yml")
WISHES = {
    "host_proxy": "bedplate_proxy",
    "host_baseline": "bedplate_host",
    "package_mirror": "bedplate_sources",
    "nvidia_driver": "bedplate_driver or bedplate_pins.nvidia_driver",
    "nvidia_fabric": "none: it follows from the GPUs and the driver",
    "cuda_toolkit": "bedplate_cuda",
    "rdma": "bedplate_rdma",
    "rdma_device_plugin": "bedplate_rdma.pods",
    "hpc_tools": "bedplate_hpc_tools",
    "gpu_sharing": "bedplate_sharing",
    "gpu_passthrough": "bedplate_passthrough or bedplate_guests",
    "slurm": "none: it follows from the group slurm",
    "container_runtime": "bedplate_container_runtime or bedplate_sources or "
    "bedplate_pins.containerd",
    "nvidia_container_toolkit": "bedplate_pins.nvidia_container_toolkit",
    "kubernetes_node": "bedplate_kubernetes or bedplate_container_runtime",
    "control_plane_endpoint": "bedplate_kubernetes.endpoint and endpoint_by",
    "nvidia_device_plugin": "bedplate_sharing or bedplate_pins.nvidia_device_plugin",
    "nvidia_dra_driver": "bedplate_sharing",
    "gpu_verify": "none: it follows from the other settings",
}


def known_variables(roles: Path) -> dict[str, set[str]]:
    """The variables that each role's argument_specs name."""
    known: dict[str, set[str]] = {}
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        names = {name for entry in specs.values() for name in entry.get("options", {})}
        known[path.parents[1].name] = names
    return known


def owned_variables(folder: Path) -> set[str]:
    """The variables that the lock and the wishes set: ``folder`` is that of the playbooks' own."""
    texts = [(folder / name).read_text(encoding="utf-8") for name in OWNERS]
    names = [name for text in texts for name in yaml.safe_load(text)]
    return {name for name in names if not name.startswith("__")}


def problems(
    used: Iterable[str], known: dict[str, set[str]], owned: set[str], host: str
) -> list[str]:
    """One message per variable of ``used`` that shadows the lock or that no role knows."""
    every = sorted(set().union(*known.values()))
    # The longest prefix is the role: nvidia_driver is not the role of nvidia_device_plugin_x.
    prefixes = sorted(known, key=len, reverse=True)
    found = []
    for name in sorted(used):
        role = next((p for p in prefixes if name.startswith(f"{p}_")), None)
        if role is None:
            continue
        where = f"inventory variable {name}, host {host}"
        if name in owned:
            fix = f"Remove it; the setting for it is {WISHES[role]}, then run 'bedplate plan'."
            what = "a variable is set that the lock decides"
            found.append(problem(what, where, "set in the inventory", "only the lock", fix))
        elif name not in every:
            near = difflib.get_close_matches(name, every, n=1)
            mine = ", ".join(sorted(known[role] - owned))
            fix = f"Did you mean {near[0]}?" if near else "Remove it."
            found.append(problem("no role knows this variable", where, name, mine, fix))
    return found


class ActionModule(ControlSideAction):
    """Compares names; reads the collection's own files."""

    def answer(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Compare the host's variables with the roles' specs and the lock's names."""
        found = problems(
            (name for name in variables if isinstance(name, str)),
            known_variables(COLLECTION / "roles"),
            owned_variables(COLLECTION / "playbooks" / "vars"),
            variables["inventory_hostname"],
        )
        return {"failed": True, "msg": "\n".join(found)} if found else {}
