"""What `bedplate plan` says of the hub's certificate, where the site has the file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.common import reading
from bedplate.common.errors import Problem, RefusedError
from bedplate.resolver.course_notices import CERTIFICATE
from bedplate.resolver.courses import first
from bedplate.resolver.outcome import Notice, Stops

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from pathlib import Path

    from bedplate.resolver.plan import Planned
    from bedplate.site import Site

FORM = "a PEM file with the certificate first, then its chain"


def with_certificate(planned: Planned, folder: Path, today: date) -> Planned:
    """Return the plan with what is to be known of the hub's certificate.

    Its key is the stack's, which compares them.

    Raises:
        RefusedError: it is not valid on that day, or of another host.
    """
    cluster = planned.plan.lock.cluster
    name = cluster.hub.certificate if cluster and cluster.hub else None
    if name is None:
        return planned
    # Few sites have one, and reading certificates takes a while to import.
    from bedplate.lock import hub_address

    path = folder / name
    try:
        text = reading.content(path).decode("ascii", errors="replace")
    except FileNotFoundError:
        hint = "pulumi up refuses until it is there"
        what = f"the hub has no certificate yet at {path}"
        return _noticed(planned, Notice(what, hint=hint, stops=Stops.PULUMI_UP))
    except OSError as error:
        got = f"{path}: {reading.why(error)}"
        raise RefusedError([_problem(planned.site, got, FORM, "put it there")]) from error
    try:
        problems = list(_problems(planned, text, today))
    except ValueError:
        problems = [_problem(planned.site, f"no certificate in {path}", FORM, "put it there")]
    if problems:
        raise RefusedError(problems)
    if soon := hub_address.ends_soon(text, today):
        hint = f"renew {path}, and run: pulumi up"
        return _noticed(planned, Notice(soon, hint=hint))
    return planned


def _problems(planned: Planned, text: str, today: date) -> Iterator[Problem]:
    from bedplate.lock import hub_address

    for one in hub_address.wrong(text, hub_address.host(planned.plan.lock), today):
        yield _problem(planned.site, one.got, one.allowed, one.fix)


def _problem(site: Site, got: str, allowed: str, fix: str) -> Problem:
    place = first(site).places.of(CERTIFICATE)
    return Problem(
        "the hub's certificate does not serve",
        place.file,
        place.line,
        place.column,
        ".".join(CERTIFICATE),
        got,
        allowed,
        fix,
        "hub-certificate",
    )


def _noticed(planned: Planned, notice: Notice) -> Planned:
    plan = planned.plan
    return replace(planned, plan=replace(plan, notices=(notice, *plan.notices)))
