"""What the resolver answers: one plan or one refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.common.errors import Problem, RefusedError

if TYPE_CHECKING:
    from bedplate.lock import Lock
    from bedplate.resolver.conflicts import Conflict
    from bedplate.resolver.outcome import Notice, Reason


@dataclass(frozen=True)
class Plan:
    """A lock with what a reviewer wants to know about it.

    `not_installable` has a problem for each part of the lock that no role or stack of this version
    carries out: site.yml and the stacks refuse such a lock. So it has for each image that the site
    has to build first: without it there is no bill.
    """

    lock: Lock
    reasons: tuple[Reason, ...]
    notices: tuple[Notice, ...] = ()
    not_installable: tuple[Problem, ...] = ()

    @property
    def in_order(self) -> tuple[Notice, ...]:
        """Return the notices: those of what stops the first command, then the next, then others."""
        return tuple(sorted(self.notices, key=lambda notice: notice.stops))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the notices as `--json` prints them."""
        return tuple(dict.fromkeys(str(notice) for notice in self.in_order))


@dataclass(frozen=True)
class Refusal:
    """No lock can satisfy these wishes: all reasons in order, and the conflicts among wishes."""

    problems: tuple[Problem, ...]
    conflicts: tuple[Conflict, ...] = ()

    def error(self) -> RefusedError:
        """Return the refusal as an exception."""
        return RefusedError(self.problems)
