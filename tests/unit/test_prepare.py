"""Which Python the checkout's environment is made with: the first that is new enough."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tests" / "substrate" / "prepare"
PYENV = "pyenv/versions/{}/bin/python3"
#: A pyenv shim of a version that is installed and not chosen ends so.
NOT_CHOSEN = "#!/bin/sh\nexit 127\n"


def interpreter(version: tuple[int, int]) -> str:
    """Return a program that takes itself for a Python of that version."""
    pretence = f"import sys, ensurepip; sys.version_info = {version}; exec(sys.argv[1])"
    return f'#!/bin/sh\nexec {sys.executable} -c "{pretence}" "$2"\n'


def find_python(machine: Path, programs: dict[str, str]) -> str:
    """Return the Python that is found on a machine; empty if none is."""
    for name, text in programs.items():
        path = machine / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    found = re.search(r"^find_python\(\) \{.*?^\}", SCRIPT.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -euo pipefail\n{found[0]}\nfind_python || echo none"],
        env={"PATH": str(machine / "bin"), "PYENV_ROOT": str(machine / "pyenv"), "HOME": "/none"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().removeprefix(f"{machine}/")


OLD, NEW, NEWER = interpreter((3, 11)), interpreter((3, 12)), interpreter((3, 13))


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        ({"bin/python3": NEW}, "bin/python3"),
        ({"bin/python3": OLD, "bin/python3.13": NEWER}, "bin/python3.13"),
        # What pyenv alone has is found although the system's own comes first on PATH.
        ({"bin/python3": OLD, PYENV.format("3.12.1"): NEW}, PYENV.format("3.12.1")),
        ({"bin/python3": OLD, PYENV.format("3.11.9"): OLD}, "none"),
        (
            {"bin/python3": OLD, "bin/python3.12": NOT_CHOSEN, PYENV.format("3.13.0"): NEWER},
            PYENV.format("3.13.0"),
        ),
        ({"bin/python3.12": "#!/bin/sh\nexit 1\n"}, "none"),  # without venv, as Debian splits it
        ({}, "none"),
    ],
)
def test_the_first_python_that_is_new_enough_is_taken(
    tmp_path: Path, programs: dict[str, str], found: str
) -> None:
    assert find_python(tmp_path, programs) == found
