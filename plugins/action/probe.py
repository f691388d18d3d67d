"""Read files and run read-only commands on a host: see the module of the same name.

A module brings Ansible's own support along, which each host imports from its source each time: a
quarter of a second, most of what a probe takes. What a probe needs is four short files of ours.
Where the host's Python is not known yet, or does not answer as expected, the module itself is run.
"""

from __future__ import annotations

import base64
import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.bedplate.gpu.plugins.plugin_utils.action import Action
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package
from ansible_collections.bedplate.gpu.plugins.plugin_utils.plain import plain

#: In the order in which they import each other.
PARTS = ("proxy", "host", "os_release", "probe")
#: Makes a package of the parts and writes the answer behind a mark: a shell may say something too.
PROGRAM = """
import base64, json, sys, types
given = json.loads(base64.b64decode("%s").decode())
package = sys.modules["portable"] = types.ModuleType("portable")
package.__path__ = []
for name, text in given["parts"]:
    part = sys.modules["portable." + name] = types.ModuleType("portable." + name)
    part.__package__ = "portable"
    exec(compile(text, name + ".py", "exec"), part.__dict__)
    setattr(package, name, part)
host = sys.modules["portable.host"].Host()
print("%s" + json.dumps(sys.modules["portable.probe"].answers(host, **given["asked"])))
"""
MARK = "bedplate.gpu.probe:"


@cache
def parts() -> list[tuple[str, str]]:
    """Name and source of what runs on the host."""
    folder = Path(package("portable").__file__).parent
    return [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in PARTS]


class ActionModule(Action):
    """Asks the host's Python directly where it is known; otherwise runs the module."""

    def answer(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's answer."""
        named = {"type": "dict", "default": {}}
        _, asked = self.validate_argument_spec({"commands": named, "files": named, "exists": named})
        python = self._python(variables)
        found = self._asked(python, plain(asked)) if python else None
        if found is None:
            found = self._execute_module(module_name="bedplate.gpu.probe", task_vars=variables)
        return found

    def _python(self, variables: dict[str, Any]) -> str:
        """The host's interpreter; empty where Ansible has yet to look for it."""
        if self._task.delegate_to:
            return ""
        wished = str(variables.get("ansible_python_interpreter") or "auto")
        if not wished.startswith("auto"):
            return wished
        facts: dict[str, Any] = variables.get("ansible_facts") or {}
        return str(facts.get("discovered_interpreter_python") or "")

    def _asked(self, python: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        """The host's answer; None where it is none. Raises as a module does for a lost host."""
        given = json.dumps({"parts": parts(), "asked": asked}).encode()
        program = PROGRAM % (base64.b64encode(given).decode(), MARK)
        environment = self._compute_environment_string()
        command = f"{environment} {python} -c {shlex.quote(program)}".strip()
        said = self._low_level_execute_command(command)
        _, mark, answer = said["stdout"].partition(MARK)
        if said["rc"] != 0 or not mark:
            return None
        try:
            found: dict[str, Any] = json.loads(answer.splitlines()[0])
        except (ValueError, IndexError):
            return None
        return found
