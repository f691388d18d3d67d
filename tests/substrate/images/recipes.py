"""What images and files are made of: the recipes as data, resolved against the built tools."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue import load_catalogue
from bedplate.mirror.errors import MirrorError
from tests.substrate.images.published import address
from tests.substrate.tools import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.catalogue.published_facts import Artifact

FOLDER = Path(__file__).parent
#: What pods have of the simulated GPUs, as C sources.
SIMULATED = FOLDER.parent / "gpu/pods"
# Part of every recipe's digest: raise it when the assembler makes something else of a recipe.
ASSEMBLER = 2


@dataclass(frozen=True)
class Tool:
    """A built tool: its version, and the folder with its bin/ and share/."""

    name: str
    version: str
    folder: Path
    on_request: bool = False
    tests_only: bool = False

    @property
    def built(self) -> bool:
        """Whether it is there."""
        return self.folder.is_dir()

    def program(self, file: str) -> Path:
        """Return a file of the tool.

        Raises:
            MirrorError: it is not there, or is a link to a program of the machine's, whose version
                nobody has pinned.
        """
        for path in (self.folder / "bin" / file, self.folder / "share" / file):
            if path.is_symlink():
                raise MirrorError(
                    "a mirror can't offer the machine's own program under a pinned version",
                    str(path),
                    f"a link to {path.resolve()}",
                    f"{self.name} {self.version} built from source",
                    f"take that program off PATH, remove {self.folder} and build it again",
                )
            if path.is_file():
                return path
        raise MirrorError(
            "a tool that the mirror is filled from is not there",
            str(self.folder),
            f"no {file}",
            f"{self.name} {self.version}",
            f"run 'python tests/substrate/tools/build.py {self.name}'",
        )


@dataclass(frozen=True)
class Base:
    """A root file system of Debian packages, and a user of number 1000 where it has one."""

    variant: str
    packages: list[str]
    release: str = "bookworm"
    user: str = ""


@dataclass(frozen=True)
class Image:
    """An image recipe with its names resolved; `images.yml` says what the fields mean."""

    name: str
    text: str
    tools: tuple[str, ...]
    base: str | None = None
    files: dict[str, Any] = field(default_factory=dict)
    directories: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    user: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    requirements: list[str] = field(default_factory=list)
    node: str = ""
    folder: str = ""
    on_request: bool = False
    tests_only: bool = False


@dataclass(frozen=True)
class File:
    """A file recipe; `files.yml` says what the fields mean. Its name is ``HOST/PATH``."""

    artifact: str
    fact: Artifact
    name: str
    text: str
    tool: str
    into: str = ""
    files: tuple[str, ...] = ()
    as_is: str = ""
    deb: str = ""
    checksum: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart that comes with a tool: where the catalogue says that it is published."""

    tool: str
    address: str


def known_tools() -> dict[str, Tool]:
    """Return every tool that can be built, whether or not it has been."""
    return {
        name: Tool(name, tool.version, build.path(tool), tool.on_request, tool.tests_only)
        for name, tool in build.tools().items()
    }


def digest(recipe: Image | File, tools: Mapping[str, Tool], base: str = "") -> str:
    """Return the digest of a recipe: its text, the versions of its tools, and its base's digest."""
    needed = recipe.tools if isinstance(recipe, Image) else (recipe.tool,)
    name = recipe.name
    parts = [ASSEMBLER, name, recipe.text, {x: tools[x].version for x in needed}, base]
    return f"sha256:{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()}"


def bases() -> dict[str, Base]:
    """Return the root file systems that images stand on."""
    return {name: Base(**entry) for name, entry in _read("images.yml")["bases"].items()}


def images(tools: Mapping[str, Tool]) -> list[Image]:
    """Return every image, its name resolved against the tools."""
    found = []
    for name, entry in _read("images.yml")["images"].items():
        sources = [file for file in entry.get("files", {}).values() if isinstance(file, str)]
        needed = {source.partition(":")[0] for source in sources} - {"simulated"}
        ours = [simulated(s).read_text() for s in sources if s.startswith("simulated:")]
        if "{flannel_manifest_cni_plugin}" in name:
            needed.add("flannel")
        found.append(
            Image(
                name=_resolve(name, tools),
                text=json.dumps(entry, sort_keys=True) + "".join(ours),
                tools=tuple(sorted(needed)),
                **entry,
            )
        )
    return found


def simulated(source: str) -> Path:
    """Return the C source of what an image has as ``simulated:NAME``."""
    return SIMULATED / f"{source.partition(':')[2]}.c"


def files(tools: Mapping[str, Tool]) -> list[File]:
    """Return the files, each at the address that the catalogue has for it."""
    facts = load_catalogue().artifacts
    found = []
    for name, entry in _read("files.yml").items():
        fact = facts[entry.get("artifact", name)].value
        found.append(
            File(
                fact=fact,
                name=address(fact, tools[entry["tool"]].version),
                text=json.dumps(entry, sort_keys=True),
                **({"artifact": name} | entry | {"files": tuple(entry.get("files", ()))}),
            )
        )
    return found


def charts(tools: Mapping[str, Tool]) -> list[Chart]:
    """Return the charts of the tools that are add-ons, each at the catalogue's address of it."""
    addons = {
        (one.value.addon, one.value.version): one.value for one in load_catalogue().addons.values()
    }
    found = [(name, addons.get((name, tool.version))) for name, tool in tools.items()]
    return [Chart(name, addon.chart) for name, addon in found if addon and addon.chart]


def lone_files(tools: Mapping[str, Tool]) -> dict[str, str]:
    """Return the files that the catalogue takes from a layer of their own, by image."""
    found = {}
    for fact in load_catalogue().artifacts.values():
        tool = tools.get(fact.value.component.replace("_", "-"))
        if fact.value.layer and tool:
            found[fact.value.layer.image.replace("{version}", tool.version)] = fact.value.layer.adds
    return found


def _resolve(name: str, tools: Mapping[str, Tool]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "flannel_manifest_cni_plugin":
            return _tag_in_manifest(tools["flannel"], "ghcr.io/flannel-io/flannel-cni-plugin")
        return tools[match[1]].version

    return re.sub(r"\{([^}]+)}", value, name)


def _tag_in_manifest(flannel: Tool, repository: str) -> str:
    if not flannel.built:
        return "unknown"  # such an image is never made: its tools are not all there
    text = flannel.program("kube-flannel.yml").read_text()
    tags = set(re.findall(rf"image: {re.escape(repository)}:(\S+)", text))
    if len(tags) != 1:
        raise MirrorError(
            "flannel's manifest does not name one plugin image",
            str(flannel.program("kube-flannel.yml")),
            ", ".join(sorted(tags)) or "none",
            f"one tag of {repository}",
            "look at the manifest of this flannel version and correct images.yml",
        )
    return tags.pop()


def _read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return loaded
