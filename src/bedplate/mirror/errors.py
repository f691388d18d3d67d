"""The one error of the mirror."""

from __future__ import annotations

from bedplate.common.errors import BedplateError, Problem


class MirrorError(BedplateError):
    """Something is wrong with the mirror that the user can mend."""

    def __init__(self, what: str, where: str, got: str, allowed: str, fix: str) -> None:
        super().__init__([Problem(what, file=where, got=got, allowed=allowed, fix=fix)])
