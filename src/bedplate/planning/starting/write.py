"""The folder on disk: rendered aside, then put in place, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bedplate.common import shipped
from bedplate.common.errors import BedplateError, Problem
from bedplate.planning.starting.environment import made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.planning.starting.start import Start

#: What is written, and the template that it is rendered from.
FILES = {
    "README.md": "README.md.j2",
    "ansible.cfg": "ansible.cfg.j2",
    ".gitignore": "gitignore.j2",
    "inventory/hosts.yml": "hosts.yml.j2",
    "inventory/group_vars/all/bedplate.yml": "all.yml.j2",
    "inventory/group_vars/all/ansible.yml": "ansible.yml.j2",
}
#: Only where its one line can be installed.
REQUIREMENTS = ("requirements.txt", "requirements.txt.j2")
POOL = "inventory/group_vars/pool_{name}.yml"
PROJECT = ("Pulumi.yaml", "__main__.py")


def quoted(text: str) -> str:
    """Return a text as YAML: bare where it reads as text and nothing else."""
    bare = all(sign.isalnum() or sign in "._-" for sign in text) and yaml.safe_load(text) == text
    return text if bare else json.dumps(text)


def rendered(start: Start, name: str) -> dict[str, str]:
    """Return the text of every file by its path, the folder being called *name*."""
    environment = Environment(  # noqa: S701 - YAML and Markdown, no HTML
        loader=FileSystemLoader(shipped.templates("site")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = quoted
    origin = made()
    values = {"start": start, "name": name, "version": version("bedplate"), "made": origin}
    files = [*FILES.items(), *([REQUIREMENTS] if origin.requirement else [])]
    texts = {path: environment.get_template(template).render(values) for path, template in files}
    for pool in start.pools:
        path = POOL.format(name=pool.name)
        texts[path] = environment.get_template("pool.yml.j2").render(values, pool=pool)
    for project in sorted(shipped.stacks().iterdir()):
        for file in PROJECT:
            if (project / file).is_file():
                text = (project / file).read_text(encoding="utf-8")
                texts[f"stacks/{project.name}/{file}"] = text
    return texts


def check_folder(folder: Path) -> list[Problem]:
    """Return why nothing can be written there; empty where it can."""
    got = None
    if folder.is_dir():
        content = sorted(path.name for path in folder.iterdir())
        got = f"{len(content)} files or folders in it, {content[0]} the first" if content else None
    elif folder.exists() or folder.is_symlink():
        got = "a file"
    if got is None:
        return []
    allowed, fix = "a new or an empty folder", "name another folder"
    return [
        Problem("folder is not empty", str(folder), got=got, allowed=allowed, fix=fix, rule="init")
    ]


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write all files, or none. Raises BedplateError if it cannot."""
    target = folder.absolute()
    missing = next(p for p in (target, *target.parents) if p.exists())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            for path, text in texts.items():
                (aside / path).parent.mkdir(parents=True, exist_ok=True)
                (aside / path).write_text(text, encoding="utf-8")
            mask = os.umask(0)
            os.umask(mask)
            aside.chmod(0o777 & ~mask)
            _place(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        problem = Problem(
            "folder cannot be written",
            str(folder),
            got=str(error),
            fix=f"make {missing} writable, or name another folder",
            rule="init",
        )
        raise BedplateError([problem]) from error


def _place(aside: Path, target: Path) -> None:
    """Put the files in place; a folder that exists stays the one that a shell may stand in."""
    if not target.exists():
        aside.rename(target)
        return
    moved: list[Path] = []
    try:
        for path in sorted(aside.iterdir()):
            path.rename(target / path.name)
            moved.append(target / path.name)
    except BaseException:
        for path in moved:
            path.rename(aside / path.name)
        raise
