"""Names and versions of packages as their makers write them, without what sources append."""

import re

_BRANCH = re.compile(r"-\d{3}$")


def family(name: str) -> str:
    """A package's name without the driver branch that some sources append."""
    return _BRANCH.sub("", name.split(":")[0])


def upstream(version: str) -> str:
    """``580.95.05`` of ``1:580.95.05-1ubuntu1``."""
    return re.split(r"[-~+]", version.split(":", 1)[-1], maxsplit=1)[0]
