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
ALARM = "memberID:3319814642761637952 alarm:NOSPACE "


class ControlPlane:
    """A control plane of three whose etcd and API answer as they are told."""

    def __init__(self, root: Path) -> None:
        self.host = Host(str(root), self.run)
        self.status: dict[str, Any] = {"dbSize": 20480, "dbSizeQuota": 2 * GIB}
        self.members = [_member("cp1"), _member("cp2"), _member("cp3")]
        self.servers = ["cp2", "cp3", "cp1"]
        self.silent = ""
        programs = root / "proc/7/root/usr/local/bin"
        programs.mkdir(parents=True)
        (programs / "etcdctl").touch()
        (root / "var/lib/etcd").mkdir(parents=True)
        self.host.write(backup.MANIFEST, "    - --data-dir=/var/lib/etcd\n")

    def run(self, argv: Sequence[str], *_: Any) -> Result:
        """Answer."""
        words = " ".join(argv)
        if self.silent and self.silent in words:
            return Result(1, "", "context deadline exceeded")
        if argv[0] == "kubectl":
            spec = {"containers": [{"image": "kube-apiserver:v1.36.3"}]}
            items = [{"spec": {"nodeName": one, **spec}} for one in self.servers]
            return Result(0, json.dumps({"items": items}), "")
        if "inspect" in argv:
            return Result(0, json.dumps({"info": {"pid": 7}}), "")
        if argv[0] == "crictl":
            labels = {"io.kubernetes.pod.namespace": "kube-system"}
            return Result(0, json.dumps({"containers": [{"id": "e7cd", "labels": labels}]}), "")
        if "status" in argv:
            return Result(0, json.dumps([{"Endpoint": "x", "Status": self.status}]), "")
        return Result(0, json.dumps({"members": self.members}), "")

    def judged(self) -> dict[str, dict[str, Any]]:
        """Return the checks that failed, by id."""
        to = Collected([], {}, {})
        etcd.collect(self.host, to)
        self.made = [one["id"] for one in to.checks]
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
    # One that does not say its limit has none that could be judged.
    one.status = {"dbSize": 4 * GIB}
    assert "etcd.room" not in one.judged()


def test_members_that_are_no_control_planes(one: ControlPlane) -> None:
    one.members = [_member("cp1"), _member("cp9"), _member(), _member("cp2", isLearner=True)]
    found = one.judged()["etcd.members"]
    assert found["wished"] == ["cp1", "cp2", "cp3"]
    assert found["found"] == ["192.0.2.14 (never started)", "cp1", "cp2 (no vote)", "cp9"]


def test_a_disk_without_room(one: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(one.host.path("/"))

    def small(path: str) -> os.statvfs_result:
        assert path == one.host.path("/var/lib/etcd")
        values = list(real)
        values[1], values[4] = 4096, 40 << 8  # blocks of 4 KiB: 40 MiB
        return os.statvfs_result(values)

    monkeypatch.setattr(etcd.os, "statvfs", small)
    disk_ = one.judged()["etcd.disk"]
    assert (disk_["found"], disk_["wished"]) == ("40 MiB free at /var/lib/etcd", "128 MiB")


@pytest.mark.parametrize(
    ("silent", "id_", "reason", "others"),
    [
        ("status", "etcd.healthy", "etcdctl endpoint status: context deadline", False),
        ("crictl ps", "etcd.healthy", "crictl ps: context deadline", False),
        ("kubectl", "etcd.members", "the API: context deadline", True),
    ],
)
def test_one_that_does_not_answer_fails(
    one: ControlPlane, silent: str, id_: str, reason: str, *, others: bool
) -> None:
    one.silent = silent
    failed = one.judged()
    assert list(failed) == [id_]
    assert reason in failed[id_]["reason"]
    assert ("etcd.disk" in one.made) == others
