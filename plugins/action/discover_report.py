"""Proposals and differences of all hosts that were read: see the module's text."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.bedplate.gpu.plugins.plugin_utils.action import ControlSideAction
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package
from ansible_collections.bedplate.gpu.plugins.plugin_utils.plain import plain

store = package("evidence.discovery.store")
judge = package("evidence.discovery.judge").judge
BedplateError = package("common.errors").BedplateError
problem = package("portable.message").problem


class ActionModule(ControlSideAction):
    """Judges what hosts answered, and writes below the site."""

    def answer(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Judge all answers, and write what was found."""
        # Ansible's own containers and tagged values mean nothing to JSON and Pydantic.
        wish = plain(self._task.args)
        sources = [Path(s) for s in plain(variables.get("ansible_inventory_sources", []))]
        if not any(Path(wish["site"]) in (source, source.parent) for source in sources):
            refusal = problem(
                "the inventory is no site",
                ", ".join(str(source) for source in sources),
                "an inventory without a folder of its own",
                "a directory, below which the proposals are written",
                "Name the site's directory with -i.",
            )
            return {"failed": True, "msg": refusal}
        site, here = Path(wish["site"]), Path.cwd()
        shown = str(site.relative_to(here) if site.is_relative_to(here) else site)
        when = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        try:
            found = judge(site, wish["answers"], wish["inventory"], when, shown)
        except BedplateError as error:
            return {"failed": True, "msg": str(error)}
        if not self._task.check_mode:
            store.write_hosts(site, found.records)
            store.forget(site, wish["inventory"])
            store.write_pools(site, found.proposals, shown)
        return {
            "lines": list(found.lines),
            "problems": found.problems,
            "proposals": {
                one.name: {"hosts": list(one.hosts), "variables": dict(one.variables)}
                for one in found.proposals
            },
        }
