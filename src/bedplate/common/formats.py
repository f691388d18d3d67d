"""The number of a file's format: a file of another number is refused by name."""

from __future__ import annotations

from importlib.metadata import version


class OtherFormatError(ValueError):
    """A file that another version of Bedplate wrote; `found` is its number."""

    def __init__(self, found: int, own: int) -> None:
        age = "newer" if found > own else "older"
        super().__init__(f"format {found} is of a Bedplate {age} than this {version('bedplate')}")
        self.found, self._newer = found, found > own

    def fix(self, otherwise: str) -> str:
        """Return what a problem proposes: *otherwise*, or the version that reads the file."""
        return f"{self}: use that one, or {otherwise}" if self._newer else f"{self}; {otherwise}"


def check(content: object, own: int) -> None:
    """Raise OtherFormatError if a file's content has another number than *own*.

    What has none is for the file's model to refuse.
    """
    found = content.get("format") if isinstance(content, dict) else None
    if type(found) is int and found != own:
        raise OtherFormatError(found, own)
