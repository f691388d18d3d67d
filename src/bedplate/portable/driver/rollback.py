"""Whether a host must go back to another driver, to which one, and what goes with that."""

from typing import List, NamedTuple, Optional

from ..host import Host
from . import record as driver_record
from . import runfile as driver_runfile
from . import state as driver
from .record import Driver, Record


class Plan(NamedTuple):
    """``target`` is what to go back to, None where nothing is known to have worked before.

    ``remove`` names the packages that go with it. Where the host already is as the target wants it,
    or where nothing worked before and nothing is left in the middle, nothing is ``needed``.
    """

    needed: bool
    target: Optional[Driver]
    remove: List[str]


def _plan(host: Host, target: Optional[Driver], brought: List[str]) -> Plan:
    keep = target.packages if target else {}
    remove = driver.present(host, [name for name in brought if name not in keep])
    if target is None:
        # Nothing to go back to: packages that were installed well may stay, for the cause may be
        # another one (a missing kernel header, nouveau) that is easily mended.
        return Plan(driver.interrupted(host), None, remove)
    now = driver.state(host, target.packages)
    other = now.loaded is not None and driver.differs(now.loaded, target.version, target.flavour)
    gone = now.loaded is None and not now.differing and not remove
    away = target.source == "runfile" and driver_runfile.installed(host) != target.version
    return Plan(bool(now.differing or remove or other or gone or away), target, remove)


def after_failure(host: Host, record: Record, wished: Driver) -> Plan:
    """What to do after a change to ``wished`` has failed.

    A change that was not begun is none: ``needed`` is False then.
    """
    if record.changing is None:
        return Plan(False, None, [])
    if record.good and record.good[0].same(wished):
        # The last good driver was being mended: to take it away would leave nothing that works.
        return Plan(False, None, [])
    target = record.good[0] if record.good else None
    return _plan(host, target, sorted({*wished.packages, *record.changing.packages}))


def asked_for(host: Host, record: Record) -> Plan:
    """What to do when the user asks for the driver before the present one."""
    target = driver_record.target(record)
    if target is None:
        return Plan(False, None, [])
    return _plan(host, target, record.names)._replace(needed=True)


def present(record: Record) -> Optional[Driver]:
    """The driver that a rollback takes away: the one being installed, or the last good one."""
    if record.changing is not None and driver_record.on_the_way_back(record) is None:
        return record.changing
    return record.good[0] if record.good else None
