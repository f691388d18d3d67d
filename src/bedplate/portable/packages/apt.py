"""One apt transaction: exact versions in, what they replace out, and never anything else out."""

import re
from typing import List, Mapping, NamedTuple, Sequence, Tuple

from .. import dkms
from ..host import Host, Result, make_folders
from . import debian
from .transaction import TransactionError

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
KEEP_CONFIGURATION = ("--force-confdef", "--force-confold")
#: What apt says where it would have to remove something and may not.
REMOVE_DISABLED = "remove is disabled"
#: What it says where the index knows a file that the source no longer has.
VANISHED = "Unable to fetch some archives"
#: A driver's package may build a module for every kernel that is there.
INSTALL_SECONDS = 7200


class Wish(NamedTuple):
    """What the host is to have, and how.

    ``packages`` are versions by name, as `debian.matches` takes them. ``remove`` names packages
    that go in the same transaction. ``archives`` is a folder that keeps the .deb files, empty for
    apt's own; ``preserve`` are versions that must stay installable from it. ``work`` is a folder
    for temporary files, ``lock_timeout`` in seconds. ``refresh`` fetches the index in any case.
    ``along`` are patterns of packages that may come along, as `debian.preferences` takes them.
    """

    packages: Mapping[str, str]
    remove: Sequence[str] = ()
    archives: str = ""
    preserve: Mapping[str, str] = {}
    work: str = "/tmp"  # noqa: S108 the module gives its own
    lock_timeout: int = 600
    refresh: bool = False
    along: Sequence[str] = ()

    @property
    def apt(self) -> List[str]:
        """apt-get with what holds for each of its calls."""
        options = [f"DPkg::Lock::Timeout={self.lock_timeout}"]
        options += [f"Dpkg::Options::={option}" for option in KEEP_CONFIGURATION]
        if self.archives:
            options += [f"Dir::Cache::archives={self.archives}/"]
        return ["apt-get", "-q", "-y", *(part for o in options for part in ("-o", o))]


def mend(host: Host, wish: Wish) -> str:
    """Finish an interrupted dpkg run, as far as that can be done; empty, or why it cannot.

    What is to be removed, or to be exchanged for another version, is not configured first: it may
    be there only because that fails. An unfinished package that waits for one which was not even
    unpacked is finished by the transaction itself, so a failure here is only final when that did
    not help.
    """
    if any(_goes(wish, *package) for package in debian.unfinished(host).items()):
        # apt refuses to work while dpkg's journal is there; any dpkg that writes takes it in.
        answer = host.run(["dpkg", "--set-selections"], environment=ENVIRONMENT)
    else:
        argv = ["dpkg", *KEEP_CONFIGURATION, "--configure", "-a"]
        answer = host.run(argv, timeout=INSTALL_SECONDS, environment=ENVIRONMENT)
    return "" if answer.code == 0 else _errors(host, answer.out, answer.err) or answer.said


def _goes(wish: Wish, name: str, version: str) -> bool:
    wished = wish.packages.get(name, version)
    return name in wish.remove or not debian.matches(version, wished)


def _errors(host: Host, out: str, err: str) -> str:
    # dpkg says the reason below what failed, a word further in; apt gives it a terminal.
    said = re.sub(r"(?<=\S)\r?\n (?=\S)", " ", err + "\n" + out)
    lines = said.splitlines()
    # What dpkg says is the cause, wherever apt has printed it.
    errors = [
        line.strip() for start in ("dpkg: error", "E:") for line in lines if line.startswith(start)
    ]
    build = dkms.failure(host, out + err)
    return "; ".join(([f"DKMS: {build}"] if build else []) + errors)


def _arguments(host: Host, wish: Wish, names: Sequence[str], kept: bool) -> List[str]:
    """What apt is asked for: all exact versions, so that nothing of them moves on its own."""
    asked = []
    for name in sorted(wish.packages):
        version = wish.packages[name]
        if name not in names and not debian.exact(version):
            continue  # it is there, and named again it would be upgraded
        file = debian.archive(host, wish.archives, name, version) if kept and name in names else ""
        asked.append(host.path(file) if file else _named(wish, name))
    if kept:
        asked += [host.path(file) for file in _kept_along(host, wish)]
    return asked + [f"{name}-" for name in sorted(wish.remove)]


def _kept_along(host: Host, wish: Wish) -> List[str]:
    """Kept files of what is there beside the wish's packages, built together with them.

    They need it at their own version, and apt looks for it in its sources alone.
    """
    others = set(debian.siblings(host, sorted(wish.packages))) - {*wish.packages, *wish.remove}
    versions = sorted(set(filter(debian.exact, wish.packages.values())))
    files = (debian.archive(host, wish.archives, n, v) for n in sorted(others) for v in versions)
    return [file for file in files if file]


def _named(wish: Wish, name: str) -> str:
    return "=".join(filter(None, (name, wish.packages[name])))


def _unknown(host: Host, wish: Wish, names: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Names whose versions the index does not offer: those to be had nowhere, and those kept."""
    versions = debian.offered(host, names)
    lacking = [
        n for n in names if not any(debian.matches(v, wish.packages[n]) for v in versions[n])
    ]
    kept = [n for n in lacking if debian.archive(host, wish.archives, n, wish.packages[n])]
    return [n for n in lacking if n not in kept], kept


def _transaction(
    host: Host, wish: Wish, names: Sequence[str], kept: bool
) -> Tuple[List[str], List[str]]:
    """apt-get with all that holds for this transaction, and what it is asked for."""
    pins = f"{wish.work}/preferences"
    host.write(pins, debian.preferences(host, wish.packages, wish.along))
    options = ["-o", f"Dir::Etc::preferences={host.path(pins)}", "--no-install-recommends"]
    options += ["--allow-downgrades", "--allow-change-held-packages"]
    return [*wish.apt, *options], _arguments(host, wish, names, kept)


def foresee(host: Host, wish: Wish, names: Sequence[str]) -> None:
    """Refuse what `run` would refuse for its removals, as far as the host's index tells.

    Nothing is changed. Raises `TransactionError`.
    """
    unknown, in_archives = _unknown(host, wish, names)
    if not unknown:
        apt, asked = _transaction(host, wish, names, kept=bool(in_archives))
        _refuse_more_removals(host, wish, apt, asked)


def run(host: Host, wish: Wish, names: Sequence[str]) -> None:
    """Bring ``names``, those of the wish that differ, and what goes, into their state at once.

    The index is fetched where it does not know a version, or a file that it knows is gone.
    Raises `TransactionError`.
    """
    unknown, in_archives = _unknown(host, wish, names)
    updated = bool(unknown) or wish.refresh
    if updated:
        in_archives = _update(host, wish, names)
    answer = _install(host, wish, names, kept=bool(in_archives))
    if answer.code != 0 and VANISHED in answer.err and not updated:
        in_archives = _update(host, wish, names)
        answer = _install(host, wish, names, kept=bool(in_archives))
    if answer.code != 0:
        raise TransactionError(
            "packages could not be installed",
            _errors(host, answer.out, answer.err) or answer.said,
            ", ".join(_named(wish, n) for n in sorted(wish.packages)),
            "Fix what apt says on the host and run the play again.",
        )


def update(host: Host, wish: Wish) -> None:
    """Fetch the index. Raises `TransactionError`."""
    answer = host.run([*wish.apt, "update"], timeout=600, environment=ENVIRONMENT)
    if answer.code != 0:
        raise TransactionError(
            "the package index cannot be fetched",
            answer.said,
            "'apt-get update' ends well",
            "Check the host's package sources and its way to them.",
        )


def _update(host: Host, wish: Wish, names: Sequence[str]) -> List[str]:
    """Fetch the index; those of ``names`` whose versions only the kept archives have."""
    update(host, wish)
    unknown, in_archives = _unknown(host, wish, names)
    if unknown:
        raise TransactionError(
            "packages are not offered by the host's package sources",
            "no " + ", ".join(_named(wish, n) for n in unknown),
            "every package, at the version that is named with it",
            "Point the sources at a mirror that has them; where a driver's version is gone, choose"
            " another one and run 'bedplate plan'.",
        )
    return in_archives


def _install(host: Host, wish: Wish, names: Sequence[str], kept: bool) -> Result:
    apt, asked = _transaction(host, wish, names, kept)
    # Where nothing is to go, apt itself sees to it that nothing does, without being asked before.
    if wish.remove:
        _refuse_more_removals(host, wish, apt, asked)
    keep_all = [] if wish.remove else ["--no-remove"]
    if wish.archives:
        make_folders(host.path(f"{wish.archives}/partial"))
    answer = host.run(
        [*apt, *keep_all, "install", *asked], timeout=INSTALL_SECONDS, environment=ENVIRONMENT
    )
    if keep_all and REMOVE_DISABLED in answer.err:
        _refuse_more_removals(host, wish, apt, asked)
    return answer


def _refuse_more_removals(host: Host, wish: Wish, apt: Sequence[str], asked: Sequence[str]) -> None:
    """apt removes whatever depends on what goes: that must not be more than what may go.

    The rest of a driver may go with it: what was built from the same source package.
    """
    answer = host.run([*apt, "--simulate", "install", *asked], timeout=300, environment=ENVIRONMENT)
    more = sorted(set(debian.removed_by(answer.out)) - set(wish.remove))
    built_from = debian.sources(host, [*wish.remove, *more]) if more else {}
    may_go = {built_from[name] for name in wish.remove if name in built_from}
    more = [name for name in more if built_from.get(name) not in may_go]
    if answer.code == 0 and more:
        raise TransactionError(
            "the change would remove packages that are not the role's",
            ", ".join(more),
            ", ".join(sorted(wish.remove)) or "no removal",
            "Remove them by hand if they are not needed, or keep the driver that they need.",
        )


def preserve(host: Host, wish: Wish) -> List[str]:
    """Fetch the .deb files of the versions to preserve; those that are not to be had any more.

    With them goes what came along with these packages, and is needed at their version.
    """
    others = sorted(set(debian.siblings(host, sorted(wish.preserve))) - set(wish.preserve))
    have = debian.installed(host, debian.along(host, others, [wish.preserve]))
    versions = {**wish.preserve, **{name: package.version for name, package in have.items()}}
    lacking = {n: v for n, v in versions.items() if not debian.archive(host, wish.archives, n, v)}
    if not lacking or not wish.archives:
        return []
    make_folders(host.path(f"{wish.archives}/partial"))
    offered = debian.offered(host, sorted(lacking))
    wanted = [f"{n}={v}" for n, v in sorted(lacking.items()) if v in offered[n]]
    if wanted:
        argv = [*wish.apt, "--download-only", "--reinstall", "--no-install-recommends"]
        argv += ["--allow-downgrades", "--allow-change-held-packages", "install", *wanted]
        host.run(argv, timeout=1800, environment=ENVIRONMENT)
    return sorted(n for n, v in lacking.items() if not debian.archive(host, wish.archives, n, v))
