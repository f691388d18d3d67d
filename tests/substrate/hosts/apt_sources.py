"""Where the hosts' Debian packages come from: the sources that this machine itself uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.hosts.errors import SubstrateError

if TYPE_CHECKING:
    from collections.abc import Iterable

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
ONE_LINE = re.compile(r"deb\s+(?:\[[^]]*]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>.*)")


def machine_files(root: Path = Path("/etc/apt")) -> list[Path]:
    """Return the files that hold this machine's sources, in apt's order."""
    parts = root / "sources.list.d"
    found = [root / "sources.list", *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]
    return [path for path in found if path.is_file()]


def machine_codename(os_release: Path = Path("/etc/os-release")) -> str:
    """Return the code name of this machine's release, as ``bookworm``; empty if it has none."""
    match = re.search(r'^VERSION_CODENAME="?([a-z]+)"?$', os_release.read_text(), re.MULTILINE)
    return match[1] if match else ""


def derive(
    files: Iterable[tuple[str, str]], codename: str, release: str, components: list[str]
) -> str:
    """Return deb822 sources for a Debian release, taken from a machine's own.

    ``files`` are pairs of file name and text. Only the release's own suites (and its updates and
    security suites) count, so that other vendors' repositories stay out of the hosts.

    Raises `SubstrateError` when the machine has no source of its release.
    """
    suites = {
        codename: release,
        **{f"{codename}-{x}": f"{release}-{x}" for x in ("updates", "security")},
    }
    found: dict[tuple[str, str], None] = {}
    for name, text in files:
        entries = _deb822(text) if name.endswith(".sources") else _one_line(text)
        for uri, suite in entries:
            if suite.rstrip("/") in suites:
                found[(uri, suites[suite.rstrip("/")])] = None
    if not any(suite == release for _, suite in found):
        raise SubstrateError(
            "no Debian package source to build hosts from",
            "/etc/apt",
            f"none for the suite {codename or '(no code name in /etc/os-release)'}",
            "a Debian machine with its distribution's sources",
            "run this on Debian 12 or newer",
        )
    stanzas = [
        f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {' '.join(components)}\n"
        f"Signed-By: {KEYRING}\n"
        for uri, suite in found
    ]
    return "\n".join(stanzas)


def _deb822(text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", plain):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line[:1].isspace():
                fields[key] = f"{fields.get(key, '')} {line.strip()}"
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.lower()
                fields[key] = value.strip()
        if (
            "deb" in fields.get("types", "").split()
            and fields.get("enabled", "yes").lower() != "no"
        ):
            pairs += [(u, s) for u in fields["uris"].split() for s in fields["suites"].split()]
    return pairs


def _one_line(text: str) -> list[tuple[str, str]]:
    matches = (ONE_LINE.match(line.strip()) for line in text.splitlines())
    return [(match["uri"], match["suite"]) for match in matches if match]
