"""What of a wrong site is right: it is screened as well, so that all problems come in one round."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bedplate.errors import Problem, SiteError
from bedplate.site.model import Wishes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
_END_OF_ROOT = re.compile(r"[.\[]")


class WrongSiteError(SiteError):
    """Problems of a site; `site` is what is right of it, None where that is no whole site."""

    def __init__(self, problems: Sequence[Problem], site: Site | None) -> None:
        super().__init__(problems)
        self.site = site

    def with_further(self, further: Iterable[Problem]) -> SiteError:
        """Return these problems with those that screening the right part found.

        What is found about a setting that is wrong already may only follow from what was left out.
        """
        return SiteError([*self.problems, *others(self.problems, further)])


def others(known: Iterable[Problem], further: Iterable[Problem]) -> list[Problem]:
    """Return further problems, without those of the settings that known ones are about.

    An unknown setting is about the one that is to be written in its place, wherever that stands.
    """
    wrong = {(one.file, _root(one)) for one in known}
    meant = {one.fix.removeprefix("write ").partition(" ")[0] for one in known}
    return [
        one for one in further if (one.file, _root(one)) not in wrong and _root(one) not in meant
    ]


def _root(problem: Problem) -> str:
    return _END_OF_ROOT.split(problem.key or "")[0]


def right_part(wishes: Mapping[str, Any], error: ValidationError) -> Wishes | None:
    """Return settings without what is wrong in them; None where others need what is gone."""
    rest = deepcopy(dict(wishes))
    for _ in range(MOST):
        remove(rest, error.errors(include_url=False)[0]["loc"])
        if wishes.keys() - rest.keys() - ALONE:
            return None
        try:
            return Wishes.model_validate(rest)
        except ValidationError as again:
            error = again
    return None


def remove(inside: Any, path: Sequence[str | int]) -> None:
    """Remove what a path of Pydantic's leads to, as far as it is written."""
    found: tuple[Any, Any] | None = None
    for part in path:
        if isinstance(inside, list):
            there = isinstance(part, int) and part < len(inside)
        else:
            there = isinstance(inside, dict) and part in inside
        if there:  # other parts are names of Pydantic's: a form, an index of a single GPU
            found, inside = (inside, part), inside[part]
    if found is not None:
        container, key = found
        del container[key]
