"""What `ansible-doc` prints of each module is what it takes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import basic

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))
#: What a specification may leave out, and what it is then.
LEFT_OUT = {"type": "str", "required": False, "default": None, "elements": None}


class _Asked(Exception):  # noqa: N818 - no error: it ends a module before it does anything
    """The options that a module takes."""


@pytest.fixture(scope="module")
def documented() -> dict[str, dict[str, Any]]:
    """The documentation of all modules, as the real program has it."""
    command = [Path(sys.executable).with_name("ansible-doc"), "--type", "module", "--json"]
    names = [f"bedplate.gpu.{name}" for name in NAMES]
    done = subprocess.run([*command, *names], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name: entry["doc"] for name, entry in json.loads(done.stdout).items()}


def options(found: dict[str, Any], below: str) -> dict[str, Any]:
    """Return what can be compared of options: of documented ones, or of a specification."""
    return {
        name: {
            **{key: one.get(key, default) for key, default in LEFT_OUT.items()},
            "choices": sorted(one.get("choices") or []),
            "below": options(one.get(below) or {}, below),
        }
        for name, one in found.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_what_a_module_takes_is_documented(
    name: str, documented: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = documented[f"bedplate.gpu.{name}"]
    assert found["author"] == ["The Bedplate authors"]
    assert found["attributes"]["check_mode"]["support"] == "full"
    module = importlib.import_module(f"ansible_collections.bedplate.gpu.plugins.modules.{name}")
    if not hasattr(module, "main"):
        return  # its action plugin does all of it, on the control side

    def ask(_: Any, argument_spec: dict[str, Any], **more: Any) -> None:
        raise _Asked(argument_spec, more)

    monkeypatch.setattr(basic.AnsibleModule, "__init__", ask)
    with pytest.raises(_Asked) as asked:
        module.main()
    taken, more = asked.value.args
    assert more["supports_check_mode"] is True
    assert options(taken, "options") == options(found.get("options") or {}, "suboptions")
