"""Facts of a host, and what the site says that it is: see the module of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.bedplate.gpu.plugins.plugin_utils.action import Action
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package
from ansible_collections.bedplate.gpu.plugins.plugin_utils.plain import plain

DECLARED = package("evidence.discovery.compare").DECLARED
Positions = package("site.positions").Positions

#: Its endpoint tells the site's own cluster from another one.
WISHES = (*DECLARED, "bedplate_kubernetes")


class ActionModule(Action):
    """Runs the module; whatever goes wrong with the host is its answer."""

    def answer(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return facts or a reason, and the host's wishes."""
        result = {"groups": list(variables.get("group_names", ())), **self._wishes(variables)}
        try:
            answer = self._execute_module(module_args={}, task_vars=variables)
        except AnsibleConnectionFailure as error:
            answer = {"msg": str(error)}
        if "facts" in answer:
            result["facts"] = answer["facts"]
        else:
            said = [answer.get(key) for key in ("msg", "module_stderr", "module_stdout")]
            result["reason"] = ": ".join(str(part).strip() for part in said if part)
        return result

    def _wishes(self, variables: dict[str, Any]) -> dict[str, Any]:
        positions = Positions(_shown(Path(variables.get("inventory_dir") or ".")))
        wishes, unreadable, places = {}, {}, []
        for key in WISHES:
            if key not in variables:
                continue
            raw = variables[key]
            try:
                wishes[key] = plain(self._templar.template(raw))
            except AnsibleError as error:
                unreadable[key] = " ".join(str(error).split())
            places += [
                [list(path), place.file, place.line, place.column]
                for path, place in positions.below(raw, (key,))
            ]
        return {"wishes": wishes, "unreadable": unreadable, "places": places}


def _shown(site: Path) -> Path:
    """Return the site's folder as a person names it who stands above it."""
    here = Path.cwd()
    return site.relative_to(here) if site.is_relative_to(here) else site
