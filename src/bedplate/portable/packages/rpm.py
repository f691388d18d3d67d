"""rpm's state, dnf's version locks, and what a cut-off dnf leaves, read without rpm's bindings.

The bindings exist for the system's own Python only, which need not be the one that modules run on.
"""

import fcntl
import fnmatch
import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from .. import documents
from ..host import Host

QUERY = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{ARCH}\n"
#: Written before a transaction starts and removed after it ended well: a package whose files are
#: there and whose scripts never ran looks installed to rpm.
JOURNAL = "/var/lib/bedplate/dnf-transaction.json"
VERSIONLOCK = "/etc/dnf/plugins/versionlock.conf"
LOCK_LIST = "/etc/dnf/plugins/versionlock.list"
MARK = "# Bedplate: "
_LOCK_LIST = re.compile(r"^\s*locklist\s*=\s*(\S+)", re.MULTILINE)
_SECTION = re.compile(r"^(?P<title>[A-Z][^:]*):$")
_ROW = re.compile(r"^ (?P<name>\S+)(?:\s+\S+.*)?$")
_NOBODY = "no package provides "
_UNFINISHED = re.compile(r".;[0-9a-f]{8}$")
_REPLACING = re.compile(r"^\s+replacing\s+(?P<name>\S+?)\.\w+\s")


class Package(NamedTuple):
    """An installed package; ``evr`` is epoch:version-release."""

    name: str
    evr: str
    arch: str


def normal(evr: str) -> str:
    """A version with its epoch: rpm knows none of it as 0."""
    return evr if ":" in evr else "0:" + evr


def query(host: Host, names: Sequence[str]) -> List[Package]:
    """What is installed of ``names`` (or name-version-release.arch), every version of it."""
    if not names:
        return []
    answer = host.run(["rpm", "--query", "--queryformat", QUERY, *sorted(names)])
    # rpm says about the others, on the same stream, that they are not installed.
    rows = (line.split("\t") for line in answer.out.splitlines())
    return [Package(*row) for row in rows if len(row) == 3]


def unprovided(host: Host, names: Sequence[str]) -> List[str]:
    """Those of ``names`` that no installed package has as its name, or as what it provides.

    All of them where rpm does not answer: a transaction then says why.
    """
    if not names:
        return []
    answer = host.run(["rpm", "--query", "--whatprovides", *sorted(names)])
    if answer.code == 0:
        return []
    missing = {line.partition(_NOBODY)[2] for line in answer.out.splitlines()} & set(names)
    return sorted(missing or names)


def providers(host: Host, names: Sequence[str]) -> List[Package]:
    """The installed packages that provide ``names``."""
    return query(host, ["--whatprovides", *sorted(names)]) if names else []


def versions(packages: Sequence[Package]) -> Dict[str, List[str]]:
    """Installed versions by name, in rpm's order."""
    found: Dict[str, List[str]] = {}
    for package in packages:
        found.setdefault(package.name, []).append(package.evr)
    return found


def differing(have: Mapping[str, Sequence[str]], wish: Mapping[str, str]) -> List[str]:
    """Names of which not just the wished version is installed, sorted."""
    return sorted(n for n, evr in wish.items() if list(have.get(n, [])) != [normal(evr)])


def drop_leftovers(host: Host, names: Sequence[str]) -> None:
    """Remove what a cut-off transaction has unpacked beside these packages' files.

    rpm writes each file under a name with the transaction's number and renames it when it is
    whole. Nobody else takes the others away. Only for when no transaction is under way.
    """
    if not names:
        return
    answer = host.run(["rpm", "--query", "--list", *sorted(names)])
    # Of a package that is not installed rpm says so in words.
    folders = {os.path.dirname(line) for line in answer.out.splitlines() if line.startswith("/")}
    for folder in sorted(folders):
        for name in filter(_UNFINISHED.search, host.list(folder)):
            host.remove(f"{folder}/{name}")


def busy(host: Host) -> bool:
    """Whether a package manager changes rpm's database right now."""
    name = host.run(["rpm", "--eval", "%_dbpath"]).out.strip() + "/.rpm.lock"
    if not host.exists(name):
        return False
    with open(host.path(name), "a", encoding="utf-8") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def journal(host: Host) -> Optional[Dict[str, str]]:
    """The packages of a transaction that never ended; None where every one did."""
    text = host.read(JOURNAL)
    if text is None:
        return None
    return {n: v for n, v in documents.table(text).items() if isinstance(v, str)}


def lock_list(host: Host) -> str:
    """The file that holds the version locks."""
    found = _LOCK_LIST.search(host.read(VERSIONLOCK) or "")
    return found.group(1) if found else LOCK_LIST


def lock_pattern(name: str, evr: str) -> str:
    """A package at a version as the versionlock plugin writes it."""
    return f"{name}-{normal(evr)}.*"


def locked(host: Host, package: Package) -> bool:
    """Whether a lock keeps a package at its version."""
    spec = f"{package.name}-{package.evr}.{package.arch}"
    return any(fnmatch.fnmatchcase(spec, line) for line in _entries(host.read(lock_list(host))))


def _entries(text: Optional[str]) -> List[str]:
    lines = (line.partition("#")[0].strip() for line in (text or "").splitlines())
    return [line for line in lines if line and not line.startswith("!")]


def with_locks(text: str, wish: Mapping[str, str], gone: Sequence[str] = ()) -> str:
    """The lock list with the wished versions in place of other locks of ours on the same names.

    Locks of the user stay, on the same names too: of several on a name dnf offers each version.
    """
    kept = without_own(text, [*wish, *gone])
    for name in sorted(wish):
        kept += "" if kept.endswith("\n") or not kept else "\n"
        kept += f"{MARK}{name} stays at its version\n{lock_pattern(name, wish[name])}\n"
    return kept


def own(text: str) -> List[str]:
    """The names whose locks in a list are ours, sorted."""
    lines = (line[len(MARK) :] for line in text.splitlines() if line.startswith(MARK))
    return sorted({line.split(" ")[0] for line in lines})


def others(text: str) -> List[str]:
    """The locks in a list that are not ours, as they are written there."""
    return _entries(without_own(text, own(text)))


def without_own(text: str, names: Sequence[str]) -> str:
    """The lock list without the locks on ``names`` that `with_locks` wrote; the user's stay."""
    kept: List[str] = []
    marked = ""
    for line in re.split(r"(?<=\n)", text):
        before, marked = marked, line[len(MARK) :].split(" ")[0] if line.startswith(MARK) else ""
        if marked not in names and not (before in names and name_of(line.strip()) == before):
            kept.append(line)
    return "".join(kept)


def name_of(entry: str) -> str:
    """The name, which may have dashes itself, in ``name-version-release.arch`` or a lock."""
    return entry.rsplit("-", 2)[0] if entry.count("-") >= 2 else entry


def removals(plan: str, sections: str = "Removing") -> List[str]:
    """The packages that a plan of dnf (what ``--assumeno`` prints) takes away, sorted.

    Sections whose title begins so list them, rows below an installation name what that one
    replaces.
    """
    found, section = set(), ""
    for line in plan.splitlines():
        title, row = _SECTION.match(line), _ROW.match(line)
        replaced = _REPLACING.match(line)
        if title:
            section = title.group("title")
        elif replaced:
            found.add(replaced.group("name"))
        elif not line.strip() or not line.startswith(" "):
            section = section if line.strip() else ""
        elif row and section.startswith(sections):
            found.add(row.group("name"))
    return sorted(found)
