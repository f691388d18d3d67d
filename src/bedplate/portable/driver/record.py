"""The drivers that were seen to work on a host, newest first: what a rollback goes back to."""

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from .. import documents
from ..host import Host
from ..refusal import Module, refuse

PATH = "/etc/bedplate/driver.json"
FORMAT = 2
#: The last good driver and the one before it.
DEPTH = 2
FLAVOUR: Dict[str, Any] = {
    "type": "str",
    "choices": ["open", "proprietary"],
    "default": "proprietary",
}
#: What modules take for a driver, as Ansible's argument specs say it.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "version": {"type": "str", "required": True},
    "flavour": FLAVOUR,
    "source": {"type": "str", "default": "distro"},
    "packages": {"type": "dict", "required": True},
}


class Driver(NamedTuple):
    """One driver: the packages with their exact versions, and the kernel that it was seen on."""

    version: str
    flavour: str
    source: str
    kernel: str
    packages: Mapping[str, str]

    @property
    def name(self) -> str:
        """``535.309.01 (proprietary)``."""
        return f"{self.version} ({self.flavour})"

    def same(self, other: "Driver") -> bool:
        """Whether it is the same driver, on whatever kernel."""
        return self._replace(kernel="") == other._replace(kernel="")


class Record(NamedTuple):
    """``changing`` was begun and not yet seen to work; ``failed`` was given up, and why.

    ``back`` says that the change is a rollback that was asked for.
    """

    good: Sequence[Driver] = ()
    changing: Optional[Driver] = None
    failed: Optional[Driver] = None
    reason: str = ""
    back: bool = False

    @property
    def drivers(self) -> List[Driver]:
        """Every driver that this record brought to the host, be it in part."""
        return [*self.good, *filter(None, (self.changing, self.failed))]

    @property
    def names(self) -> List[str]:
        """Every package of them: those may be removed again."""
        return sorted({name for driver in self.drivers for name in driver.packages})


def _driver(value: Optional[Mapping[str, Any]]) -> Optional[Driver]:
    if not value:
        return None
    packages = {str(n): str(v) for n, v in dict(value.get("packages") or {}).items()}
    version, flavour, source, kernel = (
        str(value.get(key, "")) for key in ("version", "flavour", "source", "kernel")
    )
    return Driver(version, flavour, source, kernel, packages)


def parse(text: str) -> Record:
    """Read a record; one of format 1 held the last good driver alone.

    Raises ValueError when it is none.
    """
    if not text.strip():
        return Record()
    try:
        value = documents.parsed(text)
        if value["format"] == 1:
            good = [{"source": "distro", **value}]
        elif value["format"] == FORMAT:
            good = value["good"]
        else:
            raise ValueError("format {}".format(value["format"]))
        return Record(
            tuple(d for d in map(_driver, good) if d),
            _driver(value.get("changing")),
            _driver(value.get("failed")),
            str(value.get("reason", "")),
            bool(value.get("back", False)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def render(record: Record) -> str:
    """The record as text; the same record gives the same text."""

    def plain(driver: Optional[Driver]) -> Optional[Dict[str, Any]]:
        return None if driver is None else {**driver._asdict(), "packages": dict(driver.packages)}

    value: Dict[str, Any] = {"format": FORMAT, "good": [plain(d) for d in record.good]}
    if record.changing:
        value["changing"] = plain(record.changing)
    if record.back:
        value["back"] = True
    if record.failed:
        value.update(failed=plain(record.failed), reason=record.reason)
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def read(host: Host) -> Record:
    """The host's record. Raises ValueError when the file is there and is none."""
    try:
        return parse(host.read(PATH) or "")
    except ValueError as error:
        raise ValueError(f"{PATH} cannot be read: {error}") from error


def read_or_refuse(module: Module, host: Host) -> Record:
    """The host's record for a module, which fails where the file is none."""
    try:
        return read(host)
    except ValueError as error:
        refuse(
            module,
            "the record of the drivers that worked cannot be read",
            str(error),
            "what Bedplate has written there",
            "Fix it, or remove it: then there is nothing to roll back to.",
        )


def begun(record: Record, driver: Driver) -> Record:
    """A change to ``driver`` begins. What an earlier, unfinished change brought stays known."""
    before = record.changing
    if before is not None and not before.same(driver):
        driver = driver._replace(packages={**before.packages, **driver.packages})
    return record._replace(changing=driver)


def works(record: Record, driver: Driver) -> Record:
    """``driver`` was seen to work: it is the last good one."""
    others = [one for one in record.good if not one.same(driver)]
    given_up = record.failed if record.failed and not record.failed.same(driver) else None
    return Record(
        (driver, *others)[:DEPTH], None, given_up, record.reason if given_up is not None else ""
    )


def gave_up(record: Record, driver: Driver, reason: str) -> Record:
    """``driver`` did not work, or was taken back: no rollback goes to it."""
    return record._replace(changing=None, failed=driver, reason=reason, back=False)


def target(record: Record) -> Optional[Driver]:
    """What a rollback that is asked for goes back to.

    While a change is unfinished that is the last good driver, otherwise the one before it. A driver
    that was given up is no target.
    """
    going_back = on_the_way_back(record)
    if going_back is not None:
        return going_back
    good = [one for one in record.good if not (record.failed and one.same(record.failed))]
    if record.changing is None and good and record.good[0] is good[0]:
        good = good[1:]
    return good[0] if good else None


def on_the_way_back(record: Record) -> Optional[Driver]:
    """The driver that an unfinished rollback goes to: asked for again, it goes on to the same."""
    changing = record.changing
    if not record.back or changing is None:
        return None
    wanted = (changing.version, changing.flavour, changing.source)
    former = (o for o in record.good[1:] if (o.version, o.flavour, o.source) == wanted)
    return next(former, None)
