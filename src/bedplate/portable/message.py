"""The form of every refusal: what — where — got … / allowed … — how to fix.

A place that an editor can jump to comes first, as compilers print it: ``FILE:LINE:COL: what …``.
"""

from typing import Optional, Sequence


def problem(
    what: str,
    where: str,
    got: Optional[str],
    allowed: Optional[str],
    fix: str,
    place: str = "",
) -> str:
    """Return one problem in the form that all parts of Bedplate use.

    ``what`` is a clause without full stop, ``fix`` an imperative sentence. What is None or empty is
    left out; ``place`` is ``FILE:LINE:COL``.
    """
    values = (("got", got), ("allowed", allowed))
    found = " / ".join(f"{word} {value}" for word, value in values if value is not None)
    text = " — ".join(part for part in (what, where, found, fix) if part)
    return f"{place}: {text}" if place else text


def command_problem(what: str, where: str, argv: Sequence[str], said: str) -> str:
    """The message of a command on the host that failed; ``said`` is what it printed."""
    allowed = f"'{' '.join(argv)}' ends well"
    return problem(
        what, where, said, allowed, "Run it by hand, fix what it says, and run the play again."
    )
