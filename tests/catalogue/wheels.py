"""What wheels say that they need, read from the index without downloading the wheels.

A wheel's metadata is one small file of its archive: range requests fetch the archive's directory
and that file, a few hundred kilobytes of a wheel of gigabytes.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import urllib.request
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urldefrag, urljoin

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from bedplate.catalogue.load import load_catalogue

if TYPE_CHECKING:
    from bedplate.catalogue.published_facts import FrameworkBuild

#: Frameworks whose default builds are on the index, and the distribution that names their needs.
DISTRIBUTIONS = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax-{variant}-plugin",
    "tensorflow-cpu": "tensorflow-cpu",
    "jax-cpu": "jaxlib",
    "paddle-cpu": "paddlepaddle",
}
CUDA_PARTS = re.compile(r"^(nvidia-|cuda-)")
PLATFORM = re.compile(r"^manylinux.*_x86_64$")
BUFFER = 1 << 18
TIMEOUT_S = 60


#: Where the committed excerpts of the wheels' metadata are.
DATA = Path(__file__).parent / "data" / "wheels"


@dataclass(frozen=True)
class Needs:
    """What one wheel says: its Python, and its requirements that are NVIDIA's."""

    distribution: str
    version: str
    requires_python: str
    requires: list[str]

    @property
    def name(self) -> str:
        """Return what names it among the wheels."""
        return f"{self.distribution} {self.version}"

    def least(self, pattern: str) -> str | None:
        """Return the version, exact or the lowest, of the one requirement whose name matches."""
        found = [
            specifier.version
            for requirement in map(Requirement, self.requires)
            if re.fullmatch(pattern, requirement.name)
            for specifier in requirement.specifier
            if specifier.operator in ("==", ">=")
        ]
        if len(found) > 1:
            raise LookupError(f"{self.name}: {pattern} matches {len(found)} requirements")
        return found[0] if found else None


def committed() -> dict[str, Needs]:
    """Return what the committed excerpts say, by distribution and version."""
    needs = [
        Needs(path.stem, version, said["requires_python"], said["requires"])
        for path in sorted(DATA.glob("*.json"))
        for version, said in json.loads(path.read_text())["versions"].items()
    ]
    return {one.name: one for one in needs}


def wanted() -> dict[str, set[str]]:
    """Return the versions that the catalogue has, of the distributions on the index."""
    found: dict[str, set[str]] = {}
    for fact in load_catalogue().frameworks.values():
        distribution = distribution_of(fact.value)
        if distribution is not None:
            found.setdefault(distribution, set()).add(fact.value.version)
    return found


def distribution_of(build: FrameworkBuild) -> str | None:
    """Return the distribution that carries a build on the default index; None if none does."""
    if build.index is not None:
        return None
    return DISTRIBUTIONS[build.framework].format(variant=build.variant)


def fetch(distribution: str, version: str) -> Needs:
    """Read the newest CPython's x86_64 wheel of a version. Raises LookupError if there is none."""
    found = []
    for link in _links(f"{index_url()}/{distribution}/"):
        name = urldefrag(link).url.rpartition("/")[2]
        if not name.endswith(".whl"):
            continue
        _, of, _, tags = parse_wheel_filename(name)
        fits = [tag for tag in tags if PLATFORM.match(tag.platform) and tag.abi == tag.interpreter]
        if str(of) == version and fits:
            found.append((max(int(tag.interpreter.removeprefix("cp")) for tag in fits), link))
    if not found:
        raise LookupError(f"{distribution} {version}: no x86_64 wheel on the index")
    archive = io.BufferedReader(_Ranges(urldefrag(max(found)[1]).url), BUFFER)
    with archive, zipfile.ZipFile(archive) as wheel:
        inside = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(inside).decode())
    requires = [line for line in metadata.get_all("Requires-Dist", []) if CUDA_PARTS.match(line)]
    python = metadata.get("Requires-Python", "")
    return Needs(distribution, version, python, sorted(requires))


def index_url() -> str:
    """Return the index that pip is configured for, which is pip's own default if for none."""
    from pip._internal.models.index import PyPI  # slow, and only the network's tests need it

    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    return (told.stdout.strip() or PyPI.simple_url).rstrip("/")


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _links(page: str) -> list[str]:
    parser = _Anchors()
    with urllib.request.urlopen(page, timeout=TIMEOUT_S) as answer:  # noqa: S310 - pip's index
        parser.feed(answer.read().decode())
    return [urljoin(page, link) for link in parser.links]


class _Ranges(io.RawIOBase):
    """A file on a server as one that can be searched: every read is a range request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.at = 0
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - linked by the index
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            self.size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        last = min(self.at + len(buffer), self.size) - 1
        if last < self.at:
            return 0
        headers = {"Range": f"bytes={self.at}-{last}"}
        request = urllib.request.Request(self.url, headers=headers)  # noqa: S310 - as above
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            if answer.status != HTTPStatus.PARTIAL_CONTENT:
                raise LookupError(f"the index sends no ranges of {self.url.rpartition('/')[2]}")
            data = answer.read()
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)
