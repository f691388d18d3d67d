"""The site's mirror as the one source of packages: the host's own stay, and are not read."""

import configparser
import os
import urllib.parse
from typing import List, NamedTuple, Optional

from . import owned
from .files import Change, File, ensure_files, take_back
from .host import Host, shown
from .message import problem

ROLE = "package_mirror"
#: Read after every other file of apt's configuration.
APT = "/etc/apt/apt.conf.d/99zz-bedplate-mirror"
APT_LOGIN = "/etc/apt/auth.conf.d/bedplate-mirror.conf"
APT_SOURCES = "/etc/apt/bedplate-mirror.d"
DNF = "/etc/dnf/dnf.conf"
DNF_REPOSITORIES = "/etc/bedplate/yum.repos.d"
RPM_KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-bedplate-mirror"
DNF_LINE = f"reposdir={DNF_REPOSITORIES}"
MARK = f"Managed by Bedplate (role {ROLE})"


class Mirror(NamedTuple):
    """Where packages of the host's system lie, and the key that signs them, with armour.

    ``ca`` is a file of certificates, for a server of the site's own, and ``login`` is
    ``user:password`` for it.
    """

    url: str
    key: str
    ca: str = ""
    login: str = ""


class Outcome(NamedTuple):
    """What changed (or would, in check mode), or why nothing can."""

    changes: List[Change]
    problems: List[str]


def in_force(host: Host) -> Optional[str]:
    """The file by which packages come from the site's mirror alone, or None."""
    if host.exists(APT):
        return APT
    return DNF if DNF_LINE in (host.read(DNF) or "").splitlines() else None


def apt_files(mirror: Mirror) -> List[File]:
    """The files of a system with apt: the sources first, so that a run cut off leaves the old."""
    key = "".join(f" {line or '.'}\n" for line in mirror.key.strip().splitlines())
    place = urllib.parse.urlsplit(mirror.url)
    trusted = f'Acquire::https::{place.hostname}::CaInfo "{mirror.ca}";\n' if mirror.ca else ""
    return [
        *_apt_login(mirror, place.netloc + place.path),
        File(
            f"{APT_SOURCES}/mirror.sources",
            f"# {MARK}.\nTypes: deb\nURIs: {mirror.url}\nSuites: /\nSigned-By:\n{key}",
        ),
        File(
            APT,
            f"// {MARK}: packages come from the site's mirror alone.\n"
            'Dir::Etc::sourcelist "/dev/null";\n'
            f'Dir::Etc::sourceparts "{APT_SOURCES}";\n{trusted}',
        ),
    ]


def _apt_login(mirror: Mirror, place: str) -> List[File]:
    if not mirror.login:
        return []
    user, _, password = mirror.login.partition(":")
    text = f"# {MARK}.\nmachine {place} login {user} password {password}\n"
    return [File(APT_LOGIN, text, 0o600)]


def rpm_files(mirror: Mirror) -> List[File]:
    """The files of a system with dnf, but for the line in its own configuration."""
    return [
        File(RPM_KEY, f"# {MARK}.\n{mirror.key}"),
        File(
            f"{DNF_REPOSITORIES}/mirror.repo",
            f"# {MARK}.\n[bedplate-mirror]\nname=Packages of the site's mirror\n"
            f"baseurl={mirror.url}\nenabled=1\ngpgcheck=0\nrepo_gpgcheck=1\n"
            f"gpgkey=file://{RPM_KEY}\n" + _dnf_access(mirror),
            0o600 if mirror.login else 0o644,
        ),
    ]


def _dnf_access(mirror: Mirror) -> str:
    lines = [f"sslcacert={mirror.ca}"] if mirror.ca else []
    if mirror.login:
        user, _, password = mirror.login.partition(":")
        lines += [f"username={user}", f"password={password}"]
    return "".join(f"{line}\n" for line in lines)


def with_line(text: str) -> str:
    """dnf's configuration with the line that has it read our repositories alone.

    Raises ValueError where it names another folder of repositories, or cannot be read.
    """
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error).splitlines()[0]) from None
    if not parser.has_section("main"):
        return f"{text}[main]\n{DNF_LINE}\n"
    other = parser.get("main", "reposdir", fallback="")
    if other == DNF_REPOSITORIES:
        return text
    if other:
        raise ValueError(f"reposdir={other}")
    lines = text.splitlines(True)
    at = next(n for n, line in enumerate(lines) if line.strip() == "[main]")
    if not lines[at].endswith("\n"):
        lines[at] += "\n"
    return "".join([*lines[: at + 1], DNF_LINE + "\n", *lines[at + 1 :]])


def use(host: Host, family: str, mirror: Mirror, check: bool = False) -> Outcome:
    """Have packages come from the mirror alone."""
    if family == "Debian":
        files = apt_files(mirror)
        done = ensure_files(host, files, check=check)
        gone = [] if done.problems else take_back(host, [APT_LOGIN], files, check)
        return Outcome([*done.changes, *gone], done.problems)
    before = host.read(DNF) or ""
    try:
        after = with_line(before)
    except ValueError as error:
        refused = problem(
            "dnf reads its repositories from a folder of your own",
            f"{os.uname().nodename}:{DNF}",
            str(error),
            "no reposdir",
            "Remove the line, and run the play again: the folder itself may stay.",
        )
        return Outcome([], [refused])
    done = ensure_files(host, rpm_files(mirror), check=check)
    if done.problems or after == before:
        return Outcome(done.changes, done.problems)
    if not check:
        # The user's file: others may change it, and a reset takes the line out of it again.
        there = host.permissions(DNF)
        mode = there.mode if there else 0o644
        added = {"lines": [DNF_LINE]}
        text = host.read(DNF)
        owned.keep(host, [owned.Writing(DNF, after, mode, text, False, ROLE, added)])
        host.write(DNF, after, mode, there)
    return Outcome([*done.changes, Change(DNF, shown(before), shown(after))], [])
