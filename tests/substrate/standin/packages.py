"""Which stand-ins there are: the catalogue's driver sets, with the relations beside this file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from bedplate.catalogue.load import load_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.catalogue.driver_facts import DriverPackages

#: What repositories and packages say of themselves, so that evidence can tell them apart.
ORIGIN = "bedplate-standin"
RELATIONS = Path(__file__).parent / "relations.yml"
RED_HAT = ("rhel", "rocky")
#: What containerd.io brings: without the interface that kubelet talks to.
CONTAINERD = {"/etc/containerd/config.toml": 'disabled_plugins = ["cri"]\n'}
type Format = Literal["deb", "rpm"]


@dataclass(frozen=True)
class StandIn:
    """A package without the vendor's content.

    Attributes:
        version: as the format writes it, with epoch and release.
        needs: names, each with the version that it must have, or ">= " and the first that will do;
            empty for any.
        one_of: a name that only one installed package may provide.
        replaces: names of packages that cannot be beside it.
        files: text by absolute path.
        configuration: text by absolute path, of files that a user may edit.
        programs: files of this machine by the absolute path where the package puts them.
        links: targets by the absolute path of the link.
    """

    name: str
    version: str
    needs: Mapping[str, str] = field(default_factory=dict)
    one_of: str = ""
    replaces: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, Path] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)

    def relations(self) -> Iterator[tuple[str, str]]:
        """Name what it needs, each with operator and version, or nothing for any."""
        for name, version in self.needs.items():
            yield name, version if version[:1] in ("", ">") else f"= {version}"


def format_of(os: str) -> Format:
    """Return the package format of an operating system."""
    return "rpm" if os.split("-")[0] in RED_HAT else "deb"


def family(name: str, branch: str) -> str:
    """Return a package's name without what tells branches and flavours apart."""
    return re.sub(rf"-{branch}(?=-|$)|-open(?=-|$)|-latest(?=-|$)", "", name)


def driver_packages(
    os: str, versions: Iterable[str], programs: Mapping[str, Path] | None = None
) -> list[StandIn]:
    """Return stand-ins for all driver sets of an operating system at some versions.

    ``programs`` are Debian's own user-space programs by their name (``nvidia-smi``), for hosts with
    simulated cards; without them a package brings text files only.

    Raises:
        ValueError: the catalogue has no set of a version from the vendor's repository.
    """
    wanted = set(versions)
    sets = [
        fact.value
        for fact in load_catalogue().driver_packages.values()
        if fact.value.os == os and fact.value.source == "vendor-repo"
    ]
    missing = wanted - {one.version for one in sets}
    if missing:
        raise ValueError(f"the catalogue has no driver {', '.join(sorted(missing))} for {os}")
    relations: dict[str, Any] = yaml.safe_load(RELATIONS.read_text())[format_of(os)]
    found: dict[tuple[str, str], StandIn] = {}
    for one in sets:
        if one.version in wanted:
            for package in _set(one, relations, programs or {}):
                found[(package.name, package.version)] = package
    return list(found.values())


def runtime_packages(os: str, runtime: str, distribution: Iterable[str]) -> list[StandIn]:
    """Return stand-ins for a vendor's container runtime, and for a distribution's packages.

    The vendor's containerd brings a runc of its own and cannot be beside the distribution's.
    """
    replaced = ("containerd", "runc")
    # High, because others break what is older than they know.
    found = {name: StandIn(name, "99.0-1") for name in distribution}
    for fact in load_catalogue().container_runtimes.values():
        one = fact.value
        if (one.runtime, one.os, one.source) == (runtime, os, "vendor-repo"):
            needs = {name: "" for name in one.packages if name != "docker-ce"}
            for name, version in one.packages.items():
                alone = name == "containerd.io"
                wanted = needs if name == "docker-ce" else {}
                # The daemon's program is what the role knows the package by.
                daemons = {"containerd.io": "containerd", "cri-o": "crio", "docker-ce": "dockerd"}
                daemon = daemons.get(name)
                files = {f"/usr/bin/{daemon}": "#!/bin/false\n"} if daemon else {}
                found[name] = StandIn(
                    name,
                    version,
                    wanted,
                    replaces=replaced if alone else (),
                    files=files,
                    configuration=CONTAINERD if alone else {},
                )
    return list(found.values())


def pins(os: str, version: str, flavour: str) -> dict[str, str]:
    """Return the packages of a driver as the catalogue pins them, for the vendor's repository."""
    fact = load_catalogue().driver_packages[f"{os}-vendor-repo-{version}-{flavour}"]
    return dict(fact.value.packages)


def kernel_packages(os: str, releases: Iterable[str]) -> list[StandIn]:
    """Return stand-ins for Debian kernels with their headers, and for what follows the newest."""
    if format_of(os) != "deb":
        raise ValueError(f"no stand-ins of kernels for {os}: only Debian's are written")
    found = []
    for release in releases:
        # The package's version orders kernels as their releases do.
        version = release.replace("-amd64", "").replace("-", ".") + "-1"
        image, headers = f"linux-image-{release}", f"linux-headers-{release}"
        found += [
            StandIn(image, version, files={f"/lib/modules/{release}/modules.order": ""}),
            StandIn(headers, version, files={f"/usr/src/{headers}/Makefile": ""}),
            StandIn("linux-image-amd64", version, needs={image: version}),
        ]
    return found


def _set(
    one: DriverPackages, relations: Mapping[str, Any], programs: Mapping[str, Path]
) -> Iterable[StandIn]:
    by_family = {family(name, one.branch): name for name in one.packages}
    for name, version in one.packages.items():
        related = relations.get(family(name, one.branch), {})
        needs = {
            by_family[other]: one.packages[by_family[other]]
            for other in related.get("needs", ())
            if other in by_family
        }
        needs |= dict.fromkeys(related.get("of_others", ()), "")
        others = {
            part
            for other in related.get("needs", ())
            if other in by_family
            for part in relations.get(other, {}).get("brings", ())
        }
        brings = [part for part in related.get("brings", ()) if part not in others]
        files, carried, links = _content(one, brings, programs)
        one_of = related.get("one_of", "")
        yield StandIn(name, version, needs, one_of, files=files, programs=carried, links=links)
    for name, version in (one.fabric or {}).items():
        yield StandIn(name, version)


def _content(
    one: DriverPackages, brings: Iterable[str], programs: Mapping[str, Path]
) -> tuple[dict[str, str], dict[str, Path], dict[str, str]]:
    """Return what the simulation of cards looks for in a driver's packages."""
    files: dict[str, str] = {}
    carried: dict[str, Path] = {}
    links: dict[str, str] = {}
    # Where the loader of the Debian below every stand-in system finds them.
    libraries = "/usr/lib/x86_64-linux-gnu"
    for part in brings:
        if part == "source":
            flavour = "open-" if one.flavour == "open" else ""
            source = f"/usr/src/nvidia-{flavour}{one.version}/dkms.conf"
            files[source] = f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{one.version}"\n'
        elif part in {"library", "configuration"}:
            stem = "libnvidia-ml.so" if part == "library" else "libnvidia-cfg.so"
            files[f"{libraries}/{stem}.{one.version}"] = ""
            links[f"{libraries}/{stem}.1"] = f"{stem}.{one.version}"
        elif part == "cuda":
            # Nothing calls it; the toolkit looks for it to know where a driver's libraries are.
            files[f"{libraries}/libcuda.so.{one.version}"] = ""
            links[f"{libraries}/libcuda.so.1"] = f"libcuda.so.{one.version}"
        elif part == "smi" and "nvidia-smi" in programs:
            carried["/usr/bin/nvidia-smi"] = programs["nvidia-smi"]
        elif part == "persistence" and "nvidia-persistenced" in programs:
            carried["/usr/bin/nvidia-persistenced"] = programs["nvidia-persistenced"]
            files["/usr/lib/systemd/system/nvidia-persistenced.service"] = (
                "[Service]\nType=forking\nExecStart=/usr/bin/nvidia-persistenced --user root\n"
                "[Install]\nWantedBy=multi-user.target\n"
            )
    return files, carried, links
