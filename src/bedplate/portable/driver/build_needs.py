"""What a driver's module is built with: the running kernel's headers, and DKMS itself.

No driver's package brings the headers along: Debian's dkms only recommends them, and NVIDIA's
packages do not know which kernel runs. A host without them ends with a source that nobody built.
"""

from typing import List, NamedTuple, Sequence

from .. import os_release
from ..host import Host
from ..packages import apt, debian, dnf, rpm
from ..packages.transaction import TransactionError, await_turn
from .state import HEADERS

DEVEL = "kernel-devel-"
DKMS = "dkms"


class Needs(NamedTuple):
    """Packages to install, and those that are wanted and offered by no source."""

    install: List[str]
    missing: List[str]


def wanted(host: Host, release: str, dkms: bool) -> List[str]:
    """The packages that are absent: a kernel's headers, what follows its updates, and DKMS."""
    there = host.exists(HEADERS.format(release))
    if os_release.family(host) == "RedHat":
        names = [] if there else [DEVEL + release]
        lacks = dkms and host.run(["rpm", "--query", DKMS]).code != 0
        return [*names, DKMS] if lacks else names
    names = [] if there else [debian.HEADERS + release]
    for flavour, held in debian.flavours(host, debian.IMAGE).items():
        # One that is held draws in nothing: the site pins a kernel, whose headers its role brings.
        if not held and not flavour.startswith(debian.UNSIGNED):
            names.append(debian.HEADERS + flavour)
    have = debian.installed(host, [*names, DKMS])
    return [name for name in [*names, *([DKMS] if dkms else [])] if name not in have]


def needs(host: Host, names: Sequence[str], refresh: bool) -> Needs:
    """Those of ``names`` that the sources offer, and the others. Raises TransactionError.

    ``refresh`` has apt fetch its index where it does not know one of them. An index that cannot be
    fetched keeps nobody from a driver whose packages are there.
    """
    if os_release.family(host) == "RedHat":
        offered = {name: _offered_by_dnf(host, name) for name in names}
    else:
        offered = {name: bool(found) for name, found in debian.offered(host, names).items()}
        if refresh and not all(offered.values()):
            try:
                apt.update(host, apt.Wish({}))
            except TransactionError:
                if not offered.get(DKMS, True):
                    raise
            offered = {name: bool(found) for name, found in debian.offered(host, names).items()}
    return Needs([n for n in names if offered[n]], [n for n in names if not offered[n]])


def _offered_by_dnf(host: Host, name: str) -> bool:
    with dnf.lifted(host, [rpm.name_of(name)]) as options:
        argv = ["dnf", *dnf.OPTIONS, *options, "--quiet", "repoquery", name]
        answer = host.run(argv, timeout=600)
    if answer.code != 0:
        raise TransactionError(
            "the package index cannot be fetched",
            dnf.errors(answer),
            "'dnf makecache' ends well",
            "Check the host's repositories and its way to them.",
        )
    return bool(answer.out.strip())


def mended(host: Host, lock_timeout: int = 600) -> bool:
    """Whether packages can be installed: what a killed run left is finished first, if that goes.

    Otherwise the driver's own transaction knows what is to be exchanged, and mends it.
    """
    if os_release.family(host) == "RedHat" or not debian.interrupted(host):
        return True
    await_turn(lambda: debian.locked(host), lock_timeout)
    return not debian.interrupted(host) or not apt.mend(host, apt.Wish({}))


def install(host: Host, names: Sequence[str], work: str) -> None:
    """Install packages, in whatever version the sources have. Raises TransactionError."""
    if os_release.family(host) != "RedHat":
        apt.run(host, apt.Wish(dict.fromkeys(names, ""), work=work), names)
        return
    with dnf.lifted(host, [rpm.name_of(name) for name in names]) as options:
        answer = host.run(["dnf", *dnf.OPTIONS, *options, "install", *names], timeout=1800)
    if answer.code != 0:
        fix = "Fix what dnf says on the host and run the play again."
        what = "packages could not be installed"
        raise TransactionError(what, dnf.errors(answer), ", ".join(names), fix)


def refuse_without_dkms(lacking: Needs) -> None:
    """Raise TransactionError where DKMS is absent and no source has it."""
    if DKMS in lacking.missing:
        raise TransactionError(
            "no repository has dkms, which builds the driver's module",
            "nothing provides dkms",
            "a repository with dkms",
            "Offer EPEL to the host, or a mirror of it (Rocky Linux: 'dnf install epel-release'),"
            " and run the play again.",
        )
