"""How the environment was made in which `bedplate` runs: what another machine can install."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Made:
    """An environment of Python with this package.

    `requirement` is a line for `pip install -r` that installs these very bytes; empty where the
    package came from a folder, which changes. `folder` is that one. `activate` is the file that a
    shell reads; empty outside of a virtual environment.
    """

    requirement: str
    folder: str
    activate: str


def made() -> Made:
    """Return how this environment was made, by what the installer has left in it.

    Source: https://packaging.python.org/en/latest/specifications/direct-url/ (2026-11-29)
    """
    its = distribution("bedplate")
    requirement, folder = origin(its.version, its.read_text("direct_url.json"))
    script = Path(sys.prefix) / "bin/activate"
    return Made(requirement, shlex.quote(folder), shlex.quote(str(script)) * script.is_file())


def origin(version: str, text: str | None) -> tuple[str, str]:
    """Return the requirement and the folder, of which one is empty."""
    if text is None:
        return f"bedplate=={version}", ""  # it came from an index by its name, and does again
    record = json.loads(text)
    url = record["url"]
    if "dir_info" in record:
        return "", unquote(urlsplit(url).path)
    if vcs := record.get("vcs_info"):
        return f"bedplate @ {vcs['vcs']}+{url}@{vcs['commit_id']}", ""
    hashes = record.get("archive_info", {}).get("hashes", {})
    digest = f"#sha256={hashes['sha256']}" if "sha256" in hashes else ""
    return f"bedplate @ {url}{digest}", ""
