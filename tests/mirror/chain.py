"""A site in mode `mirror`, and its mirror: filled at one place, carried in a file to another."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.bill import Places, load_bill
from bedplate.bill.needs import images_of
from bedplate.bill.places import split
from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock
from bedplate.mirror import wanted
from bedplate.mirror.store import Store, cache
from tests.substrate.commands import SiteCommands
from tests.substrate.demo import DESCRIPTION, SITE
from tests.substrate.hosts import apt_sources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.substrate.internet.service import Service

DEMO = "10.213.0."
#: The stand-in is on an address of this machine's loopback: hosts could not reach it if it ran.
INTERNET = "127.0.7.1"
LEFT_OUT = ("pool_train", "gpu-a")
SECURITY = "-security"


@dataclass(frozen=True)
class Chain:
    """The demo's control plane and one host with GPUs, which take everything from a mirror."""

    name: str = "chain"
    begin: str = "10.213.18."

    @property
    def subnet(self) -> str:
        """The network of its hosts, with the prefix length."""
        return f"{self.begin}0/24"

    def write(self, folder: Path) -> SiteCommands:
        """Write the site and the description of its hardware; return its commands."""
        pool, host = LEFT_OUT
        site = folder / self.name
        shutil.copytree(SITE, site, ignore=shutil.ignore_patterns(".bedplate*", f"{pool}.yml"))
        for path in site.rglob("*.yml"):
            path.write_text(path.read_text().replace(DEMO, self.begin))
        hosts = yaml.safe_load((site / "hosts.yml").read_text())
        del hosts["all"]["children"]["gpu_pools"]["children"][pool]
        _dump(site / "hosts.yml", hosts)
        settings = site / "group_vars/all/bedplate.yml"
        content = yaml.safe_load(settings.read_text())
        keys = content["bedplate_sources"].pop("keys")
        del content["bedplate_sources"]["packages"]
        _dump(settings, content)
        (site / "facts").mkdir()
        add_facts(site, "distribution-archives", archives())
        add_facts(site, "artifacts", signed_by(keys))
        hardware = yaml.safe_load(DESCRIPTION.read_text().replace(DEMO, self.begin))
        hardware["network"]["name"] = f"bedplate-{self.name}"
        del hardware["hosts"][host]
        description = folder / f"{self.name}.yml"
        _dump(description, hardware)
        return SiteCommands(site, description, mirror=False)


def archives() -> list[dict[str, Any]]:
    """Return the catalogue's archives of this machine's release, where this machine has them."""
    release = apt_sources.machine_codename()
    given = [(path.name, path.read_text()) for path in apt_sources.machine_files()]
    stanzas = apt_sources.derive(given, release, release, ["main"]).split("\n\n")
    found = {}
    for stanza in filter(None, map(str.strip, stanzas)):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines())
        found[fields["Suites"]] = fields["URIs"].rstrip("/") + "/"
    rows = []
    for fact in load_catalogue().distribution_archives.values():
        row = fact.value.model_dump(mode="json")
        if row["suites"] and row["suites"][0] in found:
            rows.append(row | {"url": found[row["suites"][0]]})
    return rows


def signed_by(keys: dict[str, str]) -> list[dict[str, Any]]:
    """Return the artifacts whose index the stand-in signs: with its key, not the vendor's."""
    rows = [fact.value.model_dump(mode="json") for fact in load_catalogue().artifacts.values()]
    chosen = []
    for row in rows:
        for host, fingerprint in keys.items():
            if row.get("package") and f"//{host}/" in row["package"]["index"]:
                row["package"]["fingerprint"] = fingerprint
                chosen.append(row)
    return chosen


def add_facts(site: Path, kind: str, rows: Iterable[dict[str, Any]]) -> None:
    """Add facts to a site."""
    source = {"url": "https://example.org/stand-in", "read": "READ"}
    entry = {"values": list(rows), "reason": "It is so on this machine.", "source": source}
    text = yaml.safe_dump([entry], sort_keys=False)
    (site / "facts" / f"{kind}.yml").write_text(text.replace("READ", "2026-11-26"))


@dataclass
class Mirror:
    """A machine's mirror: a cache of its own, and the commands that a user types there."""

    site: SiteCommands
    folder: Path
    internet: Service | None = None

    @cached_property
    def store(self) -> Store:
        """What it holds."""
        return Store(self.folder / "mirror")

    def run(self, verb: str, *arguments: str, check: bool = True) -> CompletedProcess[str]:
        """Run a verb of `bedplate mirror` for the site, with what is said shown."""
        command = ["bedplate", "mirror", verb, str(self.site.site), *arguments]
        own = {"BEDPLATE_CACHE": str(self.folder), "BEDPLATE_KEYS": str(self.folder / "keys")}
        if self.internet:
            command, own = self.internet.command(command), own | dict(self.internet.trust())
        variables = [f"{name}={value}" for name, value in own.items()]
        return self.site.run(f"mirror {verb}", ["env", *variables, *command], check=check)

    def take_built(self) -> list[str]:
        """Take the images that the site builds itself from where they were built; name them."""
        source, bill = Store(cache() / "mirror"), load_bill(self.site.site)
        places = Places(None, {})
        assert bill is not None
        asked = images_of(load_lock(self.site.site), load_catalogue())
        names = sorted(name for name, one in asked if one.built)
        for name in names:
            entry = bill.images[name]
            manifest = source.images.manifest(entry.manifest)
            assert manifest is not None, f"{name} is not built"
            image = wanted.image(name, entry, manifest, source, places)
            digests = [f"{wanted.SHA256}{part.sha256}" for part in image.blobs]
            for digest in (*image.manifests, *digests):
                target = self.store.images.blob(digest)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():  # images share layers
                    os.link(source.images.blob(digest), target)
            self.store.images.name(*split(name), image.manifests, digests)
        return names


def _dump(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
