"""Faults that a test switches on while the stand-in serves, and the record of what was asked."""

from __future__ import annotations

import fnmatch
import json
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from bedplate.common import writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and for which requests; the fields that are not set choose nothing.

    Attributes:
        host, path: patterns as a shell's (``*.sha256``).
        times: only the first so many requests that fit.
        after: only requests after the first so many that fit.
        status: answer with this status, such as 404 or 429, and no content.
        retry_after: seconds, for the header ``Retry-After``.
        flip: change the byte at this offset of the content; a negative one counts from its end.
        cut: send the first half of the content and close the connection.
        stop: ``close`` the connection without an answer, or ``hang`` and never answer.
    """

    host: str = "*"
    path: str = "*"
    times: int = 0
    after: int = 0
    status: int = 0
    retry_after: int | None = None
    flip: int | None = None
    cut: bool = False
    stop: str = ""


@dataclass
class Faults:
    """The faults in a file, which other processes write; the counts are this server's."""

    file: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _text: str = "[]"
    _faults: list[Fault] = field(default_factory=list)
    _seen: list[int] = field(default_factory=list)

    def of(self, host: str, path: str) -> list[Fault]:
        """Count a request and return the faults that it meets."""
        with self._lock:
            self._read()
            met = []
            for number, fault in enumerate(self._faults):
                if not (fnmatch.fnmatch(host, fault.host) and fnmatch.fnmatch(path, fault.path)):
                    continue
                self._seen[number] += 1
                turn = self._seen[number] - fault.after
                if turn > 0 and (not fault.times or turn <= fault.times):
                    met.append(fault)
            return met

    def _read(self) -> None:
        text = self.file.read_text() if self.file.is_file() else "[]"
        if text != self._text:
            self._text = text
            self._faults = [Fault(**entry) for entry in json.loads(text)]
            self._seen = [0] * len(self._faults)


@dataclass(frozen=True)
class Request:
    """One line of the access log: ``size`` is the length of the answer's content in bytes."""

    host: str
    path: str
    status: int
    size: int
    method: str = "GET"


@dataclass(frozen=True)
class Records:
    """The folder that a stand-in and its tests share: the access log and the faults."""

    folder: Path

    @property
    def log(self) -> Path:
        """The access log, one JSON object a line."""
        return self.folder / "requests.jsonl"

    @property
    def faults(self) -> Path:
        """The file of the faults that are switched on."""
        return self.folder / "faults.json"

    def requests(self) -> list[Request]:
        """Return every request since the start or the last `forget`, in order."""
        lines = self.log.read_text().splitlines() if self.log.is_file() else []
        return [Request(**json.loads(line)) for line in lines]

    def forget(self) -> None:
        """Empty the access log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")

    @contextmanager
    def fault(self, *faults: Fault) -> Iterator[None]:
        """Switch faults on while the block lasts."""
        writing.replace(self.faults, json.dumps([asdict(fault) for fault in faults]).encode())
        try:
            yield
        finally:
            self.faults.unlink()
