"""What could not be looked up, as an error."""

from __future__ import annotations

from bedplate.errors import BedplateError, Problem


class ResolveError(BedplateError):
    """Something that could not be looked up; all of it together."""


def refused(what: str, where: str, got: str, allowed: str = "", fix: str = "") -> ResolveError:
    """Return the error for one thing that could not be looked up."""
    return ResolveError(
        [
            Problem(
                what,
                where,
                got=got,
                allowed=allowed or "an answer with it",
                fix=fix or "try the address with curl; behind a proxy, set https_proxy",
                rule="bill",
            )
        ]
    )
