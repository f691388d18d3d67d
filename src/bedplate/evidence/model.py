"""Evidence on disk: one JSON file per host and one for the cluster, written by the verify steps."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bedplate.errors import BedplateError, Problem

if TYPE_CHECKING:
    from pathlib import Path


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


def load_evidence(site: Path, *, needed: bool = True) -> tuple[Evidence, ...]:
    """Read every verify step's evidence of *site*, hosts by name first.

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
            found.append(Evidence.model_validate(json.loads(path.read_text(encoding="utf-8"))))
        except (ValidationError, ValueError) as error:
            problems.append(
                Problem(
                    what="a file is not evidence",
                    file=str(path),
                    got=str(error).splitlines()[0],
                    allowed="evidence of format 1",
                    fix=f"remove it and run: ansible-playbook -i {site} bedplate.gpu.verify",
                )
            )
    if problems:
        raise BedplateError(problems)
    return tuple(sorted(found, key=lambda e: (e.subject.kind != "host", e.subject.name)))
