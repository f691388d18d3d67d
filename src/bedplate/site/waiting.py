"""Programs that Ansible waits for while it reads a site: named after a while, and then stopped.

Inventory scripts, those that give vault passwords and what lookups start all get their
environment from this process. By one variable of it they and their children are found, also
those that have left their parents.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ansible import constants

from bedplate.common.errors import Problem, SiteError
from bedplate.site import files

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds after which a program that Ansible waits for is named, and after which it is stopped.
PATIENCE, LIMIT = 10.0, 300.0
#: Bytes by which this process may grow: Ansible keeps all that a program prints.
LARGEST = 1 << 30
#: Seconds between two looks.
LOOKS = 0.25
MARK: Final = "BEDPLATE_READS"
_PROCESSES: Final = Path("/proc")


@contextlib.contextmanager
def limited(site: Path) -> Iterator[None]:
    """Name programs that take long, and stop them at the limits.

    Raises SiteError where they were stopped, whatever Ansible makes of that.
    """
    mark = secrets.token_hex(8)
    before = os.environ.get(MARK)
    os.environ[MARK] = mark
    ended = threading.Event()
    stopped: list[str] = []
    watch = threading.Thread(target=_watch, args=(site, mark, ended, stopped), daemon=True)
    watch.start()
    try:
        yield
    except Exception:
        if not stopped:
            raise
    finally:
        ended.set()
        watch.join()
        if before is None:
            os.environ.pop(MARK, None)
        else:
            os.environ[MARK] = before
    if stopped:
        raise SiteError(
            [
                Problem(
                    "reading the inventory was stopped",
                    str(site),
                    got=f"{stopped[0]} from {_programs(site)}",
                    allowed=f"{LIMIT:.0f} s, and {LARGEST >> 20} MiB of output",
                    fix="run the program alone, or keep its answer as a file of the inventory",
                    rule="readable",
                )
            ]
        )


def _watch(site: Path, mark: str, ended: threading.Event, stopped: list[str]) -> None:
    begun, size, named = time.monotonic(), _resident(), False
    while not ended.wait(LOOKS):
        waited = time.monotonic() - begun
        if waited > PATIENCE and not named:
            named = True
            print(
                f"bedplate: still waiting for {_programs(site)}; "
                f"Ctrl-C ends it, and {LIMIT:.0f} s do",
                file=sys.stderr,
                flush=True,
            )
        if waited > LIMIT or stopped:
            stopped[:] = stopped or [f"no end after {waited:.0f} s"]
            _stop(mark)
        elif _resident() - size > LARGEST:
            stopped[:] = [f"more than {LARGEST >> 20} MiB"]
            _stop(mark)


def _programs(site: Path) -> str:
    """Return the programs of a site by name."""
    programs: list[Path] = []
    with contextlib.suppress(SiteError, OSError):
        programs += (path for path in files.files_of(site) if os.access(path, os.X_OK))
    configured = constants.DEFAULT_VAULT_PASSWORD_FILE
    programs += [Path(configured)] if configured else []
    return ", ".join(map(str, programs)) or "Ansible's plugins"


def _resident() -> int:
    try:
        pages = int((_PROCESSES / "self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _stop(mark: str) -> None:
    """End every process that has the mark in its environment, but for this one."""
    wanted = f"{MARK}={mark}".encode()
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and wanted in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
