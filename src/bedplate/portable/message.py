"""The form of every refusal: what — where — got / allowed — how to fix."""

from typing import Sequence


def problem(what: str, where: str, got: str, allowed: str, fix: str) -> str:
    """Return one problem in the form that all parts of Bedplate use.

    ``what`` is a clause without full stop, ``fix`` an imperative sentence.
    """
    return f"{what} — {where} — got: {got}; allowed: {allowed} — {fix}"


def command_problem(what: str, where: str, argv: Sequence[str], said: str) -> str:
    """The message of a command on the host that failed; ``said`` is what it printed."""
    allowed = f"'{' '.join(argv)}' ends well"
    return problem(
        what, where, said, allowed, "Run it by hand, fix what it says, and run the play again."
    )
