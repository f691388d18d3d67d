"""Units that follow their files: what is owed by what systemd says, and what is then done."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import services
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PATH = "/etc/systemd/system/watch.path"
DROP_IN = "/etc/systemd/system/watch.path.d/10-more.conf"
ELSEWHERE = "/etc/watch.conf"
FILES = [PATH, DROP_IN, ELSEWHERE]


class Systemd:
    """Answers ``systemctl show`` for units, and takes note of all else that is asked."""

    def __init__(self, root: Path, **units: dict[str, str]) -> None:
        self.units = {name.replace("_", "."): told for name, told in units.items()}
        self.asked: list[str] = []
        self.refused = ""
        self.host = Host(str(root), self.run)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        if argv[1] != "show":
            self.asked.append(" ".join(argv[1:]))
            return Result(1, "", self.refused) if self.refused else Result(0, "", "")
        units = argv[2 : argv.index("--property")]
        parts = ("\n".join(f"{k}={v}" for k, v in self.units[unit].items()) for unit in units)
        return Result(0, "\n\n".join(parts) + "\n", "")


def up(seconds: float, **more: str) -> dict[str, str]:
    """A unit that runs since so many seconds; a watch has no program that started."""
    told = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}
    return told | {"ActiveEnterTimestampMonotonic": since(seconds)} | more


def since(seconds: float) -> str:
    """What systemd says of so many seconds ago."""
    return str(int((time.monotonic() - seconds) * 1e6))


DOWN = {"ActiveState": "inactive", "UnitFileState": "disabled", "NeedDaemonReload": "no"}
UNKNOWN = {"ActiveState": "inactive", "UnitFileState": "", "NeedDaemonReload": "no"}


def lay(root: Path, path: str, seconds: float) -> None:
    """Have a file that was changed so many seconds ago."""
    real = root / path.lstrip("/")
    real.parent.mkdir(parents=True, exist_ok=True)
    real.touch()
    os.utime(real, (time.time() - seconds,) * 2)


@pytest.mark.parametrize(
    ("wish", "told", "changed", "expected"),
    [
        ("started", up(60), [], []),
        ("started", UNKNOWN, [PATH], ["systemd", "enabled", "started"]),
        ("enabled", UNKNOWN, [PATH], ["systemd", "enabled"]),
        ("loaded", UNKNOWN, [PATH], ["systemd"]),
        ("started", up(60), [DROP_IN], ["systemd", "restarted"]),
        ("started", up(60), [ELSEWHERE], ["restarted"]),
        ("enabled", up(60), [PATH], ["systemd"]),
        ("started", up(60, UnitFileState="disabled"), [], ["enabled"]),
        ("started", up(60, NeedDaemonReload="yes"), [], ["systemd"]),
        ("started", DOWN | {"UnitFileState": "enabled"}, [], ["started"]),
        ("loaded", DOWN, [], []),
        ("current", up(60), [], []),
        ("current", up(60), [ELSEWHERE], ["restarted"]),
        ("current", up(60, UnitFileState="disabled"), [DROP_IN], ["systemd", "restarted"]),
        ("current", up(60, NeedDaemonReload="yes"), [], ["systemd"]),
        ("current", DOWN, [ELSEWHERE], []),
        ("current", UNKNOWN, [DROP_IN], ["systemd"]),
        ("reloaded", up(60, StateChangeTimestampMonotonic=since(60)), [], []),
        ("reloaded", up(60), [ELSEWHERE], ["reloaded"]),
        ("reloaded", DOWN, [ELSEWHERE], []),
    ],
)
def test_what_a_unit_lacks(
    tmp_path: Path, wish: str, told: dict[str, str], changed: list[str], expected: list[str]
) -> None:
    for path in FILES:
        # Long before: `told` was made when the tests were collected, which may be an hour ago.
        lay(tmp_path, path, 86_400)
    host = Systemd(tmp_path, watch_path=told).host
    lacks = services.owed(host, {"watch.path": wish}, FILES, changed)
    assert [line.removeprefix("watch.path: ").split(":")[0] for line in lacks.told] == expected


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize(
    ("wish", "restarts"),
    [("started", ["watch.path"]), ("current", ["watch.path"]), ("enabled", [])],
)
def test_a_restart_that_an_ended_run_owes_is_made_up_for(
    tmp_path: Path, path: str, wish: str, restarts: list[str]
) -> None:
    for one in FILES:
        lay(tmp_path, one, 60 if one == path else 3600)
    host = Systemd(tmp_path, watch_path=up(1800)).host
    assert services.owed(host, {"watch.path": wish}, FILES, []).restart == restarts


def test_a_time_that_is_yet_to_come_restarts_nothing(tmp_path: Path) -> None:
    host = Systemd(tmp_path, watch_path=up(1800)).host
    lay(tmp_path, PATH, -3600)
    assert services.owed(host, {"watch.path": "started"}, [PATH], []).told == []


def test_of_a_folder_its_files_count_and_not_those_of_folders_in_it(tmp_path: Path) -> None:
    host = Systemd(tmp_path, watch_path=up(1800)).host
    lay(tmp_path, "/etc/conf.d/old", 3600)
    lay(tmp_path, "/etc/conf.d/deeper/new", 60)
    assert services.owed(host, {"watch.path": "started"}, ["/etc/conf.d"], []).told == []
    lay(tmp_path, "/etc/conf.d/new", 60)
    lacks = services.owed(host, {"watch.path": "started"}, ["/etc/conf.d"], [])
    assert lacks.restart == ["watch.path"]


def test_a_program_counts_from_its_own_start(tmp_path: Path) -> None:
    lay(tmp_path, PATH, 60)
    restarted = {"ExecMainStartTimestampMonotonic": since(30)}
    host = Systemd(tmp_path, watch_path=up(1800, **restarted)).host
    assert services.owed(host, {"watch.path": "started"}, FILES, []).told == []


@pytest.mark.parametrize(("told", "tells"), [(30, []), (90, ["crio.service"])])
def test_who_was_told_of_the_files_is_not_told_again(
    tmp_path: Path, told: float, tells: list[str]
) -> None:
    lay(tmp_path, ELSEWHERE, 60)
    state = up(1800, StateChangeTimestampMonotonic=since(told))
    host = Systemd(tmp_path, crio_service=state).host
    lacks = services.owed(host, {"crio.service": "reloaded"}, [ELSEWHERE], [])
    assert lacks.tell == tells
    assert lacks.restart == []


def test_units_are_asked_for_at_once_and_each_gets_its_own(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path, a_service=DOWN, b_path=up(60))
    lacks = services.owed(systemd.host, {"b.path": "started", "a.service": "enabled"}, [], [])
    assert lacks.told == ["a.service: enabled"]


def test_steps_are_made_in_order_and_the_first_refusal_ends_them(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path)
    lacks = services.Owed(True, ["a.service", "b.path"], ["b.path"], ["c.service"], ["d.service"])
    assert services.settle(systemd.host, lacks) == ""
    # To enable reads the units anew.
    assert systemd.asked == [
        "enable a.service b.path",
        "start b.path",
        "restart c.service",
        "reload d.service",
    ]
    systemd.asked.clear()
    assert services.settle(systemd.host, lacks._replace(enable=[], restart=[], tell=[])) == ""
    assert systemd.asked == ["daemon-reload", "start b.path"]
    systemd.asked, systemd.refused = [], "Unit b.path is masked."
    assert services.settle(systemd.host, lacks) == (
        "systemctl enable a.service b.path: Unit b.path is masked."
    )
    assert systemd.asked == ["enable a.service b.path"]


def test_what_may_not_be_restarted_now_is_named_where_it_owes_it() -> None:
    lacks = services.Owed(True, [], ["c.service"], ["a.service", "b.service"], [])
    left, spared = services.spare(lacks, ["b.service", "c.service"])
    assert spared == ["b.service"]
    assert left == lacks._replace(restart=["a.service"])


def test_nothing_is_asked_of_systemd_without_units(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path)
    assert services.owed(systemd.host, {}, FILES, [ELSEWHERE]).told == []
    assert services.settle(systemd.host, services.Owed(False, [], [], [], [])) == ""
    assert systemd.asked == []
