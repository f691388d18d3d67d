"""The Python package `bedplate`, which the plugins of the control side are thin over."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError

PACKAGE = "bedplate"


def package(module: str) -> Any:
    """Return a module of the package. Raises AnsibleError where the package is not installed.

    A collection from Galaxy comes without it; only this interpreter's own counts.
    """
    try:
        return import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        raise AnsibleError(missing()) from None


def missing() -> str:
    """Return what is missing, where, and what to install.

    No index is named: until the project is on one, whoever takes its name there would be installed.
    """
    galaxy = Path(__file__).parents[2] / "galaxy.yml"
    manifest = galaxy.with_name("MANIFEST.json")
    text = (galaxy if galaxy.is_file() else manifest).read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    version = content.get("collection_info", content)["version"]
    return (
        f"the Python package {PACKAGE} is not installed — got {sys.executable} without it — "
        f"install it there, from the wheel or checkout of {version} that this collection came with:"
        f" {sys.executable} -m pip install PATH"
    )
