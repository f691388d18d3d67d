"""`bedplate preflight SITE`: run the job, keep what it measured as evidence, remove it."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bedplate.common import kubeconfig, programs, terminal
from bedplate.common.errors import BedplateError, Problem
from bedplate.common.evidence_file import Result, evidence_folder, load_evidence
from bedplate.components.preflight import judge
from bedplate.components.preflight.objects import LABEL, NAME, NAMESPACE, nodes_of, objects
from bedplate.lock import digest, load_lock
from bedplate.lock.file import write_text
from bedplate.pods.api import Api, ApiError
from bedplate.pods.kubeaccess import access_of
from bedplate.portable.evidence import checks

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

PROVEN, NOT_PROVEN = 0, 2
PLURALS: Final = {
    "Namespace": "namespaces",
    "Secret": "secrets",
    "Service": "services",
    "ConfigMap": "configmaps",
    "Job": "jobs",
}
#: For an answer of the API, for a namespace to go, and for a key to be made.
PATIENCE, GOING, MAKING = 30.0, 120.0, 60.0
CONFLICT, MISSING = 409, 404


class PreflightError(BedplateError):
    """The job cannot be run at all."""


def run(options: Namespace) -> int:
    """Run the job and write SITE/.bedplate/evidence/preflight.json.

    Returns:
        0 when every pair was measured, else 2.

    Raises:
        BedplateError: the site has no lock, kubeconfig or nodes, or the API does not answer.
    """
    site: Path = options.site
    lock = load_lock(site)
    nodes = nodes_of(lock)
    if not nodes:
        raise _problem(site, "the site has no node in a pool", "none", "one node at least")
    simulated = any(one.simulated for one in load_evidence(site, needed=False))
    with access_of(kubeconfig.path_in(site)) as entry:
        api = Api(entry.access, PATIENCE)
        try:
            measured = _measured(
                api, objects(lock, options.image, _key(), options.seconds), options
            )
        except ApiError as error:
            raise _problem(site, "the API refused the job", str(error), "an answer") from error
    if isinstance(measured, str):
        found = judge.failed(nodes, measured)
    else:
        found = judge.checked(lock, nodes, measured, simulated=simulated)
    path = write(site, digest(site), found, options.image, simulated=simulated)
    proven = all(one["result"] != Result.FAIL for one in found)
    if options.form != "table":
        terminal.document({"ok": proven, "checks": found, "evidence": str(path)}, options.form)
        return PROVEN if proven else NOT_PROVEN
    for one in found:
        reason = f" — {one['reason']}" if one["reason"] else ""
        print(f"{one['result']:7} {one['what']}{reason}")
    print(f"Wrote {path}; see: bedplate report {site}")
    return PROVEN if proven else NOT_PROVEN


def write(
    site: Path, lock: str, found: list[dict[str, Any]], image: str, *, simulated: bool
) -> Path:
    """Keep checks as the site's evidence, and return where; `lock` is the lock's digest."""
    content = {"simulated": simulated, "checks": found, "facts": {"image": image}}
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = checks.document(NAME, NAME, None, lock, at, content)
    path = evidence_folder(site) / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=2) + "\n")
    return path


def _measured(api: Api, wanted: list[dict[str, Any]], options: Namespace) -> judge.Measured | str:
    """Run the job and remove it: what it measured, or why it did not."""
    _remove(api)
    try:
        for one in wanted:
            api.call("POST", _path(one), one)
        job = f"{_path(wanted[-1])}/{NAME}"
        # Its own time limit ends it; pods that never start have it too.
        until = time.monotonic() + options.seconds + PATIENCE
        while time.monotonic() < until:
            conditions = api.call("GET", job).get("status", {}).get("conditions", [])
            ended = {one["type"]: one for one in conditions if one["status"] == "True"}
            if "Complete" in ended:
                return _words(api)
            if "Failed" in ended:
                return _reason(api, str(ended["Failed"].get("message", "")))
            time.sleep(0.5)
        return _reason(api, f"the job did not end within {options.seconds} seconds")
    finally:
        with suppress(ApiError):
            api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def _words(api: Api) -> judge.Measured | str:
    """Return the last words of the job's first pod, which is the one with any."""
    for pod in _pods(api):
        for one in pod["status"].get("containerStatuses", []):
            if text := one.get("state", {}).get("terminated", {}).get("message"):
                return judge.read(text)
    return "the job ended and left no figures"


def _reason(api: Api, message: str) -> str:
    """Return why a job failed, with what its pods wait for."""
    waiting = []
    for pod in _pods(api):
        status = pod["status"]
        for one in status.get("containerStatuses", []):
            state = one.get("state", {})
            its = [state[kind] for kind in ("waiting", "terminated") if kind in state]
            waiting += [str(one.get("message") or one.get("reason")) for one in its]
        waiting += [one["message"] for one in status.get("conditions", []) if one.get("message")]
    return "; ".join(dict.fromkeys([message, *waiting]))


def _pods(api: Api) -> list[dict[str, Any]]:
    ((key, value),) = LABEL.items()
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={key}%3D{value}"
    found: list[dict[str, Any]] = api.call("GET", path)["items"]
    return found


def _remove(api: Api) -> None:
    """Remove what an interrupted run has left."""
    path = f"/api/v1/namespaces/{NAMESPACE}"
    if not _gone(lambda: api.call("DELETE", path)):
        until = time.monotonic() + GOING
        while not _gone(lambda: api.call("GET", path)):
            if time.monotonic() > until:
                raise ApiError(CONFLICT, f"namespace {NAMESPACE} does not go")
            time.sleep(0.5)


def _gone(asked: Callable[[], object]) -> bool:
    try:
        asked()
    except ApiError as error:
        if error.status != MISSING:
            raise
        return True
    return False


def _path(one: dict[str, Any]) -> str:
    version = one["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = one["metadata"].get("namespace")
    middle = f"/namespaces/{within}" if within else ""
    return f"{root}{middle}/{PLURALS[one['kind']]}"


def _key() -> str:
    """Return a private key for this job alone."""
    with tempfile.TemporaryDirectory(prefix="bedplate-preflight-") as folder:
        path = Path(folder) / "key"
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", NAME, "-f", str(path)]
        try:
            programs.run(made, MAKING)
        except programs.ProgramError as error:
            what, fix = "no key can be made for the job", "install OpenSSH's client, or run it"
            problem = Problem(what, made[0], got=error.got, fix=fix)
            raise PreflightError([problem]) from error
        return path.read_text(encoding="utf-8")


def _problem(site: Path, what: str, got: str, allowed: str) -> PreflightError:
    fix = f"see that the cluster is up: kubectl --kubeconfig {kubeconfig.path_in(site)} get nodes"
    return PreflightError([Problem(what, str(site), got=got, allowed=allowed, fix=fix)])
