"""The package and its locked requirements as a CycloneDX document: what scanners read.

`requirements.lock` has all that is needed: name, version and digests of each pin, and in its
comments who asks for it. The fields are those of https://cyclonedx.org/docs/1.6/json/.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement

PIN = re.compile(r"^(?P<pin>[a-z].*?) \\\n(?P<rest>(?:    .*\n)+)", re.MULTILINE)
DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")
ASKED_BY = re.compile(r"^    # (?:via |  )(\S.*)$", re.MULTILINE)
#: How the lock names the package, and the tools of its developers.
PACKAGE, TOOLS = "bedplate (pyproject.toml)", "bedplate (pyproject.toml:dev)"


class Pin(NamedTuple):
    """One version that the lock names; `always` where it is installed on every system."""

    name: str
    version: str
    always: bool
    digests: list[str]
    asked_by: list[str]

    @property
    def url(self) -> str:
        """Return its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pins(lock: str) -> list[Pin]:
    """Return what a text of `requirements.lock` names, in its order."""
    found = []
    for block in PIN.finditer(lock):
        wanted, rest = Requirement(block["pin"]), block["rest"]
        version = str(wanted.specifier).removeprefix("==")
        always, asked_by = wanted.marker is None, ASKED_BY.findall(rest)
        found.append(Pin(wanted.name, version, always, DIGEST.findall(rest), asked_by))
    return found


def document(
    project: dict[str, Any], wheel: str, lock: str, commit: str, when: int
) -> dict[str, Any]:
    """Return the document of a version.

    Args:
        project: the package's name, version, license and dependencies, as in `pyproject.toml`.
        wheel: the SHA-256 of its wheel.
        lock: the text of `requirements.lock`.
        commit: what it was built from.
        when: the commit's time, in seconds since 1970.

    Raises:
        KeyError: the lock names no pin for what asks for another.
    """
    found, version = pins(lock), project["version"]
    url = f"pkg:pypi/{project['name']}@{version}"
    asks: dict[str, list[str]] = {PACKAGE: [], TOOLS: []} | {pin.name: [] for pin in found}
    for pin in found:
        for name in pin.asked_by:
            asks[name].append(pin.name)
    # The lock does not tell what an extra asks for from what the package does.
    needed = _closure([Requirement(line).name for line in project["dependencies"]], asks)
    used = _closure(asks[PACKAGE], asks)
    urls = {name: [pin.url for pin in found if pin.name == name] for name in asks}

    def refs(name: str) -> list[str]:
        return sorted({one for other in asks[name] for one in urls[other]})

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid5(NAMESPACE_URL, f"{url}#{commit}").urn,
        "version": 1,
        "metadata": {
            "timestamp": f"{datetime.fromtimestamp(when, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": {
                "type": "application",
                "bom-ref": url,
                "name": project["name"],
                "version": version,
                "purl": url,
                "hashes": [{"alg": "SHA-256", "content": wheel}],
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": [_component(pin, needed, used) for pin in found],
        "dependencies": [
            {"ref": url, "dependsOn": refs(PACKAGE)},
            *({"ref": pin.url, "dependsOn": refs(pin.name)} for pin in found),
        ],
    }


def _closure(names: list[str], asks: dict[str, list[str]]) -> set[str]:
    found, waiting = set(), list(names)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += asks[name]
    return found


def _component(pin: Pin, needed: set[str], used: set[str]) -> dict[str, Any]:
    # The format's word for what is there for tests and builds alone is `excluded`.
    optional = "optional" if pin.name in used else "excluded"
    return {
        "type": "library",
        "bom-ref": pin.url,
        "name": pin.name,
        "version": pin.version,
        "scope": "required" if pin.always and pin.name in needed else optional,
        "purl": pin.url,
        # One of these files is installed, by system and Python.
        "externalReferences": [
            {
                "type": "distribution",
                "url": pin.url,
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in pin.digests],
            }
        ],
    }
