"""`bedplate drift SITE`: what has changed on the hosts, and what to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common import terminal
from bedplate.common.evidence_file import load_evidence
from bedplate.evidence.drift import HostDrift, commands, load_drift
from bedplate.lock import digest, load_lock
from bedplate.portable.evidence import checks
from bedplate.site.concealed import secrets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NO_DRIFT, DRIFT, NOT_KNOWN = 0, 2, 3


def run(site: Path, form: str) -> int:
    """Print what ``playbooks/drift.yml`` found last.

    Returns:
        0 when every host was looked at under the present lock and none has drifted, 2 when one has,
        3 when none has but not every host is known.

    Raises:
        BedplateError: the site's lock is missing or cannot be read, or a vault of the site: what it
            holds could not be hidden.
    """
    lock, hidden = load_lock(site), secrets(site)
    evidence = load_evidence(site, needed=False, secrets=hidden)
    hosts = load_drift(site, lock, digest(site), evidence, hidden)
    drifted = [host for host in hosts if host.state == "drifted"]
    unknown = [host for host in hosts if host.state == "unknown"]
    if form != "table":
        terminal.document(_content(site, hosts), form)
    else:
        for host in hosts:
            _print(host)
        _print_what_to_run(site, hosts, unknown)
        print(
            f"{len(hosts)} hosts: {len(drifted)} drifted, {len(unknown)} not known,"
            f" {len(hosts) - len(drifted) - len(unknown)} without drift"
        )
    if drifted:
        return DRIFT
    return NOT_KNOWN if unknown or not hosts else NO_DRIFT


def _print(host: HostDrift) -> None:
    if host.unknown:
        print(f"{host.name}: not known — {host.unknown}")
    elif not host.differences:
        print(f"{host.name}: no drift, looked at {host.checked}")
    else:
        print(f"{host.name}: {len(host.differences)} drifted, looked at {host.checked}")
        failed = [one.check.model_dump(mode="json") for one in host.differences]
        for message in checks.failures(failed, host.name):
            print(f"  {message}")


def _print_what_to_run(
    site: Path, hosts: Sequence[HostDrift], unknown: Sequence[HostDrift]
) -> None:
    todo = commands(site, hosts)
    if unknown:
        names = ",".join(host.name for host in unknown)
        todo.append(f"ansible-playbook -i {site} bedplate.gpu.drift --limit {names}")
    if todo:
        print("To run:")
    for command in todo:
        print(f"  {command}")


def _content(site: Path, hosts: Sequence[HostDrift]) -> dict[str, Any]:
    return {
        "ok": all(host.state == "clean" for host in hosts) and bool(hosts),
        "hosts": {host.name: host.as_json() for host in hosts},
        "drift": [one.as_json(site) for host in hosts for one in host.differences],
        "run": commands(site, hosts),
    }
