"""A site whose bill is there, and its vendors: a stand-in with large files and images."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill import Bill, load_bill, write_bill
from bedplate.cli.main import main
from bedplate.mirror.store import Store, cache
from tests.substrate.internet.fixtures import Served, serving
from tests.substrate.standin.signing import Key
from tests.unit.bill.vendors import planned
from tests.unit.mirror.child import Child, start

if TYPE_CHECKING:
    from collections.abc import Iterator

DEMO = Path(__file__).parents[3] / "inventories" / "demo"
#: Of each of the large files, in bytes, and the images that have a layer of this size.
LARGE = 3 << 20
LARGE_IMAGES = ("registry.k8s.io/etcd:", "registry.k8s.io/kube-proxy:")


@dataclass(frozen=True)
class Field:
    """A site, the stand-in for its vendors, and the mirror that is filled for it."""

    site: Path
    vendors: Served

    @property
    def store(self) -> Store:
        """The mirror."""
        return Store(cache() / "mirror")

    @property
    def bill(self) -> Bill:
        """The site's bill."""
        found = load_bill(self.site)
        assert found is not None
        return found

    def run(self, *words: str) -> int:
        """Run a verb of `bedplate mirror` on the site; the vendors are the stand-in."""
        with self.vendors.names():
            return main(["mirror", words[0], str(self.site), *words[1:]])

    def start(self, output: Path, *words: str) -> Child:
        """Start a verb in a process of its own, which says what it says to a file."""
        command = ["mirror", words[0], str(self.site), *words[1:]]
        return start(self.vendors, cache(), output, command)


def content(name: str, size: int = LARGE) -> bytes:
    """Return bytes that are always the same for a name."""
    return random.Random(name).randbytes(size)  # noqa: S311 - no secret


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's site, which has courses with notebooks that no maker has, and an empty mirror."""
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    others = shutil.ignore_patterns(".bedplate", ".bedplate.bill*")
    return Path(shutil.copytree(DEMO, tmp_path / "site", ignore=others))


@pytest.fixture(scope="session")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """The demo's site, planned for a mirror, with the bill of a stand-in that serves."""
    folder = tmp_path_factory.mktemp("vendors")
    key = Key(folder / "gpg")
    with serving(folder / "internet") as served:
        site = planned(
            folder / "site", served, key, {"mode": "mirror", "url": served.url, "packages": "hosts"}
        )
        assert main(["mirror", "resolve", str(site)]) == 0
        bill = load_bill(site)
        assert bill is not None
        (site / ".bedplate.bill.yml").unlink()
        for name in bill.images:
            if name.startswith(LARGE_IMAGES):
                served.tree.image(name, (content(name), b"small"))
        assert main(["mirror", "resolve", str(site)]) == 0
        field = Field(site, served)
        files = dict(field.bill.files)
        for name, file in files.items():
            if file.known.checksum_file:
                sha256 = served.tree.put(file.url, content(name))
                files[name] = file.model_copy(update={"sha256": sha256, "size": LARGE})
        write_bill(site, field.bill.model_copy(update={"files": files}))
        yield field
    key.close()


@pytest.fixture
def field(resolved: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Field:
    """The same with an empty mirror."""
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    resolved.vendors.records.forget()
    return resolved
