"""What can go wrong in the provider, as complete messages for the user."""

from __future__ import annotations

from typing import Any

from bedplate.common.errors import BedplateError, Problem
from bedplate.portable.message import problem


def message(what: str, where: str, got: object, allowed: object, fix: str) -> str:
    """Return a message of the one form, `bedplate.portable.message`."""
    return problem(what, where, str(got), str(allowed), fix)


class ProviderError(BedplateError):
    """A request that cannot be carried out; its text is complete and fit for the user."""

    def __init__(self, text: str) -> None:
        super().__init__([Problem(text, rule="provider")])


class UnreachableError(ProviderError):
    """A host that does not answer over SSH."""


class CommandFailedError(ProviderError):
    """A command on a host that ended with another status than 0."""

    def __init__(self, text: str, output: str) -> None:
        super().__init__(text)
        self.output = output


class EtcdRefusesError(ProviderError):
    """A member that etcd does not let go: it is one still, and serves."""


class HalfMade(Exception):  # noqa: N818 - a state, not an error of its own
    """A resource that exists and is not what was wished: it stays in state with its reasons."""

    def __init__(self, identity: str, outputs: dict[str, Any], reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.identity = identity
        self.outputs = outputs
        self.reasons = reasons
