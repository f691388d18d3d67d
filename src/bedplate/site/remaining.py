"""What of a wrong site is right: it is screened as well, so that all problems come in one round."""

from __future__ import annotations

import re
from copy import deepcopy
from datetime import date
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bedplate.common.errors import Problem, SiteError
from bedplate.site import manual
from bedplate.site.model import Wishes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from bedplate.site.site import Site

#: More mistakes than this in one host's settings leave nothing to screen.
MOST = 30
#: Settings that others hardly depend on: without any other the rest says what was not meant.
ALONE = {
    "bedplate_cuda",
    "bedplate_driver",
    "bedplate_hpc_tools",
    "bedplate_labels",
    "bedplate_pins",
    "bedplate_proxy",
    "bedplate_taints",
    "bedplate_topology",
}
MISSING = "setting is missing"
#: Settings that divide the GPUs of hosts: without their number, what they lack is not known.
DIVIDE = {
    "bedplate_courses",
    "bedplate_guests",
    "bedplate_passthrough",
    "bedplate_sharing",
    "bedplate_teams",
}
_END_OF_ROOT = re.compile(r"[.\[]")


class WrongSiteError(SiteError):
    """Problems of a site; `site` is what is right of it, None where that is no whole site."""

    def __init__(self, problems: Sequence[Problem], site: Site | None) -> None:
        super().__init__(problems)
        self.site = site

    def with_further(self, further: Iterable[Problem]) -> SiteError:
        """Return these problems with those that screening the right part found.

        What is found about a setting that is wrong already may only follow from what was left out;
        only of what lacks its quotes more is known then.
        """
        more = list(further)
        bare = {(p.file, p.line, p.key): p for p in self.problems if p.fix.startswith("quote it: ")}
        instead = {
            bare[one.file, one.line, one.key]: one
            for one in more
            if (one.file, one.line, one.key) in bare and one.fix.startswith(("write ", "remove "))
        }
        known = [instead.get(one, one) for one in self.problems]
        return SiteError([*known, *others(known, more)])


def others(known: Collection[Problem], further: Iterable[Problem]) -> list[Problem]:
    """Return further problems, without those of the settings that known ones are about.

    An unknown setting is about the one that is to be written in its place, wherever that stands,
    and a file of another name about what is in it.
    """
    wrong = {(one.file, _root(one)) for one in known}
    meant = {
        _root(one)
        if one.fix.startswith("rename the file")
        else one.fix.removeprefix("write ").partition(" ")[0].rstrip(":")
        for one in known
    }
    if any(one.what == MISSING and (one.key or "").endswith(".count") for one in known):
        meant |= DIVIDE
    return [
        one for one in further if (one.file, _root(one)) not in wrong and _root(one) not in meant
    ]


def _root(problem: Problem) -> str:
    return _END_OF_ROOT.split(problem.key or "")[0]


def right_part(wishes: Mapping[str, Any], error: ValidationError) -> Wishes | None:
    """Return settings without what is wrong in them; None where others need what is gone.

    A key that is missing has the manual's example: what else is wrong does not wait for it.
    """
    rest = quoted(wishes, error.errors(include_url=False))
    for _ in range(MOST):
        if not (wrong := errors_of(rest)):
            return Wishes.model_validate(rest)
        path = next(iter(wrong))
        if wrong[path]["type"] == "missing" and len(path) > 1:
            _, known = manual.of_key(path)
            _, _, lacking = _way(rest, path[:-1])[-1]
            lacking[path[-1]] = known["examples"][0]
        else:
            change(rest, path)
        if wishes.keys() - rest.keys() - ALONE:
            return None
    return None


def quoted(wishes: Mapping[str, Any], found: Iterable[ErrorDetails]) -> dict[str, Any]:
    """Return settings with the numbers and dates in quotes where a text is asked for."""
    rest = deepcopy(dict(wishes))
    for one in found:
        value = one["input"]
        bare = one["type"] == "string_type" and isinstance(value, int | float | date)
        if bare and not isinstance(value, bool):  # YAML forgets which word that was
            change(rest, one["loc"], getattr(value, "text", str(value)))
    return rest


def errors_of(wishes: Mapping[str, Any]) -> dict[tuple[str | int, ...], ErrorDetails]:
    """Return what Pydantic finds in settings, by where it is."""
    try:
        Wishes.model_validate(wishes)
    except ValidationError as error:
        return {one["loc"]: one for one in error.errors(include_url=False)}
    return {}


def change(settings: Any, path: Sequence[str | int], text: str | None = None) -> None:
    """Remove what a path of Pydantic's leads to, as far as it is written, or put a text there."""
    if way := _way(settings, path):
        container, key, _ = way[-1]
        if text is None:
            del container[key]
        else:
            container[key] = text


def _way(settings: Any, path: Sequence[str | int]) -> list[tuple[Any, Any, Any]]:
    """Return each container on a path as far as it is written, with the key and what is there."""
    found: list[tuple[Any, Any, Any]] = []
    inside = settings
    for part in path:
        if isinstance(inside, list):
            there = isinstance(part, int) and part < len(inside)
        else:
            there = isinstance(inside, dict) and part in inside
        if there:  # other parts are names of Pydantic's: a form, an index of a single GPU
            found.append((inside, part, inside[part]))
            inside = inside[part]
    return found
