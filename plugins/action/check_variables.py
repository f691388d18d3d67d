"""Refuse variables of roles that would be ignored or are wrong: see the module's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.bedplate.gpu.plugins.plugin_utils.action import ControlSideAction
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package

CHECK = package("site.role_variables")


class ActionModule(ControlSideAction):
    """Compares the variables of all hosts of the play with the roles' own files."""

    def answer(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return what is wrong with the hosts' variables, by the plan's own function."""
        hosts = variables["hostvars"]
        named = (hosts.raw_get(name) for name in variables["ansible_play_hosts_all"])
        found = CHECK.problems_of(named, Path(variables["inventory_dir"]))
        return {"failed": True, "msg": "\n".join(map(str, found))} if found else {}
