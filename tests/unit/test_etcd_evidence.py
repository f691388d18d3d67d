"""What the evidence says of a control plane's etcd, by answers as etcd 3.6.8 gives them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import backup
from bedplate.portable.evidence import etcd
from bedplate.portable.evidence.area import Collected
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GIB = 1 << 30
WIDE = "--quota-backend-bytes=8589934592"
VARIABLE = "name: ETCD_QUOTA_BACKEND_BYTES\n      value: '8589934592'"
ALARM = "memberID:3319814642761637952 alarm:NOSPACE "


class ControlPlane:
    """A control plane of three whose etcd and API answer as they are told."""

    def __init__(self, root: Path) -> None:
        self.host = Host(str(root), self.run)
        self.status: dict[str, Any] = {"dbSize": 20480, "dbSizeQuota": 2 * GIB}
        self.members = [_member("cp1"), _member("cp2"), _member("cp3")]
        self.planes = ["cp2", "cp3", "cp1"]
        self.nodes: list[str] = []
        self.crictl: dict[str, Any] = {}
        self.silent = ""
        self.client = root / "proc/7/root/usr/local/bin/etcdctl"
        self.client.parent.mkdir(parents=True)
        self.client.touch()
        self.database = root / "var/lib/etcd/member/snap/db"
        self.database.parent.mkdir(parents=True)
        self.database.write_bytes(b"x" * 20480)
        self.flags()

    def flags(self, *more: str) -> None:
        """Have etcd started with these as well."""
        flags = ["--data-dir=/var/lib/etcd", *more]
        self.host.write(backup.MANIFEST, "".join(f"    - {flag}\n" for flag in flags))

    def run(self, argv: Sequence[str], *_: Any) -> Result:
        """Answer."""
        words = " ".join(argv)
        if self.silent and self.silent in words:
            return Result(1, "", "context deadline exceeded")
        if argv[0] == "kubectl":
            named = [*self.planes, *([] if etcd.LABELLED in argv else self.nodes)]
            return Result(0, "".join(f"node/{one}\n" for one in named), "")
        if argv[0] == "crictl":
            labels = {"io.kubernetes.pod.namespace": "kube-system"}
            answers = {
                "inspect": {"info": {"pid": 7}},
                "ps": {"containers": [{"id": "e7cd", "labels": labels}]},
            }
            return Result(0, json.dumps((answers | self.crictl)[argv[1]]), "")
        if "status" in argv:
            return Result(0, json.dumps([{"Endpoint": "x", "Status": self.status}]), "")
        return Result(0, json.dumps({"members": self.members}), "")

    def judged(self) -> dict[str, dict[str, Any]]:
        """Return the checks that failed, by id."""
        to = Collected([], {}, {})
        etcd.collect(self.host, to)
        self.made = [one["id"] for one in to.checks]
        self.skipped = [one["id"] for one in to.checks if one["result"] == "skipped"]
        return {one["id"]: one for one in to.checks if one["result"] != "pass"}


def _member(name: str = "", **more: Any) -> dict[str, Any]:
    host = name or "192.0.2.14"
    named = {"name": name} if name else {}
    return {"ID": 5, **named, "peerURLs": [f"https://{host}:2380"], **more}


@pytest.fixture
def one(tmp_path: Path) -> ControlPlane:
    return ControlPlane(tmp_path)


def test_a_good_one_passes_and_a_host_without_etcd_is_not_asked(one: ControlPlane) -> None:
    assert one.judged() == {}
    assert one.made == ["etcd.healthy", "etcd.members", "etcd.room", "etcd.disk"]
    one.host.remove(backup.MANIFEST)
    assert one.judged() == {}
    assert one.made == []


def test_an_alarm_and_a_database_near_its_limit(one: ControlPlane) -> None:
    one.status |= {"dbSize": int(1.7 * GIB), "errors": [ALARM]}
    failed = one.judged()
    assert list(failed) == ["etcd.healthy", "etcd.room"]
    assert failed["etcd.healthy"]["found"] == [ALARM.strip()]
    assert "defragment" in failed["etcd.healthy"]["fix"]
    room = failed["etcd.room"]
    assert (room["found"], room["wished"]) == ("1740.8 MiB", "80% of 2048.0 MiB")
    one.status = {"dbSize": int(1.5 * GIB), "dbSizeQuota": 2 * GIB, "errors": ["no leader"]}
    assert "crictl" in one.judged()["etcd.healthy"]["fix"]


@pytest.mark.parametrize(
    ("said", "flag", "size", "result"),
    [
        # 3.5 does not say its limit; 3.6.4 and 3.6.5 say 0 where none is set.
        ({}, "", 4 * GIB, "80% of 2048.0 MiB"),
        ({"dbSizeQuota": 0}, "", 4 * GIB, "80% of 2048.0 MiB"),
        ({}, WIDE, 4 * GIB, "pass"),
        ({}, "--quota-backend-bytes=4294967296", 4 * GIB, "80% of 4096.0 MiB"),
        ({}, '"--quota-backend-bytes=0x200000000"', 4 * GIB, "pass"),
        ({}, f"--quota-backend-bytes=1\n    - {WIDE}", 4 * GIB, "pass"),
        ({}, f"--quota-backend-bytes\n    - {8 * GIB}", 4 * GIB, "pass"),
        ({}, WIDE[1:], 4 * GIB, "pass"),
        ({}, f"# {WIDE}", 4 * GIB, "80% of 2048.0 MiB"),
        ({}, VARIABLE, 4 * GIB, "pass"),
        ({}, f"{WIDE}\n{VARIABLE.replace('8', '1')}", 4 * GIB, "pass"),
        ({"dbSizeQuota": -1}, "--quota-backend-bytes=-1", 4 * GIB, "skipped"),
        ({}, "--quota-backend-bytes=-1", 4 * GIB, "skipped"),
    ],
)
def test_the_limit_where_etcd_does_not_say_it(
    one: ControlPlane, said: dict[str, int], flag: str, size: int, result: str
) -> None:
    one.flags(*[flag] if flag else [])
    one.status = {"dbSize": size, **said}
    room = one.judged().get("etcd.room", {"result": "pass"})
    assert (room["wished"] if room["result"] == "fail" else room["result"]) == result


@pytest.mark.parametrize(
    ("members", "shown", "reason"),
    [
        (
            [_member("cp1"), _member("cp9"), _member(), _member("cp2", isLearner=True)],
            ["192.0.2.14 (never started)", "cp1", "cp2 (no vote)", "cp9"],
            "no such Node: cp9, 192.0.2.14 (never started); no member: cp3",
        ),
        ([_member("cp1"), _member("cp3")], ["cp1", "cp3"], "no member: cp2"),
        (
            [*map(_member, ["cp1", "cp2", "cp3", "cp3", "cp8"])],
            ["cp1", "cp2", "cp3", "cp3", "cp8"],
            "a Node without the label of control planes: cp8; more than one member: cp3",
        ),
        (
            [_member("cp1"), _member("cp2"), _member("cp3", isLearner=True)],
            ["cp1", "cp2", "cp3 (no vote)"],
            "",
        ),
    ],
)
def test_members_and_control_planes(
    one: ControlPlane, members: list[Any], shown: list[str], reason: str
) -> None:
    one.members, one.nodes = members, ["cp8"]
    found = one.judged()["etcd.members"]
    assert (found["wished"], found["found"]) == (["cp1", "cp2", "cp3"], shown)
    assert found["reason"] == reason


def test_control_planes_that_the_cluster_does_not_name(one: ControlPlane) -> None:
    one.planes = []
    one.judged()
    assert one.skipped == ["etcd.members"]


@pytest.mark.parametrize("runs", [True, False])
def test_a_disk_without_room(
    one: ControlPlane, monkeypatch: pytest.MonkeyPatch, *, runs: bool
) -> None:
    """It is what ends etcd: it is seen without one that answers."""
    real = os.statvfs(one.host.path("/"))

    def small(path: str) -> os.statvfs_result:
        assert path == one.host.path("/var/lib/etcd")
        values = list(real)
        values[1], values[4] = 4096, 40 << 8  # blocks of 4 KiB: 40 MiB
        return os.statvfs_result(values)

    monkeypatch.setattr(etcd.os, "statvfs", small)
    one.silent = "" if runs else "crictl ps"
    disk_ = one.judged()["etcd.disk"]
    assert (disk_["found"], disk_["wished"]) == ("40 MiB free at /var/lib/etcd", "122 MiB")


def test_data_that_are_not_there(one: ControlPlane) -> None:
    one.database.unlink()
    assert one.judged() == {}  # etcd says how large it is
    one.silent = "status"
    assert "/member/snap/db: No such file" in one.judged()["etcd.disk"]["reason"]


def test_an_image_without_a_client(one: ControlPlane) -> None:
    one.client.unlink()
    one.judged()
    assert one.skipped == ["etcd.healthy", "etcd.members", "etcd.room"]
    assert one.made == [*one.skipped, "etcd.disk"]


@pytest.mark.parametrize(
    "answers",
    [
        {"ps": []},
        {"ps": {"containers": [{"id": "e7cd", "labels": None}]}},
        {"inspect": {"info": None}},
        {"inspect": []},
        # It has ended meanwhile.
        {"inspect": {"info": {"pid": 0}}},
        {"inspect": {"info": {"pid": 8}}},
    ],
)
def test_an_etcd_that_crictl_does_not_show(one: ControlPlane, answers: dict[str, Any]) -> None:
    one.crictl = answers
    assert [*one.judged()] == ["etcd.healthy"]
    assert one.made == ["etcd.healthy", "etcd.disk"]
    assert one.skipped == []


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {"dbSize": "many"},
        {"dbSize": float("inf")},
        {"dbSize": 1 << 64},
        {"dbSize": 1, "errors": [7]},
    ],
)
def test_an_answer_unlike_etcds(one: ControlPlane, status: Any) -> None:
    one.status = status
    assert "not its status" in one.judged()["etcd.healthy"]["reason"]
    assert one.made == ["etcd.healthy", "etcd.disk"]
    one.status, one.members = {"dbSize": 1}, [status]
    assert "not a list of members" in one.judged()["etcd.members"]["reason"]
    assert one.made == ["etcd.healthy", "etcd.members", "etcd.room", "etcd.disk"]


@pytest.mark.parametrize(
    ("silent", "id_", "reason", "made"),
    [
        ("status", "etcd.healthy", "etcdctl endpoint status: context deadline", 2),
        ("crictl ps", "etcd.healthy", "crictl ps: context deadline", 2),
        # Without a quorum, or on one that has no vote yet, etcd does not list them.
        ("list", "etcd.members", "etcdctl member list: context deadline", 4),
        ("kubectl", "etcd.members", "the API: context deadline", 4),
    ],
)
def test_one_that_does_not_answer_fails(
    one: ControlPlane, silent: str, id_: str, reason: str, made: int
) -> None:
    one.silent = silent
    failed = one.judged()
    assert list(failed) == [id_]
    assert reason in failed[id_]["reason"]
    assert len(one.made) == made
