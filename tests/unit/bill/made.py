"""A bill for a site whose lock is there, with digests made of names: nothing is fetched by it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import yaml

from bedplate.bill import Bill, File, Image, Known, Packages, needs_of, write_bill
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main
from bedplate.lock import load_lock

DEMO = Path(__file__).parents[3] / "inventories" / "demo"


def sha256_of(name: str) -> str:
    """Return a digest that is always the same for a name."""
    return hashlib.sha256(name.encode()).hexdigest()


def mirrored_demo(copy: Path, mirror: str, **more: object) -> Path:
    """Copy the demo's site with a mirror and further settings, and plan it."""
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns(".bedplate*"))
    settings = copy / "group_vars/all/bedplate.yml"
    content = yaml.safe_load(settings.read_text()) | more
    content["bedplate_sources"] = {"mode": "mirror", "url": mirror}
    settings.write_text(yaml.safe_dump(content))
    assert main(["plan", str(copy)]) == 0
    return copy


def make(site: Path) -> Bill:
    """Write the bill that the lock of *site* needs, and return it."""
    needs = needs_of(load_lock(site), load_catalogue())
    known = Known(registry="registry.example.com")
    bill = Bill(
        files={
            name: File(
                version=needed.version,
                url=f"https://vendor.example.com/{name}-{needed.version}",
                sha256=sha256_of(name),
                size=1,
                known=known,
            )
            for name, needed in needs.files.items()
        },
        images={
            name: Image(
                digest=needed.digest or f"sha256:{sha256_of(name)}",
                manifest=needed.digest or f"sha256:{sha256_of(name)}",
                size=1,
                needed_by=needed.needed_by,
                known=known,
                notebook=dict.fromkeys(needed.starts.packages, needed.starts.hub)
                if needed.starts
                else {},
            )
            for name, needed in needs.images.items()
        },
        packages={
            source: Packages(
                indexes={one.index: one.fingerprint for one in needed.repositories},
                offered=dict(needed.packages),
            )
            for source, needed in needs.packages.items()
        },
    )
    write_bill(site, bill)
    return bill
