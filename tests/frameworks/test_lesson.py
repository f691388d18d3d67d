"""The lesson of the examples: students' notebooks, run cell by cell in an image on the CPU."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bedplate.pods.hub import magic
from bedplate.pods.hub.notebook import CELL
from tests.frameworks.test_images import ready

ROOT = Path(__file__).parents[2]
MATERIAL = ROOT / "examples/lesson/material"
IMAGE = "images.bedplate.internal/lesson:2.6.0"
#: What a network reaches that has learnt. One that guesses reads a tenth.
LEARNT, GUESSED = 0.95, 0.3
ROUNDS = "ROUNDS = 15"


def held(folder: Path, home: Path) -> dict[str, str]:
    """Run the notebooks of a home in the image, and return what each has printed."""
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("lesson.py"), folder)
    shutil.copy(magic.__file__, folder / "bedplate_share.py")
    with ready(IMAGE) as command:
        more = [f"--volume={home}:/home/lesson", f"--volume={folder}:/lesson:ro"]
        more += ["--env=PYTHONPATH=/lesson", "--env=NO_COLOR=1", "--env=HOME=/tmp"]
        command[2:2] = more
        program = ["python3", "/lesson/lesson.py", "/home/lesson", *CELL]
        done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return said


def accuracy(text: str) -> float:
    """Return the figure that the second notebook prints."""
    (found,) = re.findall(r"^accuracy: (\d\.\d+) of 500 pictures$", text, re.MULTILINE)
    return float(found)


@pytest.mark.prove
def test_the_lesson_learns_and_a_network_that_has_not_learnt_is_seen(tmp_path: Path) -> None:
    shutil.copytree(MATERIAL, tmp_path / "home")
    said = held(tmp_path / "run", tmp_path / "home")
    assert "trained in" in said["1-train.ipynb"]
    evaluated = said["2-evaluate.ipynb"]
    assert accuracy(evaluated) >= LEARNT
    assert (tmp_path / "home/mistakes.png").read_bytes().startswith(b"\x89PNG")
    # In the share, in a process without the notebook's variables: a size is too small, one is not.
    sizes = dict(re.findall(r"^ *(\d+) neurons: accuracy (\d\.\d+)$", evaluated, re.MULTILINE))
    assert float(sizes["2"]) < LEARNT <= float(sizes["64"])
    # The same notebooks, and no round of training.
    shutil.copytree(MATERIAL, tmp_path / "untrained")
    notebook = tmp_path / "untrained/1-train.ipynb"
    text = notebook.read_text()
    assert text.count(ROUNDS) == 1
    notebook.write_text(text.replace(ROUNDS, "ROUNDS = 0"))
    assert accuracy(held(tmp_path / "again", tmp_path / "untrained")["2-evaluate.ipynb"]) < GUESSED
