"""What the three stacks read from their Pulumi configuration, and the site behind it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulumi

from bedplate.common import evidence_file, formats, reading
from bedplate.common.errors import BedplateError
from bedplate.lock import load_lock, lock_path
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from bedplate.lock import Lock

#: Settings that a stack keeps encrypted.
SECRETS: Final = ("oauthClientSecret", "hubKey")


class StackError(pulumi.RunError):  # type: ignore[misc]
    """A mistake of the user: shown as it is, without a traceback."""


@dataclass(frozen=True)
class StackConfig:
    """Typed configuration of a stack.

    Attributes:
        site: the site's directory.
        private_key: SSH key, relative to the site: as configured, else the site's own where it has
            one; None for the user's agent and keys.
        known_hosts: known hosts, relative to the site, likewise; None for the user's own.
        force: forget hosts that are gone and take a cluster down that is in use.
        gpu_seconds: how long a node's GPUs are waited for.
    """

    site: Path
    private_key: str | None
    known_hosts: str | None
    force: bool
    gpu_seconds: int

    @property
    def site_from_project(self) -> str:
        """Return the site's path from the project's directory: the same on every checkout."""
        return os.path.relpath(self.site, Path.cwd())


def read() -> StackConfig:
    """Read the stack's configuration.

    A relative `bedplate:site` starts at the project's folder. By default the site is the directory
    under `../../inventories` that has the stack's name, else `../../inventory`. Raises StackError
    if there is none.
    """
    config = pulumi.Config("bedplate")
    named = config.get("site")
    project = Path.cwd()
    defaults = (f"../../inventories/{pulumi.get_stack()}", "../../inventory")
    looked = [(project / place).resolve() for place in ([named] if named else defaults)]
    site = next((folder for folder in looked if folder.is_dir()), None)
    if site is None:
        raise StackError(
            problem(
                "no such site",
                f"bedplate:site of stack {pulumi.get_stack()}",
                f"{named or 'no setting'}, and no directory {' or '.join(map(str, looked))}",
                f"an inventory directory; a relative path starts at {project}",
                "name it with `pulumi config set bedplate:site PATH`",
            )
        )
    return StackConfig(
        site,
        config.get("privateKey") or _own(site, "id_ed25519"),
        config.get("knownHosts") or _own(site, "known_hosts"),
        config.get_bool("force") or False,
        config.get_int("gpuSeconds") or 300,
    )


def _own(site: Path, name: str) -> str | None:
    """Return a file of the site's own SSH directory, relative to the site, if there is one."""
    relative = Path(".bedplate/ssh") / name
    return str(relative) if (site / relative).is_file() else None


def found_in(path: Path, key: str) -> dict[str, Any]:
    """Return a mapping of a host's evidence; an empty one where the host has none.

    Raises StackError where something else lies there, also evidence of another format.
    """
    try:
        found = reading.document(path)
        formats.check(found, evidence_file.FORMAT)
        part = found.get(key) or {}
        return dict(part)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        fix = "remove it and run `ansible-playbook bedplate.gpu.verify` on the site"
        raise StackError(str(evidence_file.refused(path, error, fix))) from error


def _shared(lock: Lock) -> dict[str, list[str]]:
    return {"cluster": lock.cluster.not_yet} if lock.cluster else {"site": lock.not_yet}


def lock_of(site: Path) -> Lock:
    """Return the site's lock. Raises StackError with the lock's own message.

    A lock that decides more than this version can carry out is refused as site.yml refuses it.
    """
    try:
        lock = load_lock(site)
    except BedplateError as error:
        raise StackError(str(error)) from error
    waiting = {name: pool.not_yet for name, pool in lock.pools.items()}
    for name, not_yet in {**waiting, **_shared(lock)}.items():
        if not_yet:
            from bedplate.resolver.installable import described

            raise StackError(
                problem(
                    "not installable by this version",
                    f"{name} in {lock_path(site)}",
                    ", ".join(map(described, not_yet)),
                    None,
                    f"run: bedplate plan {site}, which names each setting to change",
                )
            )
    return lock
