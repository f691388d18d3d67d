"""What the resolver answers: one plan or one refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.errors import Problem, RefusedError

if TYPE_CHECKING:
    from bedplate.lock import Lock
    from bedplate.resolver.conflicts import Conflict


@dataclass(frozen=True)
class Reason:
    """Why a component has its version: `subject` is a pool's name, or `cluster`."""

    subject: str
    component: str
    decided: str
    because: str


@dataclass(frozen=True)
class Plan:
    """A lock with what a reviewer wants to know about it."""

    lock: Lock
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """No lock can satisfy these wishes: all reasons in order, and the conflicts among wishes."""

    problems: tuple[Problem, ...]
    conflicts: tuple[Conflict, ...] = ()

    def error(self) -> RefusedError:
        """Return the refusal as an exception."""
        return RefusedError(self.problems)
