"""One dnf transaction at exact versions: planned, refused, carried out, repaired when cut off.

dnf is asked through its command line: its Python bindings exist for the system's own Python only.
"""

import contextlib
import json
import os
import shutil
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence

from ..host import Host, Result
from . import rpm
from .transaction import TransactionError

ROW = "%{name}\t%{epoch}:%{version}-%{release}"
#: What brings the plugin that holds packages.
VERSIONLOCK_PACKAGE = "python3-dnf-plugin-versionlock"
OPTIONS = (
    "--assumeyes",
    "--setopt=install_weak_deps=False",
    "--setopt=clean_requirements_on_remove=False",
    # The digest of a package file was compared before; what it depends on has to be signed.
    "--setopt=localpkg_gpgcheck=False",
    "--color=never",
)
#: Gone with the next boot, like what is in it.
WORK = "/run/bedplate"
NOTHING_DONE = "Operation aborted."


class Wish(NamedTuple):
    """What the host is to have after one transaction.

    ``packages`` are versions by name, ``remove`` names that go, ``present`` names that are there in
    any version, be it as what another package provides (iptables, of iptables-nft). ``files`` are
    package files by the name in ``packages`` that they bring.
    """

    packages: Mapping[str, str]
    remove: Sequence[str] = ()
    present: Sequence[str] = ()
    files: Mapping[str, str] = {}

    def asked(self, name: str) -> str:
        """One of its packages as dnf takes it."""
        if name in self.files:
            return self.files[name]
        return exact(name, self.packages[name]) if name in self.packages else name


class Change(NamedTuple):
    """What a transaction has to do: names to install, names to remove."""

    install: List[str]
    remove: List[str]


def change(host: Host, wish: Wish) -> Change:
    """Compare a wish with what is installed."""
    have = rpm.versions(rpm.query(host, [*wish.packages, *wish.remove]))
    gone = [name for name in wish.remove if name in have and name not in wish.packages]
    lacking = rpm.unprovided(host, wish.present)
    return Change(sorted({*rpm.differing(have, wish.packages), *lacking}), sorted(gone))


def exact(name: str, evr: str) -> str:
    """A package at a version, as dnf takes it."""
    return f"{name}-{rpm.normal(evr)}"


def unoffered(host: Host, wish: Wish, names: Sequence[str], refresh: bool) -> List[str]:
    """Those of ``names`` that no repository has at the wished version, if one is wished."""
    pinned = [name for name in names if name in wish.packages]
    missing = []
    if pinned:
        rows = _repoquery(host, refresh, pinned)
        offered = {exact(name, evr) for name, _, evr in (row.partition("\t") for row in rows)}
        missing = [name for name in pinned if wish.asked(name) not in offered]
    # The first question fetches the index anew for all.
    fresh = bool(pinned)
    for name in names:
        if name in wish.packages:
            continue
        if not _repoquery(host, refresh and not fresh, ["--whatprovides", name]):
            missing.append(name)
        fresh = True
    return missing


def _repoquery(host: Host, refresh: bool, words: Sequence[str]) -> List[str]:
    argv = ["dnf", *OPTIONS, "--quiet", "repoquery", "--showduplicates", f"--queryformat={ROW}"]
    answer = host.run([*argv, *(["--refresh"] if refresh else []), *words], timeout=600)
    if answer.code != 0:
        raise TransactionError(
            "the package index cannot be fetched",
            answer.said,
            "'dnf makecache' ends well",
            "Check the host's repositories and its way to them.",
        )
    return answer.out.splitlines()


def require_offers(host: Host, wish: Wish, names: Sequence[str]) -> None:
    """Raise TransactionError unless all are offered; the index is fetched anew before."""
    names = [name for name in names if name not in wish.files]
    if not names or not unoffered(host, wish, names, refresh=False):
        return
    missing = unoffered(host, wish, names, refresh=True)
    if missing:
        raise TransactionError(
            "packages are not offered by the host's repositories",
            "no " + ", ".join(map(wish.asked, missing)),
            "every package, at the version that is named with it",
            "Point the repositories at a mirror that has them; where a driver's version is gone,"
            " choose another one and run 'bedplate plan'.",
        )


def _going_by(host: Host, locks: str, folder: str) -> str:
    """The option that has dnf go by these locks in place of the host's list."""
    host.write(f"{folder}/versionlock.list", locks)
    host.write(
        f"{folder}/plugins/versionlock.conf",
        f"[main]\nenabled = 1\nlocklist = {folder}/versionlock.list\n",
    )
    return f"--setopt=pluginconfpath=/etc/dnf/plugins,{folder}/plugins"


@contextlib.contextmanager
def lifted(host: Host, names: Sequence[str]) -> Iterator[List[str]]:
    """dnf's options under which our own locks on ``names`` do not count, while the user's do.

    A lock keeps a name at one version, so that of the kernel which is left shuts out the next one,
    which is installed beside it.
    """
    text = host.read(rpm.lock_list(host)) or ""
    others = rpm.without_own(text, names)
    if others == text:
        yield []
        return
    folder = f"{WORK}/dnf-{os.getpid()}"
    try:
        yield [_going_by(host, others, folder)]
    finally:
        # What went wrong before the folder was there is to be told, not that it is absent.
        shutil.rmtree(host.path(folder), ignore_errors=True)


def _shell(host: Host, wish: Wish, todo: Change, folder: str, options: Sequence[str]) -> Result:
    """Let dnf install and remove in one transaction, with its own locks on these names lifted.

    Locks of the user on other packages count. Those on ours are put at the wished versions, so
    that what depends on them exactly is found at the same one.
    """
    locks = rpm.with_locks(host.read(rpm.lock_list(host)) or "", wish.packages, wish.remove)
    plugins = _going_by(host, locks, folder)
    lines = ["install " + " ".join(map(wish.asked, todo.install))]
    lines += ["remove " + " ".join(todo.remove)] if todo.remove else []
    host.write(f"{folder}/transaction", "\n".join(line for line in [*lines, "run"] if line) + "\n")
    argv = ["dnf", *options, plugins, "shell", f"{folder}/transaction"]
    return host.run(argv, timeout=3600)


def planned_removals(host: Host, wish: Wish, todo: Change, folder: str) -> List[str]:
    """What dnf would take away. Raises TransactionError where it finds no way."""
    options = [*OPTIONS[1:], "--assumeno"]
    answer = _shell(host, wish, todo, folder, options)
    if NOTHING_DONE not in answer.out + answer.err:
        raise TransactionError(
            "packages could not be installed",
            errors(answer),
            ", ".join(map(wish.asked, todo.install)) or "removals",
            "Fix what dnf says on the host and run the play again.",
        )
    return rpm.removals(answer.out)


def removed_with(host: Host, names: Sequence[str]) -> List[str]:
    """What dnf would take away if it removed ``names``, those and what depends on them, sorted."""
    argv = ["dnf", *OPTIONS[1:], "--assumeno", "--disableplugin=versionlock", "remove", *names]
    return rpm.removals(host.run(argv, timeout=600).out)


def carry_out(host: Host, wish: Wish, folder: str) -> Change:
    """Bring the packages to the wish in one transaction; what was done.

    Raises:
        TransactionError: a version is not offered, packages that are not the caller's to remove
            would go, or dnf failed. Nothing was changed then, unless dnf failed half-way.
    """
    todo = change(host, wish)
    if not todo.install and not todo.remove:
        return todo
    if todo.install:
        require_offers(host, wish, todo.install)
    gone = planned_removals(host, wish, todo, folder)
    allowed = {*wish.remove, *wish.packages}
    foreign = [name for name in gone if name not in allowed]
    if foreign:
        raise TransactionError(
            "the change would remove packages that are not allowed to go",
            ", ".join(foreign),
            ", ".join(wish.remove) or "none",
            "Remove them yourself, or allow their removal.",
        )
    # Of the others those alone that are missing: a kernel may be there in several versions.
    names = [*wish.packages, *todo.install]
    journal = {name: wish.files.get(name) or wish.packages.get(name, "") for name in names}
    host.write(rpm.JOURNAL, json.dumps(journal, sort_keys=True) + "\n")
    answer = _shell(host, wish, todo, folder, OPTIONS)
    left = change(host, wish)
    if answer.code != 0 or left.install or left.remove:
        raise TransactionError(
            "packages could not be installed",
            errors(answer),
            ", ".join(map(wish.asked, todo.install)),
            "Fix what dnf says on the host and run the play again.",
        )
    rpm.drop_leftovers(host, names)
    host.remove(rpm.JOURNAL)
    return todo


def errors(answer: Result) -> str:
    lines = [line.strip() for line in (answer.err + answer.out).splitlines()]
    told = [line for line in lines if line.startswith(("Error", "error:", "Problem", "- "))]
    return " ".join(told) or answer.said


def repair(host: Host) -> bool:
    """Finish what a cut-off transaction left; whether there was anything.

    A package may be there twice (the new one unpacked, the old one not yet removed), and scripts
    of one that looks installed may never have run: the older goes, the newer is put in again, from
    the file where it came from one.
    """
    packages = rpm.journal(host)
    if packages is None:
        return False
    if host.run(["rpm", "--verifydb"], timeout=600).code != 0:
        _must(host, ["rpm", "--rebuilddb"])
    files = {name: wished for name, wished in packages.items() if wished.startswith("/")}
    brought = of_files(host, [path for path in files.values() if host.exists(path)])
    wished = {**packages, **dict.fromkeys(files, ""), **brought.packages}
    have = rpm.versions(rpm.query(host, sorted(packages)))
    for name, versions in have.items():
        keep = rpm.normal(wished[name]) if len(versions) > 1 and wished[name] else versions[-1]
        stays = keep if keep in versions else versions[-1]
        old = [f"{name}-{evr}" for evr in versions if evr != stays]
        if old:
            _must(host, ["rpm", "--erase", "--nodeps", "--noscripts", *old])
        have[name] = [stays]
    again = [
        brought.files[name]
        if name in brought.packages and versions == [rpm.normal(brought.packages[name])]
        else exact(name, versions[0])
        for name, versions in have.items()
    ]
    # What was asked for by what it provides: its package, of which there may be several versions.
    others = [name for name, version in packages.items() if not version and name not in have]
    again += [exact(one.name, one.evr) for one in rpm.providers(host, others)]
    if again:
        argv = ["dnf", *OPTIONS, "--disableplugin=versionlock", "reinstall", *again]
        answer = host.run(argv, timeout=3600)
        # A version that is no longer offered cannot be put in again; the transaction that follows
        # brings another one, or finds it as it should be.
        if answer.code != 0 and not _unavailable(answer):
            raise TransactionError(
                "an interrupted package installation cannot be finished",
                errors(answer),
                "'dnf reinstall' ends well",
                "Run it by hand, fix what it says, and run the play again.",
            )
    rpm.drop_leftovers(host, list(have))
    host.remove(rpm.JOURNAL)
    return True


def _unavailable(answer: Result) -> bool:
    return "not available" in answer.out + answer.err


def of_files(host: Host, paths: Sequence[str]) -> Wish:
    """The packages that lie in files, each at its own version. Raises TransactionError."""
    packages, files = {}, {}
    for path in paths:
        answer = host.run(["rpm", "--query", "--queryformat", rpm.QUERY, "--package", path])
        fields = answer.out.split("\t")
        if answer.code != 0 or len(fields) != 3:
            raise TransactionError(
                "a package file cannot be read",
                f"{path}: {answer.said}",
                "an rpm package",
                "Bring the right file to the host.",
            )
        packages[fields[0]], files[fields[0]] = fields[1], path
    return Wish(packages, files=files)


def _must(host: Host, argv: Sequence[str]) -> None:
    answer = host.run(argv, timeout=1800)
    if answer.code != 0:
        raise TransactionError(
            "an interrupted package installation cannot be finished",
            answer.said,
            f"'{' '.join(argv)}' ends well",
            "Run it by hand, fix what it says, and run the play again.",
        )


def have_versionlock(host: Host, package: str = VERSIONLOCK_PACKAGE) -> None:
    """Install the plugin that holds packages. Raises TransactionError where nobody offers it."""
    if host.exists(rpm.VERSIONLOCK):
        return
    answer = host.run(["dnf", *OPTIONS, "install", package], timeout=1800)
    if answer.code != 0:
        raise TransactionError(
            "dnf's versionlock plugin cannot be installed",
            answer.said,
            package,
            "Offer it to the host: the distribution has it.",
        )


def unlocked(host: Host, wish: Mapping[str, str]) -> List[str]:
    """Those of the wished packages that no lock keeps at their version."""
    return sorted(
        name
        for name, evr in wish.items()
        if not rpm.locked(host, rpm.Package(name, rpm.normal(evr), "x86_64"))
    )


def lock(host: Host, wish: Wish) -> None:
    """Keep the wished packages at their versions."""
    path = rpm.lock_list(host)
    host.write(path, rpm.with_locks(host.content(path) or "", wish.packages, wish.remove))


def described(versions: Mapping[str, Sequence[str]], held: Dict[str, bool]) -> str:
    """Packages with versions and locks, one line each."""
    return "".join(
        f"{name} {', '.join(versions.get(name, [])) or 'absent'}{' held' if held[name] else ''}\n"
        for name in sorted(held)
    )
