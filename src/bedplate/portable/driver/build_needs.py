"""What a driver's module is built with: the running kernel's headers, and DKMS itself.

No driver's package brings the headers along: Debian's dkms only recommends them, and NVIDIA's
packages do not know which kernel runs. A host without them ends with a source that nobody built.
"""

from typing import List, NamedTuple, Sequence

from .. import os_release
from ..host import Host
from ..packages import apt, debian, dnf
from ..packages.transaction import TransactionError
from .state import HEADERS

#: How the names of Debian's kernels begin, and those of their headers.
IMAGE, FOLLOWER = "linux-image-", "linux-headers-"
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
    names = [] if there else [FOLLOWER + release]
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev}\n"]
    for line in host.run([*query, IMAGE + "*"]).out.splitlines():
        name, _, status = line.partition(" ")
        flavour = name[len(IMAGE) :]
        # A kernel's own name begins with its version; what draws in new ones has the flavour alone.
        if status[1:2] == "i" and not flavour[:1].isdigit():
            names.append(FOLLOWER + flavour)
    have = debian.installed(host, [*names, DKMS])
    return [name for name in [*names, *([DKMS] if dkms else [])] if name not in have]


def needs(host: Host, names: Sequence[str], refresh: bool) -> Needs:
    """Those of ``names`` that the sources offer, and the others. Raises TransactionError.

    ``refresh`` has apt fetch its index where it does not know one of them.
    """
    if os_release.family(host) == "RedHat":
        argv = ["dnf", *dnf.OPTIONS, "--quiet", "repoquery"]
        offered = {name: bool(host.run([*argv, name], 600).out.strip()) for name in names}
    else:
        offered = {name: bool(found) for name, found in debian.offered(host, names).items()}
        if refresh and not all(offered.values()):
            apt.update(host, apt.Wish({}))
            offered = {name: bool(found) for name, found in debian.offered(host, names).items()}
    return Needs([n for n in names if offered[n]], [n for n in names if not offered[n]])


def install(host: Host, names: Sequence[str], work: str) -> None:
    """Install packages, in whatever version the sources have. Raises TransactionError."""
    if os_release.family(host) != "RedHat":
        apt.run(host, apt.Wish(dict.fromkeys(names, ""), work=work), names)
        return
    answer = host.run(["dnf", *dnf.OPTIONS, "install", *names], timeout=1800)
    if answer.code != 0:
        fix = "Mend what dnf says on the host and run the play again."
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
