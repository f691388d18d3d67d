"""dpkg's state and apt's package sources, read and edited without python3-apt."""

import fcntl
import re
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..host import Host, Result

# What `dpkg --configure -a` ends: unpacked, half configured or half installed packages, triggers
# that wait, packages to be installed anew. `dpkg --audit` also names packages without md5sums.
UNFINISHED = re.compile(r"^.(?:[UFHWt]|.R)", re.MULTILINE)
# How dpkg says that another process has its lock: before 1.20 "is locked", then with the process.
_LOCKED = re.compile(r"^dpkg: error: .*\blocked by .*\bprocess\b", re.MULTILINE)
STATUS = "${binary:Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n"
#: Modules that Ubuntu builds for each kernel, from one source for all drivers: only names tell.
APART = re.compile(r"linux-(?:modules|objects|signatures)-nvidia-")
#: How the names of kernels begin, and those of their headers.
IMAGE, HEADERS = "linux-image-", "linux-headers-"
#: Ubuntu's kernels before they are signed: what follows them has no headers of its own.
UNSIGNED = "unsigned-"
_LINE = re.compile(
    r"^(?P<head>\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?\S+\s+(?P<suite>\S+)\s+)(?P<components>[^#\n]*?)(?P<tail>\s*(?:#.*)?)$"
)


class Package(NamedTuple):
    """An installed package; ``held`` keeps upgrades away from it."""

    version: str
    held: bool


def installed(host: Host, names: Sequence[str]) -> Dict[str, Package]:
    """Those of ``names`` that are installed and configured."""
    if not names:
        return {}
    answer = host.run(["dpkg-query", "--show", "--showformat=" + STATUS, *sorted(names)])
    found = {}
    # dpkg-query exits 1 when it does not know one of the names, and still prints the others.
    for line in answer.out.splitlines():
        fields = line.split("\t")
        if len(fields) == 4 and fields[3] == "installed":
            found[fields[0].split(":")[0]] = Package(fields[1], fields[2] == "hold")
    return found


def flavours(host: Host, prefix: str) -> Dict[str, bool]:
    """Flavours of kernels whose newest one an installed package follows, each with its hold.

    ``prefix`` is what their names begin with. A kernel's own package goes on with its version; what
    draws in new ones has the flavour alone.
    """
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev}\n"]
    found = {}
    for line in host.run([*query, prefix + "*"]).out.splitlines():
        name, _, status = line.partition(" ")
        flavour = name[len(prefix) :]
        kind = flavour.removeprefix(UNSIGNED)
        if status[:2] in ("ii", "hi") and not kind[:1].isdigit():
            found[flavour] = status.startswith("h")
    return found


def interrupted(host: Host) -> bool:
    """Whether an earlier dpkg run was cut off, so that ``dpkg --configure -a`` has work to do."""
    if host.list("/var/lib/dpkg/updates"):
        return True
    answer = host.run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\\n"])
    return answer.code != 0 or bool(UNFINISHED.search(answer.out))


#: apt holds the first, and dpkg the second: alone where the apt that started it was killed.
_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")


def locked(host: Host) -> bool:
    """Whether a package manager works right now."""
    for path in _LOCKS:
        with open(host.path(path), "a", encoding="utf-8") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
    return False


def mark(host: Host, verb: str, names: Sequence[str], seconds: float = 600) -> Result:
    """Have apt-mark ``hold`` packages, or ``unhold`` them, when no other process has dpkg's lock.

    apt-mark itself does not wait, and what a killed run has started may still mark the same ones.
    What it answers after ``seconds`` of waiting is returned, as is every other failure at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = host.run(["apt-mark", verb, *names])
        locked = answer.code != 0 and _LOCKED.search(answer.err)
        if not locked or time.monotonic() > deadline:
            return answer
        time.sleep(1)


def exact(wished: str) -> bool:
    """Whether a wish names one version: an empty one takes any, ``20.10*`` all that begin so."""
    return bool(wished) and not wished.endswith("*")


def matches(version: str, wished: str) -> bool:
    """Whether ``version`` is a wished one."""
    return version == wished if exact(wished) else version.startswith(wished.rstrip("*"))


def differing(have: Mapping[str, Package], wish: Mapping[str, str]) -> List[str]:
    """Names whose installed version is not a wished one, sorted."""
    return sorted(n for n, v in wish.items() if n not in have or not matches(have[n].version, v))


def _suites(codename: str) -> Sequence[str]:
    return (codename, codename + "-updates", codename + "-security")


def _extended(components: str, wanted: Sequence[str]) -> Optional[str]:
    have = components.split()
    if "main" not in have:
        return None
    missing = [c for c in wanted if c not in have]
    return " ".join(have + missing) if missing else None


def extend_line_style(text: str, codename: str, wanted: Sequence[str]) -> str:
    """``sources.list`` text whose entries of this release also offer ``wanted``."""
    lines = []
    for line in re.split(r"(?<=\n)", text):
        end = line[len(line.rstrip("\r\n")) :]
        found = _LINE.match(line.rstrip("\r\n"))
        if found and found.group("suite").rstrip("/") in _suites(codename):
            more = _extended(found.group("components"), wanted)
            if more is not None:
                line = found.group("head") + more + found.group("tail") + end
        lines.append(line)
    return "".join(lines)


def extend_deb822(text: str, codename: str, wanted: Sequence[str]) -> str:
    """The same for a ``.sources`` file: only ``Components`` of matching stanzas changes."""
    stanzas = re.split(r"(\n[ \t\r]*\n)", text)
    for number, stanza in enumerate(stanzas):
        fields = {}
        for line in stanza.splitlines():
            key, separator, value = line.partition(":")
            if separator and not line.startswith(("#", " ", "\t")):
                fields[key.strip().lower()] = value.strip()
        if not set(fields.get("suites", "").split()) & set(_suites(codename)):
            continue
        more = _extended(fields.get("components", ""), wanted)
        if more is not None:
            stanzas[number] = re.sub(
                r"(?mi)^(components[ \t]*:[ \t]*)[^\r\n]*", lambda m, c=more: m.group(1) + c, stanza
            )
    return "".join(stanzas)


def extend_sources(host: Host, codename: str, wanted: Sequence[str]) -> Dict[str, Tuple[str, str]]:
    """Files that must change, each with its text before and after.

    Only entries of this release that offer ``main`` are touched, whatever their address is: a
    mirror stays the mirror that the user chose.
    """
    names = ["/etc/apt/sources.list"]
    names += ["/etc/apt/sources.list.d/" + n for n in host.list("/etc/apt/sources.list.d")]
    changes = {}
    for name in names:
        before = host.content(name)
        if before is None:
            continue
        if name.endswith(".sources"):
            after = extend_deb822(before, codename, wanted)
        elif name.endswith(".list"):
            after = extend_line_style(before, codename, wanted)
        else:
            continue
        if after != before:
            changes[name] = (before, after)
    return changes


def preferences(host: Host, wish: Mapping[str, str], along: Sequence[str] = ()) -> str:
    """apt preferences that also take what the wished packages depend on at the wished versions.

    A driver's packages depend on each other at exactly their own version. Where the index has a
    newer one too, apt takes that for those which are not named: "held broken packages". What the
    user prefers stays in front. ``along`` are patterns of what may come in any version, although
    the source that has it stands behind what is installed.
    """
    mine = [
        f"Package: ?*\nPin: version {version}\nPin-Priority: 1001\n"
        for version in sorted(set(filter(exact, wish.values())))
    ]
    if along:
        mine.append(f"Package: {' '.join(along)}\nPin: version *\nPin-Priority: 500\n")
    theirs = host.read("/etc/apt/preferences")
    return "\n".join(([theirs.rstrip("\n") + "\n"] if theirs else []) + mine)


def owners(host: Host, paths: Sequence[str]) -> Dict[str, str]:
    """The package that owns each of ``paths``; those of no package are left out."""
    if not paths:
        return {}
    answer = host.run(["dpkg-query", "--search", *paths])
    found = {}
    # dpkg-query exits 1 when a file is of no package, and still prints the others. Diversions and
    # several owners ("a, b: /path") are no driver's: the first owner will do.
    for line in answer.out.splitlines():
        names, separator, path = line.partition(": ")
        if separator and not line.startswith("diversion "):
            found[path] = names.split(",")[0].split(":")[0]
    return found


def unfinished(host: Host) -> Dict[str, str]:
    """Versions of the packages that an interrupted or failed dpkg run left in between, by name."""
    form = "--showformat=${db:Status-Abbrev}\t${Package}\t${Version}\n"
    rows = (line.split("\t") for line in host.run(["dpkg-query", "--show", form]).out.splitlines())
    return {row[1]: row[2] for row in sorted(rows) if UNFINISHED.match(row[0])}


def there(host: Host, names: Sequence[str]) -> List[str]:
    """Those of ``names`` that are on the host in any state but removed, sorted."""
    if not names:
        return []
    answer = host.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status}\\t${Package}\\n", *sorted(names)]
    )
    lines = (line.partition("\t") for line in answer.out.splitlines())
    return sorted({n for state, _, n in lines if state not in ("not-installed", "config-files")})


def offered(host: Host, names: Sequence[str]) -> Dict[str, Set[str]]:
    """The versions of each package that apt's index, as it was last fetched, has."""
    found: Dict[str, Set[str]] = {name: set() for name in names}
    if not names:
        return found
    answer = host.run(["apt-cache", "madison", *names])
    for line in answer.out.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) > 1 and fields[0] in found:
            found[fields[0]].add(fields[1])
    return found


def archive(host: Host, folder: str, name: str, version: str) -> str:
    """The .deb file of this very version that ``folder`` keeps; empty where it keeps none."""
    wanted = "{}_{}_".format(name, version.replace(":", "%3a"))
    kept = [f for f in host.list(folder) if f.startswith(wanted) and f.endswith(".deb")]
    return f"{folder}/{kept[0]}" if kept else ""


def superfluous(host: Host, folder: str, keep: Sequence[Mapping[str, str]]) -> List[str]:
    """Files in ``folder`` that are no archive of any of the kept package versions.

    Whatever the name is: what came along with a driver's package has its version.
    """
    versions = {v.replace(":", "%3a") for packages in keep for v in packages.values()}
    archives = [f for f in host.list(folder) if f.endswith(".deb")]
    return [f"{folder}/{f}" for f in archives if not versions.intersection(f.split("_")[1:2])]


def sources(host: Host, names: Sequence[str]) -> Dict[str, str]:
    """The source package that each of ``names`` was built from."""
    if not names:
        return {}
    show = "--showformat=${Package}\\t${source:Package}\\n"
    answer = host.run(["dpkg-query", "--show", show, *names])
    rows = (line.partition("\t") for line in answer.out.splitlines())
    return {name: source for name, _, source in rows if source}


def siblings(host: Host, names: Sequence[str]) -> List[str]:
    """A driver's ``names``, and every other package on the host that it is made of, sorted.

    Those are from the same source packages, or are modules that Ubuntu builds apart.
    """
    if not names:
        return []
    show = "--showformat=${db:Status-Status}\\t${Package}\\t${source:Package}\\n"
    rows = [line.split("\t") for line in host.run(["dpkg-query", "--show", show]).out.splitlines()]
    there = [row for row in rows if row[0] not in ("not-installed", "config-files")]
    built_from = {source for _, name, source in there if name in names}
    more = (name for _, name, source in there if source in built_from or APART.match(name))
    return sorted({*names, *more})


def along(host: Host, names: Sequence[str], brought: Sequence[Mapping[str, str]]) -> List[str]:
    """Those of ``names`` that came along with what was brought, in whatever state they are.

    They are built from the source package of one of those packages, and at its version.
    """
    packages = sorted({name for versions in brought for name in versions})
    if not names or not packages:
        return []
    show = "--showformat=${Package}\\t${Version}\\t${source:Package}\\n"
    answer = host.run(["dpkg-query", "--show", show, *sorted({*names, *packages})])
    rows = [line.split("\t") for line in answer.out.splitlines()]
    have = {name: (source, version) for name, version, source in rows if source}
    ours = {
        (have[name][0], version)
        for versions in brought
        for name, version in versions.items()
        if name in have
    }
    return sorted(name for name in names if have.get(name) in ours)


def removed_by(simulated: str) -> List[str]:
    """Packages that a transaction would remove, from what ``apt-get --simulate`` printed."""
    return sorted(
        {
            line.split()[1].split(":")[0]
            for line in simulated.splitlines()
            if line.startswith("Remv ")
        }
    )


def unattended_blacklist(owner: str, names: Sequence[str]) -> str:
    """apt configuration that keeps unattended upgrades away from packages, beside their hold."""
    exact = (re.sub("([.+])", r"[\1]", name) for name in sorted(names))
    lines = "".join(f'  "^{name}$";\n' for name in exact)
    return (
        f"// Managed by Bedplate ({owner}): changes here are lost.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
    )
