"""Package repositories of a vendor: files of our own beside the user's, with the key they trust."""

import configparser
import re
from typing import Dict, List, NamedTuple, Optional

from . import mirror_sources
from .host import Host

HEADER = "# Managed by Bedplate: changes here are lost.\n"
SOURCES = "/etc/apt/sources.list.d"
MODULES = "/etc/dnf/modules.d"
_ONE_LINE = re.compile(r"^\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)")


class Repository(NamedTuple):
    """A repository: ``name`` is part of the files' names, ``origin`` what its Release file says.

    With apt everything of it stays, by its ``priority``, behind what the host has from elsewhere:
    only packages that are asked for at an exact version come from it. More than 500 prefers it.
    """

    name: str
    description: str
    url: str
    fingerprint: str
    origin: str
    suite: str = "/"
    signed_index: bool = False
    components: str = "main"
    priority: int = 1


def key_path(repository: Repository, apt: bool) -> str:
    """Where the key lies, armoured."""
    if apt:
        return f"/etc/apt/keyrings/bedplate-{repository.name}.asc"
    return f"/etc/pki/rpm-gpg/RPM-GPG-KEY-bedplate-{repository.name}"


def apt_files(repository: Repository) -> Dict[str, str]:
    """The files of a repository on a system with apt."""
    components = "" if repository.suite.endswith("/") else f"Components: {repository.components}\n"
    return {
        f"{SOURCES}/bedplate-{repository.name}.sources": (
            f"{HEADER}Types: deb\nURIs: {repository.url}\nSuites: {repository.suite}\n{components}"
            f"Signed-By: {key_path(repository, True)}\n"
        ),
        f"/etc/apt/preferences.d/bedplate-{repository.name}": (
            f"{HEADER}Package: *\nPin: release o={repository.origin}\n"
            f"Pin-Priority: {repository.priority}\n"
        ),
    }


def rpm_files(repository: Repository) -> Dict[str, str]:
    """The files of a repository on a system with dnf.

    It has no priority: dnf would then not even see its packages where another repository, such as
    the user's own entry for the same one, has some of their names.
    """
    return {
        f"/etc/yum.repos.d/bedplate-{repository.name}.repo": (
            f"{HEADER}[bedplate-{repository.name}]\nname={repository.description}\n"
            f"baseurl={repository.url}\nenabled=1\ngpgcheck=1\n"
            f"repo_gpgcheck={int(repository.signed_index)}\n"
            f"gpgkey=file://{key_path(repository, False)}\n"
        )
    }


def offered_by(host: Host, repository: Repository) -> Optional[str]:
    """The file that offers the repository's packages instead of ours, or None.

    The site's mirror does so for all. The user's own may, and apt refuses to work at all where two
    entries of one address name different keys.
    """
    mirrored = mirror_sources.in_force(host)
    if mirrored:
        return mirrored
    names = ["/etc/apt/sources.list"]
    names += [f"{SOURCES}/{name}" for name in host.list(SOURCES)]
    wanted = repository.url.rstrip("/")
    for name in names:
        if name.endswith(f"/bedplate-{repository.name}.sources"):
            continue
        text = host.read(name) or ""
        if any(uri.rstrip("/") == wanted for uri in _uris(name, text)):
            return name
    return None


def _uris(name: str, text: str) -> List[str]:
    if name.endswith(".sources"):
        found: List[str] = []
        for stanza in re.split(r"\n[ \t]*\n", text):
            lines = [line for line in stanza.splitlines() if not line.startswith("#")]
            fields = {k.strip().lower(): v for k, _, v in (line.partition(":") for line in lines)}
            if fields.get("enabled", "yes").strip().lower() not in ("no", "false", "0"):
                found += fields.get("uris", "").split()
        return found
    if name.endswith(".list"):
        return [found.group(1) for found in map(_ONE_LINE.match, text.splitlines()) if found]
    return []


def stream_path(module: str) -> str:
    """Where dnf keeps which stream of a module is enabled."""
    return f"{MODULES}/{module}.module"


def stream(host: Host, module: str) -> Optional[str]:
    """The stream of a dnf module that is enabled, or None."""
    parser = configparser.ConfigParser()
    try:
        parser.read_string(host.read(stream_path(module)) or "")
    except configparser.Error:
        return None
    if not parser.has_section(module) or parser.get(module, "state", fallback="") != "enabled":
        return None
    return parser.get(module, "stream", fallback="") or None
