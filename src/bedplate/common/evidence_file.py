"""Evidence on disk: one JSON file per host and one for the cluster, written by the verify steps."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from bedplate.common import formats, reading
from bedplate.common.errors import BedplateError, Problem
from bedplate.common.harmless import cleaned
from bedplate.common.reading_yaml import first_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FORMAT: Final = 1


class Result(StrEnum):
    """A check passes, fails, or was skipped for a reason that it states."""

    PASS = "pass"  # noqa: S105 a result, not a password
    FAIL = "fail"
    SKIPPED = "skipped"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Check(_Frozen):
    """One thing looked at: what was wished, what was found, and what to do about a difference."""

    id: str
    what: str
    result: Result
    wished: Any = None
    found: Any = None
    reason: str = ""
    fix: str = ""


class Subject(_Frozen):
    """Whom the evidence is about."""

    kind: Literal["host", "cluster", "preflight"]
    name: str
    pool: str | None = None


class _Driver(BaseModel):
    stand_in: bool = False


class _Changed(BaseModel):
    checked: str
    what: list[str]


class _Facts(BaseModel):
    """The facts that the report reads; the others are kept as they are."""

    driver: _Driver | None = None
    changed_since: _Changed = _Changed(checked="", what=[])
    joined: bool = False


class Evidence(_Frozen):
    """All checks of one subject at one time, under one lock."""

    format: Literal[1]
    subject: Subject
    checked: str
    lock: str
    simulated: bool = False
    labels: dict[str, str] = Field(default_factory=dict)
    facts: dict[str, Any] = Field(default_factory=dict)
    checks: tuple[Check, ...]

    @field_validator("facts")
    @classmethod
    def _typed(cls, facts: dict[str, Any]) -> dict[str, Any]:
        _Facts.model_validate(facts)
        return facts

    @property
    def stand_in(self) -> bool:
        """Whether driver packages without the vendor's content stood in for his."""
        return bool(dict(self.facts.get("driver") or {}).get("stand_in"))

    @property
    def result(self) -> Result:
        """The verdict: one failure fails, and so does evidence that passed nothing at all.

        A cluster that does not exist yet has only skipped checks; that proves nothing, and so it is
        skipped as a whole rather than passed.
        """
        results = {check.result for check in self.checks}
        if Result.FAIL in results or not results:
            return Result.FAIL
        return Result.PASS if Result.PASS in results else Result.SKIPPED


def evidence_folder(site: Path) -> Path:
    """Return where the verify steps of *site* leave their evidence."""
    return site / ".bedplate" / "evidence"


def read_evidence(path: Path, secrets: Iterable[str] = ()) -> Evidence:
    """Return the evidence that lies there, with texts that steer no terminal and name no secret.

    Raises OSError or ValueError; `why` words it.
    """
    content = reading.document(path)
    formats.check(content, FORMAT)
    return Evidence.model_validate(cleaned(content, secrets))


def why(error: Exception) -> str:
    """Return in one line why a file is not evidence."""
    if isinstance(error, ValidationError):
        return first_of(error)
    return reading.why(error)


def refused(path: Path, error: Exception, fix: str) -> Problem:
    """Return the problem of a file that is not evidence, or is of another format."""
    if isinstance(error, formats.OtherFormatError):
        what, got, fix = "evidence is of another format", str(error.found), error.fix(fix)
        return Problem(what, str(path), key="format", got=got, allowed=str(FORMAT), fix=fix)
    allowed = f"evidence of format {FORMAT}"
    return Problem("a file is not evidence", str(path), got=why(error), allowed=allowed, fix=fix)


def load_evidence(
    site: Path, *, needed: bool = True, secrets: Iterable[str] = ()
) -> tuple[Evidence, ...]:
    """Read every verify step's evidence of *site*, hosts by name first.

    `secrets` of the site are taken out of it, wherever they stand.
    Looks for drift lie beside it and are not evidence of this kind (`bedplate.evidence.drift`).

    Raises:
        BedplateError: files are not evidence, or there is none yet and it is *needed*; all at once.
    """
    folder = evidence_folder(site)
    paths = sorted(p for p in folder.glob("*.json") if not p.name.startswith("drift-"))
    if not paths and needed:
        raise BedplateError(
            [
                Problem(
                    what="there is no evidence to report on",
                    file=str(folder),
                    got="no *.json file",
                    allowed="one file per host, written by the verify step",
                    fix=f"run: ansible-playbook -i {site} bedplate.gpu.site",
                )
            ]
        )
    found: list[Evidence] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            found.append(read_evidence(path, secrets))
        except (OSError, ValueError) as error:
            again = f"remove it and run: ansible-playbook -i {site} bedplate.gpu.verify"
            problems.append(refused(path, error, again))
    if problems:
        raise BedplateError(problems)
    return tuple(sorted(found, key=lambda e: (e.subject.kind != "host", e.subject.name)))
