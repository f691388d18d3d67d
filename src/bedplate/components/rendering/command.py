"""`bedplate render SITE`: print what the stacks would apply, or write it as files."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

import pulumi
import yaml

from bedplate.bill import bill_path
from bedplate.bill.needs import chart_of
from bedplate.common import terminal
from bedplate.common.reading_yaml import UnusableError
from bedplate.components import later
from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import FIRST
from bedplate.components.config import StackError
from bedplate.components.rendering.options import STACKS
from bedplate.components.rendering.program import HIDDEN, project_of, registered
from bedplate.lock.file import write_text
from bedplate.portable.message import problem
from bedplate.resolver.plan import checked_lock

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.bill import Bill
    from bedplate.components.rendering.program import Registered

SHOWN, REFUSED = 0, 3
#: The first words of each document; files without them are not ours to remove.
HEAD: Final = "# From bedplate render: "
#: What kubectl cannot take as it is.
PARTS: Final = "parts"
RELEASE: Final = "kubernetes:helm.sh/v3:Release"
MANIFEST: Final = "flannel-manifest"
_NOT_IN_A_FILE: Final = re.compile(r"[^A-Za-z0-9.-]+")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def run(options: Namespace) -> int:
    """Show the stacks that are asked for, all by default.

    Returns:
        0 when they are shown, 3 where a stack refuses the site.

    Raises:
        BedplateError: the lock is missing or stale.
        OSError: a file cannot be written.
    """
    site: Path = options.site
    lock = checked_lock(site)
    output: Path | None = options.output
    found: dict[str, dict[str, str]] = {}
    stacks = [one for one in STACKS if one in (options.stack or STACKS)]
    asked: str | None = options.pulumi_stack
    try:
        _known(stacks, site, asked)
        with later.shown():
            bill = artifact.bill_of(site, lock)
        for stack in stacks:
            found[stack] = dict(_files(stack, registered(stack, site, asked), bill))
    except pulumi.RunError as error:  # of a stack, or of Pulumi about a setting
        terminal.refuse(error)
        return REFUSED
    except UnusableError as error:
        fix = "correct it, or write it again by `pulumi config set`"
        terminal.refuse(
            problem("settings of a stack cannot be read", str(site), str(error), None, fix)
        )
        return REFUSED
    for stack, files in found.items():
        if output is None:
            sys.stdout.writelines(f"---\n{text}" for text in files.values())
        else:
            _write(output / stack, files)
    if output is not None:
        print(f"Wrote {sum(map(len, found.values()))} files below {output}.")
    if not bill_path(site).exists():
        text = f"Digests are placeholders until there is a bill: bedplate mirror resolve {site}"
        terminal.show(text, error=True)
    return SHOWN


def _known(stacks: list[str], site: Path, asked: str | None) -> None:
    """Refuse the name of a Pulumi stack that no project has settings of."""
    paths = [project_of(one, site) / f"Pulumi.{asked}.yaml" for one in stacks]
    if asked is not None and not any(path.is_file() for path in paths):
        allowed, fix = f"one with settings, as {paths[0]}", "name another, or leave it out"
        raise StackError(problem("no such Pulumi stack", "--pulumi-stack", asked, allowed, fix))


def _files(stack: str, resources: list[Registered], bill: Bill) -> Iterator[tuple[str, str]]:
    """Yield each document with its file's name; what is set in a manifest is one document."""
    names: set[str] = set()
    outline = [
        {key: value for key, value in _first(one.inputs).items() if key != "apiVersion"}
        for one in resources
        if _outlined(one)
    ]
    documents = [(one, _document(one, bill)) for one in resources if not _outlined(one)]
    shown = [(one.name, *_place(one, content), content) for one, content in documents]
    if outline:
        content = {"manifest": MANIFEST, **_of_bill(MANIFEST, bill), "set": outline}
        shown.insert(0, (MANIFEST, f"manifest-{MANIFEST}", False, content))
    for resource, called, taken, content in shown:
        body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
        whole = taken and later.placeholder("")[:-1] not in body and HIDDEN not in body
        name = "" if whole else f"{PARTS}/"
        name += _NOT_IN_A_FILE.sub("-", called)
        while name in names:
            name += "-2"
        names.add(name)
        yield f"{name}.yml", f"{HEAD}stack {stack}, resource {resource}\n{body}"


def _outlined(one: Registered) -> bool:
    return bool(one.inputs.get("apiVersion") == later.OUTLINE)


def _document(one: Registered, bill: Bill) -> dict[str, Any]:
    """Return a resource as it is read: an object as its YAML, a chart by name and version."""
    if one.kind != RELEASE:
        return _first(one.inputs)
    given = one.inputs
    return {
        "chart": given["name"],
        **_of_bill(chart_of(given["name"]), bill),
        "namespace": given["namespace"],
        "values": given["values"],
    }


def _of_bill(name: str, bill: Bill) -> dict[str, str]:
    entry = bill.files[name]
    return {"version": entry.version, "url": entry.url, "sha256": entry.sha256}


def _first(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return an object with what it is before what is in it."""
    head = ("apiVersion", "kind", "metadata")
    return {key: inputs[key] for key in head if key in inputs} | inputs


def _place(one: Registered, content: dict[str, Any]) -> tuple[str, bool]:
    """Return a file's name, and whether it is an object rather than a part of one."""
    if one.kind == RELEASE:
        return f"chart-{content['chart']}", False
    metadata = content["metadata"]
    first = "0" if content["kind"] in FIRST else None  # kubectl takes a folder's files by name
    kind = content["kind"].lower()
    parts = (first, kind, metadata.get("namespace"), metadata.get("name", one.name))
    return "-".join(filter(None, parts)), not one.kind.endswith("Patch")


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write a stack's files, and remove those of an earlier render that it has no more."""
    (folder / PARTS).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_text(folder / name, text)
    for path in (*folder.glob("*.yml"), *folder.glob(f"{PARTS}/*.yml")):
        ours = path.read_text(encoding="utf-8").startswith(HEAD)
        if ours and str(path.relative_to(folder)) not in files:
            path.unlink()
