"""Who made the packages that are installed, by what they say of themselves."""

from typing import List, Sequence

from .. import os_release
from ..host import Host

#: What stand-ins of the vendor's packages say, in tests: what runs on them proves nothing of his.
STAND_IN = "bedplate-standin"


def origins(host: Host, names: Sequence[str]) -> List[str]:
    """What installed packages say of their origin (dpkg) or vendor (rpm), each once, sorted.

    Packages that say nothing, as a distribution's own do under dpkg, are left out.
    """
    if not names:
        return []
    if os_release.family(host) == "Debian":
        argv = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\t${Origin}\n", *names]
        answer = host.run(argv)
        rows = [line.split("\t") for line in answer.out.splitlines()]
        said = [row[1] for row in rows if len(row) == 2 and row[0] == "installed"]
    else:
        argv = ["rpm", "--query", "--queryformat", "\t%{VENDOR}\n", *names]
        answer = host.run(argv)
        said = [line[1:] for line in answer.out.splitlines() if line.startswith("\t")]
    return sorted({one for one in said if one and one != "(none)"})


def stand_in(host: Host, names: Sequence[str]) -> bool:
    """Whether any of the packages is a stand-in."""
    return STAND_IN in origins(host, names)
