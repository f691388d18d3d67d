"""What a site's bill lists, for other programs: lines, JSON, skopeo's own file, a firewall's list.

Whatever the form, it is the bill's content: the mirror may lack some of it. Packages are those that
the mirror has; of a system whose packages it does not have yet, what its hosts install by name.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from bedplate.bill.places import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.bill import Bill, Places
    from bedplate.mirror.packages.listed import Packages

HEAD = ("KIND", "BYTES", "DIGEST", "NAME", "STATE")
NOT_YET = "not in the mirror: bedplate mirror packages SITE"
PORTS = {"http": 80, "https": 443}
SKOPEO = """\
# skopeo sync --all --preserve-digests --scoped --src yaml --dest docker FILE REGISTRY/PREFIX
# A tag may have moved since the bill was written: compare what came with
"""
REDIRECTS = """\
# Some of these redirect to other hosts (stores of blobs and of release files), which change:
# `bedplate mirror fill` lists the ones that it has fetched from.
"""


def rows(bill: Bill, wrong: Mapping[str, str], packages: Packages) -> Iterator[tuple[object, ...]]:
    """Yield a row of `HEAD` for each file, image and package; *wrong* says what is not whole."""
    for name, file in sorted(bill.files.items(), key=lambda item: item[1].url):
        yield "file", file.size, f"sha256:{file.sha256}", file.url, wrong.get(name, "")
    for name, image in sorted(bill.images.items()):
        yield "image", image.size, image.digest, name, wrong.get(name, "")
    for one in packages.all:
        named = f"{one.system} {one.name}"
        if one.address:
            yield "package", one.size, f"sha256:{one.sha256}", named, one.wrong or ""
        else:
            yield "package", "-", "-", f"{named} {one.version or 'any version'}", NOT_YET


def content(bill: Bill, places: Places, packages: Packages) -> dict[str, Any]:
    """Return the bill as one object, with the hosts that it is fetched from."""
    of_file, of_image = {"version", "url", "sha256", "size"}, {"digest", "manifest", "size"}
    return {
        "files": [
            {
                "name": name,
                **file.model_dump(mode="json", include=of_file),
            }
            for name, file in sorted(bill.files.items())
        ],
        "images": [
            {"name": name, **image.model_dump(mode="json", include=of_image)}
            for name, image in sorted(bill.images.items())
        ],
        "packages": [
            {key: value for key, value in asdict(one).items() if value} for one in packages.all
        ],
        "hosts": [f"{host}:{port}" for host, port in _hosts(bill, places, packages)],
    }


def skopeo(bill: Bill) -> str:
    """Return the images as a file for `skopeo sync --src yaml`, by registry."""
    content: dict[str, dict[str, dict[str, list[str]]]] = {}
    digests = []
    for name, image in sorted(bill.images.items()):
        repository, tag = split(name)
        host, _, path = repository.partition("/")
        images = content.setdefault(host, {"images": {}})["images"]
        images.setdefault(path, []).append(tag)
        digests.append(f"# {name} {image.digest}\n")
    return SKOPEO + "".join(digests) + yaml.safe_dump(content, sort_keys=True)


def hosts(bill: Bill, places: Places, packages: Packages) -> str:
    """Return host names and ports that a fill connects to, a line each."""
    found = _hosts(bill, places, packages)
    return REDIRECTS + "".join(f"{host} {port}/tcp\n" for host, port in found)


def _hosts(bill: Bill, places: Places, packages: Packages) -> list[tuple[str, int]]:
    urls = [file.url for file in bill.files.values()]
    urls += [places.official(name) for name in bill.images]
    urls += [index for one in bill.packages.values() for index in one.indexes]
    urls += packages.archives
    parts = [urlsplit(url) for url in urls]
    return sorted({(str(one.hostname), one.port or PORTS[one.scheme]) for one in parts})
