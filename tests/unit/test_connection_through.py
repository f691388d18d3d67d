"""A connection comes through lock, stack and wire as it was planned."""

from __future__ import annotations

from pathlib import Path

from bedplate.common.connection import Connection
from bedplate.components.cluster.wished import cluster_args
from bedplate.lock import load_lock, write_lock
from bedplate.provider import wire
from bedplate.provider.model import Machine

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
JUMP = {
    "address": "fd00::21",
    "port": 2222,
    "user": "ops",
    "jump": ("me@bastion:2222", "[fd00::1]"),
    "keys": ("keys/lab", "~/.ssh/lab"),
    "config": "../ssh.cfg",
    "options": ("HostKeyAlias gpu", "UserKnownHostsFile ../known 'b c'"),
}


def test_what_the_plan_found_is_what_the_provider_gets(tmp_path: Path) -> None:
    lock = load_lock(DEMO)
    host = lock.hosts["gpu-a"].model_copy(update=JUMP)
    write_lock(tmp_path, lock.model_copy(update={"hosts": lock.hosts | {"gpu-a": host}}))
    machines = {one["name"]: one for one in cluster_args(load_lock(tmp_path), "", 1)["workers"]}
    sent = wire.read(wire.write({"host": machines["gpu-a"]}))["host"]
    found = Connection.model_validate(Machine.model_validate(sent).model_dump(exclude={"node_ip"}))
    assert found == Connection(name="gpu-a", **JUMP)


def test_a_host_that_is_reached_directly_says_no_more_than_before() -> None:
    """More keys would be a difference for `pulumi up` on every cluster there is."""
    machines = {one["name"]: one for one in cluster_args(load_lock(DEMO), "", 1)["workers"]}
    assert machines["gpu-a"] == {
        "name": "gpu-a",
        "address": "10.213.0.21",
        "port": 22,
        "user": "root",
    }
