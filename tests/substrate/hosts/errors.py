"""The one error that a user of the substrate sees."""

from __future__ import annotations


class SubstrateError(Exception):
    """Something is wrong that the user can mend.

    The text has the project's standard form: what — where — got / allowed — how to fix.
    """

    def __init__(self, what: str, where: str, got: str, allowed: str, fix: str) -> None:
        super().__init__(f"{what} — {where} — got {got} / allowed {allowed} — {fix}")
