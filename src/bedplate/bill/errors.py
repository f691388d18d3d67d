"""What could not be looked up, as an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common import shipped
from bedplate.common.errors import BedplateError, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

UNANSWERED = "host does not answer"


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


def together(problems: Sequence[Problem], answered: Collection[str]) -> list[Problem]:
    """Return what could not be looked up; one problem where this machine reaches no vendor.

    `answered` are the hosts that answered, whatever they said.
    """
    hosts = {one.file: one.got for one in problems if one.what == UNANSWERED}
    alone = not answered and len(hosts) > 1 and all(one.what == UNANSWERED for one in problems)
    if not alone:
        return list(problems)
    # A reason names its host where the name was not found.
    reasons = ", ".join(sorted({f"{got}".replace(f" '{host}'", "") for host, got in hosts.items()}))
    return [
        Problem(
            "no vendor is reached from this machine",
            got=f"no answer from {', '.join(sorted(map(str, hosts)))}: {reasons}",
            fix="run it on a machine that reaches them, with https_proxy set behind a proxy; for "
            f"hosts that do not reach them, see {shipped.manual().with_name('mirror.md')}",
            rule="bill",
        )
    ]
