"""Rights of running containers to NVIDIA's devices, on specifications as runtimes write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import device_rights
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: /dev/null, /dev/zero and /dev/full stand for two GPUs and a capability (kernel: devices.txt).
GPU, OTHER, CAP = "1:3", "1:5", "1:7"
NODES = {"nvidia0": "/dev/null", "nvidia1": "/dev/zero", "nvidia-caps/nvidia-cap21": "/dev/full"}
CONTAINERD = "/run/containerd/io.containerd.runtime.v2.task"
KUBERNETES = f"{CONTAINERD}/k8s.io/aa/config.json"
SLICE = "kubepods-besteffort-pod1.slice"


def rule(number: str, *, allow: bool = True, access: str = "rwm") -> dict[str, Any]:
    major, minor = map(int, number.split(":"))
    return {"allow": allow, "type": "c", "major": major, "minor": minor, "access": access}


def specification(unit: str, *rules: dict[str, Any]) -> str:
    """A container's specification, as runtimes hand it to runc."""
    devices = [{"allow": False, "access": "rwm"}, *rules]
    return json.dumps({"linux": {"cgroupsPath": unit, "resources": {"devices": devices}}})


class Machine:
    """A host whose systemd knows some devices of some units."""

    def __init__(self, root: Path) -> None:
        for name, target in NODES.items():
            path = root / "dev" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        self.allowed: dict[str, list[str]] = {}
        self.policy = "strict"
        self.refuses = ""
        self.host = Host(str(root), self.run)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        unit = argv[2] if argv[1] == "show" else argv[3]
        if argv[1] == "show":
            if unit not in self.allowed:
                return Result(0, "ActiveState=inactive\nDevicePolicy=auto\n", "")
            lines = [f"DeviceAllow={one}\n" for one in self.allowed[unit]]
            text = f"ActiveState=active\nDevicePolicy={self.policy}\n"
            return Result(0, text + "".join(lines), "")
        assert argv[:3] == ["systemctl", "set-property", "--runtime"]
        if self.refuses:
            return Result(1, "", self.refuses)
        self.allowed[unit] += [one.partition("=")[2] for one in argv[4:]]
        return Result(0, "", "")

    def starts(self, path: str, group: str, *rules: dict[str, Any]) -> str:
        """Start a container of whose devices systemd does not know; return its unit."""
        self.host.write(path, specification(group, *rules))
        unit = "-".join(filter(None, group.split(":")[1:])) + ".scope"
        self.allowed[unit] = ["/dev/char/1:9 rwm", "char-pts rwm"]
        return unit


@pytest.mark.parametrize(
    ("path", "group", "unit"),
    [
        (KUBERNETES, f"{SLICE}:cri-containerd:aa", "cri-containerd-aa.scope"),
        (f"{CONTAINERD}/moby/bb/config.json", "system.slice:docker:bb", "docker-bb.scope"),
        (
            f"/run/docker/containerd/daemon/{CONTAINERD.rpartition('/')[2]}/moby/cc/config.json",
            "system.slice:docker:cc",
            "docker-cc.scope",
        ),
        (
            "/run/containers/storage/overlay-containers/dd/userdata/config.json",
            f"{SLICE}:crio:dd",
            "crio-dd.scope",
        ),
    ],
)
def test_each_runtimes_containers_keep_what_they_were_given(
    tmp_path: Path, path: str, group: str, unit: str
) -> None:
    machine = Machine(tmp_path)
    assert machine.starts(path, group, rule(GPU, access="rw"), rule(CAP)) == unit
    told = [f"{unit}: /dev/nvidia-caps/nvidia-cap21, /dev/nvidia0"]
    assert device_rights.keep(machine.host, check=True) == told
    assert len(machine.allowed[unit]) == 2
    assert device_rights.keep(machine.host) == told
    assert machine.allowed[unit][2:] == [f"/dev/char/{GPU} rw", f"/dev/char/{CAP} rwm"]
    assert device_rights.keep(machine.host) == []


def test_a_node_that_a_container_made_gives_it_nothing(tmp_path: Path) -> None:
    """It was given one GPU; in its own /dev it may make a node of any."""
    machine = Machine(tmp_path)
    unit = machine.starts(KUBERNETES, f"{SLICE}:cri-containerd:aa", rule(GPU))
    machine.host.write(f"{CONTAINERD}/k8s.io/aa/rootfs/dev/nvidia1", "")
    device_rights.keep(machine.host)
    assert not any(OTHER in one for one in machine.allowed[unit])


def test_what_was_taken_again_and_what_is_no_gpu_are_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    rules = [rule(GPU), rule(GPU, allow=False), rule("10:200")]
    machine.starts(KUBERNETES, f"{SLICE}:cri-containerd:aa", *rules)
    assert device_rights.lacking(machine.host) == []
    machine.host.write(
        KUBERNETES,
        specification(
            f"{SLICE}:cri-containerd:aa", rule(GPU), {"allow": False, "access": "rwm"}, rule(CAP)
        ),
    )
    (lack,) = device_rights.lacking(machine.host)
    assert list(lack.devices) == [CAP]


def test_containers_that_lose_nothing_are_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    unit = machine.starts(KUBERNETES, f"{SLICE}:cri-containerd:aa", rule(GPU))
    machine.allowed[unit] += [f"/dev/char/{GPU} rwm"]
    assert device_rights.lacking(machine.host) == []
    machine.allowed[unit] = ["char-1 rwm"]
    assert device_rights.lacking(machine.host) == []
    # Privileged: systemd forbids it nothing.
    machine.allowed[unit], machine.policy = [], "auto"
    assert device_rights.lacking(machine.host) == []
    del machine.allowed[unit]
    assert device_rights.lacking(machine.host) == [], "it has ended"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"linux": 3}',
        '{"linux": {"cgroupsPath": 7, "resources": {"devices": 1}}}',
        '{"linux": {"cgroupsPath": "a:b:", "resources": {"devices": [3]}}}',
        # Control groups that the runtime manages: systemd takes nothing there.
        specification("/kubepods/pod1/aa", rule(GPU)),
        specification("a:b:c", {"allow": True, "type": "c", "major": True, "minor": "3"}),
    ],
)
def test_what_is_no_such_specification_counts_as_none(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path)
    machine.host.write(KUBERNETES, text)
    assert device_rights.settle(machine.host, check=True)[3:] == []


def test_a_host_without_a_container_runtime_needs_no_links(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert device_rights.settle(machine.host) == []
    assert not (tmp_path / "dev/char").exists()
    (tmp_path / "run/containerd").mkdir(parents=True)
    assert len(device_rights.settle(machine.host)) == len(NODES)


def test_a_refusal_of_systemd_is_an_error_unless_the_container_has_ended(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    unit = machine.starts(KUBERNETES, f"{SLICE}:cri-containerd:aa", rule(GPU))
    machine.refuses = "Failed to set unit properties: Access denied"
    with pytest.raises(device_rights.RightsError) as caught:
        device_rights.keep(machine.host)
    assert f"got {unit}: /dev/nvidia0 (Failed to set unit properties: Access denied)" in str(
        caught.value
    )
