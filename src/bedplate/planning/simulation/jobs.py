"""The file of jobs: read, checked cell by cell, and every mistake reported at its place."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from bedplate.common import reading
from bedplate.common.errors import Problem, SiteError
from bedplate.common.nearest import nearest
from bedplate.portable import quantities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

COLUMNS = (
    "name",
    "team",
    "gpus",
    "share",
    "memory",
    "count",
    "cpu",
    "memory_host",
    "duration",
    "arrival",
    "pool",
    "priority",
)
#: A job asks for GPUs in one of these ways.
ASKS = ("gpus", "share", "memory")
#: What spreadsheets write between cells where a comma is the decimal mark.
SEPARATORS = {";": "semicolons", "\t": "tabs"}
#: How many jobs a file may have in all: each is followed from its arrival to its end.
MOST = 100_000
TIME = re.compile(r"(?:(?P<h>[0-9]+)h)?(?:(?P<m>[0-9]+)m)?(?:(?P<s>[0-9]+)s?)?")
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, order=True)
class Request:
    """What a job asks for; jobs with equal requests are placed alike.

    Attributes:
        gpus: whole GPUs, all on one node.
        share: a part of one GPU, 0 if none is asked for.
        memory: MiB of one GPU, 0 if none is asked for.
        cpu: thousandths of a CPU.
        memory_host: MiB of the node's memory.
        pool: the only pool that will do; empty for any.
    """

    gpus: int = 0
    share: Fraction = Fraction(0)
    memory: int = 0
    cpu: int = 0
    memory_host: int = 0
    pool: str = ""

    @property
    def on_gpu(self) -> bool:
        """Tell whether it asks for any part of a GPU."""
        return bool(self.gpus or self.share or self.memory)

    def __str__(self) -> str:
        if self.share:
            return f"{decimal(self.share)} of a GPU"
        if self.memory:
            return f"{quantities.memory(self.memory)} of a GPU"
        if self.gpus:
            return f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}"
        return "no GPU"


@dataclass(frozen=True)
class Row:
    """A line of the file: `count` equal jobs that arrive together.

    `duration` is in seconds, None where the jobs go on for ever. Without a `priority` they have
    their team's.
    """

    name: str
    line: int
    request: Request
    count: int = 1
    team: str = ""
    duration: int | None = None
    arrival: int = 0
    priority: int | None = None


def decimal(share: Fraction) -> str:
    """Return a fraction as a short decimal number."""
    return f"{float(share):.3f}".rstrip("0").rstrip(".")


def span(seconds: int) -> str:
    """Return seconds as the file has them: `1h30m`."""
    parts = (("h", seconds // 3600), ("m", seconds // 60 % 60), ("s", seconds % 60))
    return "".join(f"{number}{unit}" for unit, number in parts if number) or "0s"


def read_jobs(path: Path, pools: Sequence[str], teams: Sequence[str]) -> tuple[Row, ...]:
    """Read the jobs of a file, for a site with these pools and teams.

    Raises:
        SiteError: the file cannot be read, or cells are wrong: all of them.
    """
    try:
        text = reading.content(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        what, got, fix = "jobs cannot be read", reading.why(error), "name a CSV file in UTF-8"
        raise SiteError(
            [Problem(what, str(path), got=got, allowed="a CSV file", fix=fix, rule="jobs")]
        ) from error
    return Reader(str(path), pools, teams).rows(text)


@dataclass
class Reader:
    """Reads one file and collects what is wrong in it."""

    file: str
    pools: Sequence[str]
    teams: Sequence[str]
    problems: list[Problem] = field(default_factory=list)
    line: int = 1
    columns: Mapping[str, int] = field(default_factory=dict)

    def rows(self, text: str) -> tuple[Row, ...]:
        """Return the rows of the text. Raises SiteError with every problem."""
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
        found: list[Row] = []
        head: list[str] | None = None
        before = 0
        try:
            for cells in reader:
                self.line, before = before + 1, reader.line_num
                if not any(cell.strip() for cell in cells):
                    continue
                if head is None:
                    head = [cell.strip().lower() for cell in cells]
                    self._head(head)
                elif len(cells) > len(head):
                    allowed = f"{len(head)} cells, as the first line has"
                    fix = "quote the cell that has a comma in it"
                    self._wrong("row has too many cells", str(len(cells)), allowed, fix)
                else:
                    short = [""] * (len(head) - len(cells))
                    values = [cell.strip() for cell in cells] + short
                    found.append(self._row(dict(zip(head, values, strict=True))))
        except csv.Error as error:
            self.line = reader.line_num
            self._wrong("line is no CSV", str(error), "cells with commas between", "correct it")
        if not found and not self.problems:
            fix = "write a line of columns, and a line for each kind of job"
            self._wrong("file has no jobs", "none", "at least one", fix)
        total = sum(row.count for row in found)
        if total > MOST:
            fix = "leave some out, or take fewer of each"
            self._wrong("file has too many jobs", str(total), f"at most {MOST} in all", fix)
        if self.problems:
            raise SiteError(self.problems)
        return tuple(found)

    def _head(self, head: Sequence[str]) -> None:
        for mark, named in SEPARATORS.items():
            if len(head) == 1 and mark in head[0]:
                fix = "save the file with commas between cells"
                self._wrong("cells are separated by another character", named, "commas", fix)
                raise SiteError(self.problems)
        self.columns = {name: number for number, name in enumerate(head, 1)}
        for number, name in enumerate(head, 1):
            if name not in COLUMNS:
                close = nearest(name, COLUMNS)
                fix = f"write {close}" if close else "leave the column out"
                self._wrong("no such column", name or "no name", ", ".join(COLUMNS), fix, number)
            elif self.columns[name] != number:
                self._wrong("column is there twice", name, "once", "leave one out", number)
        if "name" not in head:
            self._wrong("file has no column of names", ", ".join(head), "name", "add it")
        if not set(ASKS) & set(head):
            allowed = f"at least one of {', '.join(ASKS)}"
            fix = "add what the jobs ask for"
            self._wrong("file does not say what the jobs ask for", ", ".join(head), allowed, fix)
        if self.problems:
            raise SiteError(self.problems)  # the cells would all be wrong with them

    def _row(self, cells: Mapping[str, str]) -> Row:
        name = cells["name"]
        if not name:
            self._cell("job has no name", "name", "an empty cell", "a word", "name it")
        asked = [column for column in ASKS if cells.get(column)]
        if len(asked) != 1:
            got = ", ".join(f"{column} {cells[column]}" for column in asked) or "none"
            allowed, fix = f"one of {', '.join(ASKS)}", "fill exactly one of these cells"
            where = asked[1] if asked else next(one for one in ASKS if one in self.columns)
            self._cell("job does not ask for GPUs in exactly one way", where, got, allowed, fix)
        request = Request(
            gpus=self._number(cells, "gpus", 0, 0, 100_000),
            share=self._of(cells, "share", _share, "a part from 0.001 to 1") or Fraction(0),
            memory=self._of(cells, "memory", mib, "a size such as 8Gi or 500Mi") or 0,
            cpu=self._of(cells, "cpu", _cpu, "CPUs such as 4, 0.5 or 500m") or 0,
            memory_host=self._of(cells, "memory_host", mib, "a size such as 64Gi or 500Mi") or 0,
            pool=self._one_of(cells, "pool", self.pools, "pools of the site"),
        )
        return Row(
            name=name,
            line=self.line,
            request=request,
            count=self._number(cells, "count", 1, 1, MOST),
            team=self._one_of(cells, "team", self.teams, "bedplate_teams of the site"),
            duration=self._of(cells, "duration", _length, "more than 0 seconds, or 1h30m"),
            arrival=self._of(cells, "arrival", _time, "seconds, or 1h30m") or 0,
            priority=self._number(cells, "priority", None, -1_000_000_000, 1_000_000_000),
        )

    def _number[D: int | None](
        self, cells: Mapping[str, str], column: str, default: D, least: int, most: int
    ) -> int | D:
        text = cells.get(column, "")
        if not text:
            return default
        if re.fullmatch(r"-?[0-9]{1,12}", text) and least <= int(text) <= most:
            return int(text)
        allowed = f"a whole number from {least} to {most}"
        self._cell(f"{column} is no number of that kind", column, text, allowed, "correct the cell")
        return default

    def _of[V](
        self,
        cells: Mapping[str, str],
        column: str,
        read: Callable[[str], V | None],
        allowed: str,
    ) -> V | None:
        text = cells.get(column, "")
        value = read(text) if text else None
        if text and value is None:
            self._cell(f"{column} cannot be read", column, text, allowed, "correct the cell")
        return value

    def _one_of(
        self, cells: Mapping[str, str], column: str, known: Sequence[str], plural: str
    ) -> str:
        text = cells.get(column, "")
        if not text or text in known:
            return text
        close = nearest(text, known)
        fix = f"write {close}" if close else "leave the cell empty"
        allowed = ", ".join(known) or f"none: there are no {plural}"
        self._cell(f"no such {column}", column, text, allowed, fix)
        return text

    def _cell(self, what: str, column: str, got: str, allowed: str, fix: str) -> None:
        self._wrong(what, got, allowed, fix, self.columns.get(column), column)

    def _wrong(
        self,
        what: str,
        got: str,
        allowed: str,
        fix: str,
        column: int | None = None,
        key: str | None = None,
    ) -> None:
        where = (self.file, self.line, column, key)
        self.problems.append(Problem(what, *where, got=got, allowed=allowed, fix=fix, rule="jobs"))


#: As a site's settings have it.
SMALLEST = Fraction(1, 1000)


def _share(text: str) -> Fraction | None:
    value = Fraction(text) if NUMBER.fullmatch(text) and len(text) <= 12 else Fraction(0)
    return value if SMALLEST <= value <= 1 else None


def mib(text: str) -> int | None:
    """Return memory as MiB, None for what is none: a number without a unit would be bytes."""
    if NUMBER.fullmatch(text):
        return None
    try:
        return max(quantities.mebibytes(text), 0) or None
    except ValueError:
        return None


def _cpu(text: str) -> int | None:
    milli = text.removesuffix("m")
    if not NUMBER.fullmatch(milli) or len(text) > 12:
        return None
    value = Fraction(milli) * (1 if milli != text else 1000)
    return int(value) if value.denominator == 1 else None


def _time(text: str) -> int | None:
    found = TIME.fullmatch(text)
    if found is None or len(text) > 12:
        return None
    hours, minutes, seconds = (int(found[unit] or 0) for unit in "hms")
    return hours * 3600 + minutes * 60 + seconds


def _length(text: str) -> int | None:
    return _time(text) or None
