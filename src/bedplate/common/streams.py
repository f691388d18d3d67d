"""Standard output and error of the command line: harmless to a terminal, and never in the way."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, cast

from bedplate.common.errors import BedplateError, Problem
from bedplate.common.harmless import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


class Harmless:
    """A text stream that steers no terminal, and that a reader may leave before the end.

    What is printed after the reader has gone is lost; what the command does and how it ends is not.
    """

    def __init__(self, stream: TextIO, *, steers: bool = False) -> None:
        self._stream = stream
        self._steers = steers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def steering(self) -> Harmless:
        """Return the same stream for colours and progress, whose texts are printable already."""
        return Harmless(self._stream, steers=True)

    def write(self, text: str) -> int:
        """Write a text. Raises BedplateError if it cannot be written."""
        shown = text if self._steers else printable(text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        if not shown.isascii():
            shown = shown.encode(encoding, "backslashreplace").decode(encoding)
        with self._written():
            self._stream.write(shown)
        return len(text)

    def flush(self) -> None:
        """Write what is kept back. Raises BedplateError if it cannot be written."""
        with self._written():
            self._stream.flush()

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._discard()
        except OSError as error:
            self._discard()
            raise BedplateError(
                [
                    Problem(
                        "output cannot be written",
                        got=error.strerror or str(error),
                        fix="make room for it, or send it elsewhere",
                        rule="output",
                    )
                ]
            ) from error

    def _discard(self) -> None:
        """Lead the stream to nowhere: Python writes what it has kept back when it ends."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def open_closed() -> None:
    """Open to nowhere what was closed at the start: libraries need it, and no file may take it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


@contextmanager
def harmless() -> Iterator[None]:
    """Make standard output and error harmless while the block lasts."""
    out, err = (cast("TextIO", Harmless(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield
