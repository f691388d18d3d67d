"""What only hosts, vendors or a cluster can say: where stacks are only shown, a placeholder."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN: ContextVar[bool] = ContextVar("stacks are only shown", default=False)
#: The version of what stands for a file that is not fetched: what is set in it.
OUTLINE: Final = "outline"


@contextmanager
def shown() -> Iterator[None]:
    """Let stacks run without evidence, bill and traffic: nothing that they make is applied."""
    token = _SHOWN.set(True)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def only_shown() -> bool:
    """Tell whether placeholders are right here."""
    return _SHOWN.get()


def placeholder(what: str) -> str:
    """Return what stands for a value that is not known yet.

    >>> placeholder("by the bill")
    '<known later: by the bill>'
    """
    return f"<known later: {what}>"
