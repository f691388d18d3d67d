"""Programs that are mounted into pods: Python alone runs them, in an image without packages."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bedplate.components.schedulers import accounting_objects, packing_objects

if TYPE_CHECKING:
    from pathlib import Path

OBJECTS = {
    "accounting": accounting_objects.objects("", {"pool-a": {"nvidia.com/gpu": 1.0}}),
    "packing": packing_objects.objects("", ""),
}
ARCHIVES = {"accounting": accounting_objects.archive, "packing": packing_objects.archive}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_program_needs_python_alone(name: str, tmp_path: Path) -> None:
    (config,) = [one for one in OBJECTS[name] if one["kind"] == "ConfigMap"]
    program = tmp_path / f"{name}.pyz"
    program.write_bytes(base64.b64decode(config["binaryData"][program.name]))
    assert program.read_bytes() == ARCHIVES[name](), "equal sources, equal bytes"
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-I", "-S", "-B", str(program), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("usage: python -m bedplate.")
    assert done.stdout.split()[3].split(".")[-1] == name
