"""Two versions of a framework in one course, and each framework: the notebook says what it is.

The images are built by the commands in the files of `bedplate frameworks`, of the wheels that the
catalogue names; the hub starts each. There is no GPU: what is built for one computes on the CPU.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from bedplate.components.frameworks import hub_settings
from bedplate.lock.model import Framework
from tests.frameworks.building import as_here, base, cell, class_of, notebook, removed
from tests.unit.bill.test_course_images import with_courses

if TYPE_CHECKING:
    from pathlib import Path

IMPORT: Final = {
    "pytorch": "import torch as it; ones = it.ones(64, 64); cuda = it.version.cuda; add = it.sum",
    "tensorflow-cpu": "import tensorflow as it; ones = it.ones((64, 64)); cuda = None; "
    "add = it.reduce_sum",
    "paddle-cpu": "import paddle as it; ones = it.ones([64, 64]); cuda = None; add = it.sum",
}
#: PyTorch's wheels bring no NumPy.
COMPUTES = """
import json
print("\\n" + json.dumps([it.__version__, cuda, float(add(ones @ ones))]))
"""
#: By what a course asks for: the build, and what its notebook prints.
ASKED: Final = {
    "pytorch-2.9": (("pytorch", "2.9.1", "cu128"), ["2.9.1+cu128", "12.8"]),
    "pytorch-2.11": (("pytorch", "2.11.0", "cu130"), ["2.11.0+cu130", "13.0"]),
    "tensorflow-cpu": (("tensorflow-cpu", "2.20.0", "cpu"), ["2.20.0", None]),
    "paddle-cpu": (("paddle-cpu", "3.3.1", "cpu"), ["3.3.1", None]),
}


@pytest.mark.prove
def test_each_profile_of_a_course_runs_the_build_that_was_decided(tmp_path: Path) -> None:
    """One course of four builds, two of them PyTorch: four images, and what each says of itself."""
    lock = with_courses(list(ASKED), frameworks=[framework(*one) for one, _ in ASKED.values()])
    profiles = hub_settings.settings(lock, local)["courses"]["course-0"]["profiles"]
    images: list[str] = []
    try:
        with base():
            for build, _ in ASKED.values():
                images.append(notebook(as_here(*build), tmp_path / "-".join(build)))
            assert [one["image"] for one in profiles] == images
            slugs = [one["slug"] for one in profiles]
            assert slugs[:2] == ["course-0-pytorch-2-9-1", "course-0-pytorch-2-11-0"]
            with class_of(profiles) as hub:
                for slug, (build, expected) in zip(slugs, ASKED.values(), strict=True):
                    # A framework's own log may come after what the cell prints.
                    printed = cell(hub, slug, IMPORT[build[0]] + COMPUTES).splitlines()
                    said = [json.loads(line) for line in printed if line.startswith("[")]
                    assert said == [[*expected, 64.0**3]], printed
    finally:
        removed(*images)


def framework(name: str, version: str, variant: str) -> Framework:
    """Return a build as the lock of a pool has it."""
    return Framework(name=name, version=version, variant=variant, cuda=None)


def local(needed_by: str) -> str:
    """Return the name under which the image that a profile needs is built here."""
    (build,) = (one for one, _ in ASKED.values() if needed_by == f"notebook-{'-'.join(one)}")
    return f"images.bedplate.internal/notebook-{build[0]}:{build[1]}-{build[2]}"
