"""The control side of evidence: subject, time and lock are added, and the file is written."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from bedplate.portable import evidence

if TYPE_CHECKING:
    from collections.abc import Mapping


def now() -> str:
    """Return the time as evidence states it: UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def write(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write evidence in one step as ``host-<name>.json`` or ``cluster.json``."""
    subject = document["subject"]
    name = "cluster" if subject["kind"] == "cluster" else f"host-{subject['name']}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    # mkstemp's 0600 would keep the report from other users of the site; there is no secret in it.
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)
    return path


class EvidenceAction(ActionBase):
    """Runs the collector on the host, writes what it found, fails on failures."""

    kind: str
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        wish = self._task.args
        try:
            answer = self._execute_module(module_args=wish, task_vars=task_vars)
        except AnsibleConnectionFailure as error:
            # Old evidence would still say that all is well.
            self._conclude(result, {"checks": [self._unreachable(str(error))]})
            raise
        result.update(answer)
        collected = result.pop("collected", None)
        if collected is None:  # the module itself failed, and says why
            return result
        self._conclude(result, collected)
        return result

    def _conclude(self, result: dict[str, Any], collected: Mapping[str, Any]) -> None:
        wish = self._task.args
        document = evidence.document(
            kind=self.kind,
            name=wish["name"],
            pool=wish.get("pool"),
            lock=wish.get("lock_digest") or "",
            checked=now(),
            content=collected,
        )
        if wish.get("evidence_dir") and not self._task.check_mode:
            result["path"] = str(write(Path(wish["evidence_dir"]), document))
        result["changed"] = False
        result["summary"] = evidence.summary(document["checks"])
        failures = evidence.failures(document["checks"], wish["name"])
        if failures:
            result["failed"] = True
            result["msg"] = "\n".join(failures)
        else:
            # A failed task prints all that it returns: there the message is enough.
            result["evidence"] = document
            result["msg"] = result["summary"]

    def _unreachable(self, reason: str) -> dict[str, Any]:
        what = "the host answers over SSH"
        fix = "Check its address, its power and the way to it."
        return evidence.failed("host.reachable", what, reason, fix, "an answer")
