"""Services that hold the GPUs and are no workload: stopped for a change, and started again.

The names of those that are stopped lie on the host until they run again, so that a later run starts
them where the one that stopped them failed or was killed.
"""

from typing import List, Optional, Sequence

from .host import Host

DAEMON = "nvidia-persistenced"
#: They only watch the GPUs; DCGM's unit had the second name once.
WATCHERS = ("nvidia-dcgm", "dcgm")
#: In the order in which they stop.
HOLDERS = (*WATCHERS, "nvidia-imex", "nvidia-fabricmanager", DAEMON)
#: Gone with a reboot, as it is to be: what runs from then on is what the administrator enabled.
RECORD = "/run/bedplate/stopped-services"


def runs(host: Host, name: str) -> bool:
    """Whether systemd says that the service is active."""
    return host.run(["systemctl", "is-active", "--quiet", name]).code == 0


def persistent(host: Host) -> bool:
    """Whether the daemon that keeps GPUs initialised runs, and starts at boot."""
    ask = ["systemctl", "show", "--property=ActiveState,UnitFileState", DAEMON + ".service"]
    said = host.run(ask).out.split()
    return sorted(said) == ["ActiveState=active", "UnitFileState=enabled"]


def stopped(host: Host) -> List[str]:
    """The services that were stopped and are yet to be started, in the order of `HOLDERS`."""
    names = (host.read(RECORD) or "").split()
    return [name for name in HOLDERS if name in names]


def _record(host: Host, names: Sequence[str]) -> None:
    if set(names) == set(stopped(host)):
        return
    if names:
        host.write(RECORD, "".join(f"{name}\n" for name in names))
    else:
        host.remove(RECORD)


def stop(host: Host, names: Sequence[str] = HOLDERS) -> Optional[str]:
    """Stop those of ``names`` that run; the reason where one does not stop."""
    running = [name for name in names if runs(host, name)]
    # First written down: a run that is killed now has them started by the next.
    _record(host, [*stopped(host), *running])
    for name in running:
        answer = host.run(["systemctl", "stop", name])
        if answer.code != 0:
            return f"stop of {name}: {answer.said}"
    return None


def start(
    host: Host, names: Sequence[str] = HOLDERS, wait: bool = True, check: bool = False
) -> List[str]:
    """Start those of ``names`` that were stopped; those that start, or with ``check`` would.

    One that fails stays written down: it may fit the next driver, if not this one. Without ``wait``
    a start is only asked for.
    """
    mine = [name for name in reversed(stopped(host)) if name in names]
    idle = [name for name in mine if not runs(host, name)]
    if check:
        return idle
    command = ["systemctl", "start", *([] if wait else ["--no-block"])]
    failed = [name for name in idle if host.run([*command, name]).code != 0]
    _record(host, [name for name in stopped(host) if name not in mine or name in failed])
    return [name for name in idle if name not in failed]
