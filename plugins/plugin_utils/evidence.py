"""The control side of evidence: subject, time and lock are added, and the file is written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package

if TYPE_CHECKING:
    from collections.abc import Mapping

evidence = package("portable.evidence.checks")
harmless = package("common.harmless")
reading = package("common.reading")
writing = package("common.writing")


def now() -> str:
    """Return the time as evidence states it: UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def place(folder: Path, kind: str, name: str) -> Path:
    """Return where evidence lies: ``host-<name>.json``, ``drift-<name>.json``, ``cluster.json``.

    Raises AnsibleError where a host's name cannot be a file's.
    """
    if kind == "cluster":
        return folder / "cluster.json"
    try:
        return folder / f"{kind}-{writing.file_name(name, 'host')}.json"
    except package("common.errors").BedplateError as error:
        raise AnsibleError(str(error)) from None


def read(path: Path) -> dict[str, Any]:
    """Return evidence that lies there; nothing where there is none, or none that can be read."""
    try:
        found = reading.document(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: Path, document: Mapping[str, Any]) -> Path:
    """Write evidence in one step, readable by all: there is no secret in it."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    writing.replace(path, text.encode(errors="replace"), durable=False)
    return path


def compare_hardware(document: dict[str, Any], last: Mapping[str, Any], *, drift: bool) -> None:
    """Tell what was swapped since the last evidence: a note, and a difference in a look for drift.

    A GPU or a server that was exchanged is taken in by the next run; nothing is built anew.
    """
    before, found = evidence.hardware(last), evidence.hardware(document)
    since, swapped = evidence.exchanged(before, found)
    if swapped:
        document["facts"]["changed_since"] = {"checked": since, "what": swapped}
    kept = evidence.lacking(before, found)
    if kept:
        document["facts"]["before"] = kept
    if not drift:
        return
    what = "machine and GPUs are those of the last evidence, without differences"
    fix = "If that was meant, run bedplate.gpu.site for this host again: it takes them in."
    if evidence.comparable(before, found):
        check = evidence.check("hardware.same", what, [], swapped, fix)
    else:
        reason = "there is no evidence of machine or GPUs to compare with"
        check = evidence.skipped("hardware.same", what, reason)
    document["checks"].append(check)


def cleaned(action: ActionBase, content: Any, task_vars: Mapping[str, Any] | None) -> Any:
    """Return what a host said without the site's passwords, and as nothing that steers a screen."""
    proxy = action._templar.template((task_vars or {}).get("bedplate_proxy"))
    url = proxy.get("url") if isinstance(proxy, dict) else None
    login = action._templar.template((task_vars or {}).get("bedplate_sources_login"))
    password = str(login.get("password") or "") if isinstance(login, dict) else ""
    return harmless.cleaned(content, {password, *harmless.secrets_of(str(url or ""))} - {""})


class EvidenceAction(ActionBase):
    """Runs the collector on the host, writes what it found, fails on failures."""

    kind: str
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        # The control side's alone: the host tells all that it finds.
        wish = {key: value for key, value in self._task.args.items() if key != "waits"}
        try:
            answer = self._execute_module(module_args=wish, task_vars=task_vars)
            answer = cleaned(self, answer, task_vars)
        except AnsibleConnectionFailure as error:
            # Old evidence would still say that all is well.
            reason = cleaned(self, str(error), task_vars)
            self._conclude(result, {"checks": [self._unreachable(reason)]})
            raise
        result.update(answer)
        collected = result.pop("collected", None)
        if collected is None:
            # The module itself failed, and says why. Old evidence would still say that all is well.
            reason = str(result.get("msg", "the module ended without an answer"))
            message = dict(result)
            self._conclude(result, {"checks": [self._unread(reason)]})
            return message
        self._conclude(result, collected)
        return result

    def _conclude(self, result: dict[str, Any], collected: Mapping[str, Any]) -> None:
        wish = self._task.args
        drift = boolean(wish.get("drift") or False)
        document = evidence.document(
            kind=self.kind,
            name=wish["name"],
            pool=wish.get("pool"),
            lock=wish.get("lock_digest") or "",
            checked=now(),
            content=collected,
        )
        folder = Path(wish.get("evidence_dir") or "")
        keep = bool(wish.get("evidence_dir"))
        if keep and self.kind == "host":
            last = read(place(folder, "host", wish["name"]))
            compare_hardware(document, last, drift=drift)
        if keep and not self._task.check_mode:
            path = place(folder, "drift" if drift else self.kind, wish["name"])
            result["path"] = str(write(path, document))
        result["changed"] = False
        result["summary"] = evidence.summary(document["checks"])
        failing = {check["id"] for check in document["checks"] if check["result"] == "fail"}
        waiting = failing & set(wish.get("waits") or [])
        rest = [check for check in document["checks"] if check["id"] not in waiting]
        failures = evidence.failures(rest, wish["name"])
        if waiting:
            result["waiting"] = sorted(waiting)
        if drift:
            result["differences"] = failures
            result["msg"] = "\n".join(failures) or "no drift"
        elif failures:
            result["failed"] = True
            result["failing"] = sorted(failing - waiting)
            result["msg"] = "\n".join(failures)
        else:
            # A failed task prints all that it returns: there the message is enough.
            result["evidence"] = document
            result["msg"] = result["summary"]
            if waiting:
                result["msg"] += f"; waiting: {', '.join(sorted(waiting))}"

    def _unread(self, reason: str) -> dict[str, Any]:
        what = "the host can be looked at"
        fix = "Fix what it says and look again."
        return evidence.failed("host.read", what, reason, fix, "an answer")

    def _unreachable(self, reason: str) -> dict[str, Any]:
        what = "the host answers over SSH"
        fix = "Check its address, its power and the way to it."
        return evidence.failed("host.reachable", what, reason, fix, "an answer")
