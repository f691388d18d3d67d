"""RDMA on folders: what is told to RoCE and NCCL, what is refused, and what the evidence says."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import rdma as rdma_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.files import ensure_files
from bedplate.portable.host import Host, Result
from bedplate.portable.rdma import devices as rdma
from bedplate.portable.rdma import nccl_topology
from bedplate.portable.rdma import settings as rdma_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROCE = {"interfaces": ["ens1f0np0", "ens2f0np0"], "priority": 3, "dscp": 26, "gid_index": 3}
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
DPKG = "rdma-core\t44.0-2\tinstall\tinstalled\n"
#: As iproute2's manual of dcb-app shows a map by numbers.
APP = "dscp-prio 0:0 26:3 48:6\n"
#: As the manual of mlnx_qos shows a port, with a DSCP more of priority 3: lines have eight at most.
QOS = """DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
\tprio:3 dscp:46,31,30,29,28,27,26,25,
\tprio:3 dscp:24,
\tprio:5 dscp:47,45,44,43,42,41,40,
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
"""
#: It shows no map where the port goes by the tag of a VLAN.
PCP = "DCBX mode: OS controlled\nPriority trust state: pcp\nCable len: 7\n"
PFC = "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n"


def wish(**changes: Any) -> rdma_settings.Wish:
    """Return wishes of the inbox stack with what a test changes."""
    values: dict[str, Any] = {
        "stack": "inbox",
        "method": "dma-buf",
        "repository": {},
        "devices": ["mlx5_0"],
        "roce": ROCE,
        "nccl": {},
        "topology": [],
        "topology_file": "/etc/bedplate/nccl-topology.xml",
    }
    return rdma_settings.Wish(**(values | changes))


class Machine:
    """A host below a folder, with one RoCE and one InfiniBand port."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.app, self.qos = APP, ""
        for name, link in (("mlx5_0", "Ethernet"), ("mlx5_1", "InfiniBand")):
            port = f"/sys/class/infiniband/{name}/ports/1"
            self.put(f"{port}/link_layer", link)
            self.put(f"{port}/state", "4: ACTIVE")
        self.put("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "104")
        self.put("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "RoCE v2")
        self.put("/etc/os-release", "ID=debian")
        self.put("/proc/driver/nvidia/version", OPEN)
        self.put("/proc/sys/kernel/osrelease", "6.1.0-50-amd64")
        self.put("/boot/config-6.1.0-50-amd64", "CONFIG_PCI_P2PDMA=y\n")

    @property
    def host(self) -> Host:
        return Host(str(self.root), self._run)

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        if argv[0] == "dpkg-query":
            return Result(0, DPKG, "")
        if argv[:2] == ["mlnx_qos", "-i"] and self.qos:
            return Result(0, self.qos, "")
        if argv[:4] == ["dcb", "-N", "app", "show"]:
            return Result(0, self.app, "")
        return Result(0, PFC, "") if argv[:3] == ["dcb", "pfc", "show"] else Result(127, "", "no")

    def put(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n", encoding="utf-8")

    def evidence(self, **changes: Any) -> list[dict[str, Any]]:
        to = Collected([], {}, {})
        content: dict[str, Any] = {
            "stack": "inbox",
            "method": "dma-buf",
            "packages": ["rdma-core"],
            "gpus": True,
            "devices": ["mlx5_0"],
            "roce": ROCE,
            "nccl": rdma_settings.nccl(wish()),
        }
        rdma_evidence.collect(self.host, Wishes(rdma=content | changes), to)
        return to.checks

    def failures(self, **changes: Any) -> list[str]:
        return evidence.failures(self.evidence(**changes), "node1")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    ensure_files(made.host, rdma_settings.files(made.host, wish()))
    return made


def test_nccl_is_told_what_follows_and_what_is_wished_wins() -> None:
    assert rdma_settings.nccl(wish()) == {
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_HCA": "=mlx5_0",
        "NCCL_IB_TC": "104",
    }
    assert rdma_settings.nccl(wish(devices=[], roce={})) == {}
    own = rdma_settings.nccl(wish(method="peermem", nccl={"NCCL_IB_TC": 0}))
    assert (own["NCCL_IB_TC"], own["NCCL_DMABUF_ENABLE"]) == ("0", "0")
    assert rdma_settings.nccl(wish(method="host-memory"))["NCCL_DMABUF_ENABLE"] == "0"


def test_files_say_the_same_to_nccl_and_to_shells(machine: Machine) -> None:
    texts = {f.path: f for f in rdma_settings.files(machine.host, wish())}
    assert texts["/etc/nccl.conf"].content.splitlines()[1:] == [
        "NCCL_IB_GID_INDEX=3",
        "NCCL_IB_HCA==mlx5_0",
        "NCCL_IB_TC=104",
    ]
    assert rdma.parse_nccl(texts["/etc/nccl.conf"].content) == rdma_settings.nccl(wish())
    assert "export NCCL_IB_HCA='=mlx5_0'" in texts["/etc/profile.d/bedplate-nccl.sh"].content
    roce = texts["/etc/bedplate/roce.conf"].content
    assert 'TOS="104"' in roce
    assert 'PFC_LIST="0,0,0,1,0,0,0,0"' in roce
    assert texts["/usr/libexec/bedplate/roce"].mode == 0o755


def test_what_is_no_longer_wished_goes(machine: Machine) -> None:
    bare = wish(roce={})
    assert rdma_settings.gone(machine.host, wish()) == []
    assert rdma_settings.gone(machine.host, bare) == ["/etc/bedplate/roce.conf"]


def test_a_marking_is_owed_until_the_service_has_run_with_the_files(machine: Machine) -> None:
    """Also where the run that wrote them was ended before the service was restarted."""
    ensure_files(machine.host, rdma_settings.files(machine.host, wish()))
    later = time.monotonic() + 10

    def answers(state: str, started: float) -> Host:
        said = f"ActiveState={state}\nExecMainStartTimestampMonotonic={int(started * 1e6)}\n"
        return Host(str(machine.root), lambda *_: Result(0, said, ""))

    assert not rdma_settings.marked(answers("inactive", 0))
    assert not rdma_settings.marked(answers("active", 1))
    assert rdma_settings.marked(answers("active", later))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"method": "peermem"},
            (
                "nvidia_peermem needs the stack doca — node1 — got inbox with peermem / "
                "allowed doca, or dma-buf — Write stack: doca, or drive the GPUs by the open "
                "module and use dma-buf."
            ),
        ),
        (
            {"stack": "doca"},
            (
                "the RDMA stack's repository is not given whole — node1 — got no url, key, "
                "fingerprint, origin / allowed rdma_repository with all of these — Set "
                "rdma_repository to the maker's repository, or to its mirror."
            ),
        ),
        (
            {"roce": {"interfaces": ["eth0"], "priority": 8, "dscp": 26}},
            "RoCE has no priority — node1 — got 8 / allowed 0 to 7 — Correct rdma_roce.priority.",
        ),
        (
            {"roce": {"priority": 3, "dscp": 26}},
            (
                "RoCE has no interfaces — node1 — got none / allowed network interfaces — Name "
                "them in rdma_roce.interfaces."
            ),
        ),
        (
            {"nccl": {"NCCL_DEBUG": "INFO; reboot"}},
            (
                "not a variable of NCCL's — node1 — got NCCL_DEBUG=INFO; reboot / allowed NAME in "
                "capitals, and a value without spaces or quotes — Correct rdma_nccl."
            ),
        ),
        (
            {"topology": [{"functions": ["0000:17:00.0"]}]},
            (
                "no such PCI function — node1 — got 0000:17:00.0 / allowed a function of this "
                "host — Correct rdma_nccl_topology: addresses are those that lspci -D shows "
                "here."
            ),
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    changes: dict[str, Any], said: str, machine: Machine
) -> None:
    assert rdma_settings.wrong(machine.host, wish(), "node1") == []
    assert rdma_settings.wrong(machine.host, wish(**changes), "node1") == [said]


def test_topology_puts_functions_below_one_switch(machine: Machine) -> None:
    for address, pci_class in (("0000:05:00.0", "030200"), ("0000:06:00.0", "020700")):
        folder = f"/sys/bus/pci/devices/{address}"
        for name, text in (("vendor", "0x10de"), ("device", "0x20b5"), ("class", f"0x{pci_class}")):
            machine.put(f"{folder}/{name}", text)
        machine.put(f"{folder}/max_link_speed", "16.0 GT/s PCIe")
    group = {"node": 1, "functions": ["0000:05:00.0", "0000:06:00.0"]}
    assert nccl_topology.render(machine.host, [group]).splitlines()[1:] == [
        '<system version="1">',
        '  <cpu numaid="1" arch="x86_64">',
        '    <pci busid="ffff:01:00.0" class="0x060400">',
        '      <pci busid="0000:05:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" />',
        '      <pci busid="0000:06:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" />',
        "    </pci>",
        "  </cpu>",
        "</system>",
    ]
    twice = nccl_topology.wrong(machine.host, [group, group], "node1")
    assert twice[0].startswith("function is below two switches — node1 — got 0000:05:00.0 / ")


def test_evidence_of_a_sound_host(machine: Machine) -> None:
    checks = {check["id"]: check["result"] for check in machine.evidence()}
    assert checks == {
        "rdma.packages": "pass",
        "rdma.devices": "pass",
        "rdma.ports": "pass",
        "rdma.gpudirect": "pass",
        "rdma.roce": "pass",
        "rdma.nccl": "pass",
    }


def test_without_gpudirect_no_way_to_gpu_memory_is_claimed(machine: Machine) -> None:
    """A module and a kernel that could do it make no GPUDirect where the lock has none."""
    found = [c for c in machine.evidence(method="host-memory") if c["id"] == "rdma.gpudirect"]
    assert [check["result"] for check in found] == ["skipped"]
    assert found[0]["reason"] == "the lock has none: these GPUs have no GPUDirect RDMA"


def test_a_package_that_is_gone_is_missed_on_every_family(machine: Machine) -> None:
    for family in ("debian", "rocky"):
        machine.put("/etc/os-release", f"ID={family}")
        assert machine.failures(packages=["rdma-core", "ibverbs-utils"])[0].startswith(
            "packages of the RDMA stack are installed — node1 [rdma.packages] — got "
        )


def test_a_host_without_devices_is_skipped_and_one_that_should_have_them_fails(
    tmp_path: Path,
) -> None:
    bare = Machine(tmp_path / "bare")
    for name in ("mlx5_0", "mlx5_1"):
        (bare.root / "sys/class/infiniband" / name).rename(bare.root / f"gone-{name}")
    (check,) = [c for c in bare.evidence(devices=[]) if c["id"].startswith("rdma.d")]
    assert check["result"] == "skipped"
    assert check["reason"] == "the host has no RDMA device, and the site names none"
    assert bare.failures()[0] == (
        "RDMA devices are there — node1 [rdma.devices] — got nothing / allowed mlx5_0 — See "
        "'rdma link' and the kernel's log, or correct rdma_devices."
    )


@pytest.mark.parametrize(
    ("path", "text", "changes", "said"),
    [
        (
            "/sys/class/infiniband/mlx5_0/ports/1/state",
            "1: DOWN",
            {},
            (
                "RDMA ports are active — node1 [rdma.ports] — got mlx5_0/1 (DOWN) / allowed "
                "nothing — See cable and switch port, and 'ibstat'; InfiniBand needs a subnet "
                "manager."
            ),
        ),
        (
            "/boot/config-6.1.0-50-amd64",
            "# CONFIG_PCI_P2PDMA is not set",
            {},
            (
                "network cards reach GPU memory by dma-buf — node1 [rdma.gpudirect] — got "
                "kernel 6.1.0-50-amd64 is built without CONFIG_PCI_P2PDMA / allowed dma-buf — "
                "Run bedplate.gpu.site for this host again."
            ),
        ),
        (
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue Jul 1\n",
            {},
            (
                "network cards reach GPU memory by dma-buf — node1 [rdma.gpudirect] — got the "
                "loaded module is proprietary; DMA-BUF is the open one's / allowed dma-buf — "
                "Run bedplate.gpu.site for this host again."
            ),
        ),
        (
            "/unrelated",
            "",
            {"method": "peermem"},
            (
                "network cards reach GPU memory by peermem — node1 [rdma.gpudirect] — got "
                "nvidia_peermem is not loaded / allowed peermem — Run "
                "bedplate.gpu.site for this host again."
            ),
        ),
        (
            "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos",
            "0",
            {},
            (
                "RoCE traffic is marked and lossless — node1 [rdma.roce] — got "
                "mlx5_0/1={'tos': 0, 'mode': 'RoCE v2'} / allowed mlx5_0/1={'tos': 104, 'mode': "
                "'RoCE v2'} — Restart bedplate-roce.service."
            ),
        ),
        (
            "/etc/nccl.conf",
            "NCCL_IB_TC=106",
            {},
            (
                "NCCL's settings are the lock's — node1 [rdma.nccl] — got NCCL_IB_TC=106 / "
                "allowed NCCL_IB_GID_INDEX=3, NCCL_IB_HCA==mlx5_0, NCCL_IB_TC=104 — Run "
                "bedplate.gpu.site for this host again."
            ),
        ),
    ],
)
def test_evidence_of_each_fault(
    path: str, text: str, changes: dict[str, Any], said: str, machine: Machine
) -> None:
    assert machine.failures() == []
    machine.put(path, text)
    assert machine.failures(**changes) == [said]


def test_flow_control_of_another_priority_is_seen(machine: Machine) -> None:
    roce = ROCE | {"priority": 4}
    (said,) = machine.failures(roce=roce)
    assert "got ens1f0np0={'lossless': [3], 'priority': 3}, ens2f0np0=" in said
    assert "allowed ens1f0np0={'lossless': [4], 'priority': 4}, ens2f0np0=" in said


@pytest.mark.parametrize(
    ("app", "qos", "dscp", "priority"),
    [
        # What a card does by itself is a priority for each eight values.
        ("dscp-prio 0:0 46:5\n", "", 46, 5),
        ("dscp-prio 0:0\n", "", 46, None),
        # The maker's tool tells the card's own map, wherever it is there.
        (APP, QOS, 45, 5),
        (APP, PCP, 26, None),
    ],
)
def test_a_mark_that_runs_in_a_lossy_class_is_seen(
    app: str, qos: str, dscp: int, priority: int | None, machine: Machine
) -> None:
    machine.app, machine.qos = app, qos
    machine.put("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", str(dscp << 2))
    (said,) = machine.failures(roce=ROCE | {"dscp": dscp, "interfaces": ["ens1f0np0"]})
    assert f"got ens1f0np0={{'lossless': [3], 'priority': {priority}}}" in said
    assert "allowed ens1f0np0={'lossless': [3], 'priority': 3}" in said


def test_a_map_of_the_makers_tool_is_read_in_all_its_lines(machine: Machine) -> None:
    machine.qos = QOS
    assert rdma.dscp_priority(machine.host, "ens1f0np0", 24) == 3
    machine.put("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", str(46 << 2))
    assert machine.failures(roce=ROCE | {"dscp": 46}) == []


def marker(machine: Machine, root: Path, **changes: Any) -> str:
    """Return the unit's script, with the kernel's files and its settings below a folder."""
    roce = {file.path: file.content for file in rdma_settings.files(machine.host, wish(**changes))}
    (root / "roce.conf").write_text(roce[rdma_settings.ROCE], encoding="utf-8")
    text = roce[rdma_settings.MARKER].replace(rdma_settings.ROCE, str(root / "roce.conf"))
    return text.replace("/sys/", f"{root}/none/")


def programs(folder: Path, **texts: str) -> None:
    """Write programs of a line each."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def test_the_unit_waits_for_the_interfaces(machine: Machine) -> None:
    roce = ROCE | {"interfaces": ["ens1f0np0", "br-rdma.100"]}
    texts = {f.path: f.content for f in rdma_settings.files(machine.host, wish(roce=roce))}
    lines = texts[rdma_settings.UNIT].splitlines()
    # As systemd-escape --path writes /sys/subsystem/net/devices/…
    for name in ("ens1f0np0", "br\\x2drdma.100"):
        unit = f"sys-subsystem-net-devices-{name}.device"
        assert {f"Wants={unit}", f"After={unit}"} <= set(lines)
    assert lines.index(f"After={unit}") < lines.index("[Service]")


@pytest.mark.parametrize(
    ("devices", "comes", "code", "said"),
    [
        (["mlx5_0"], "mlx5_0", 0, ""),
        ([], "mlx5_7", 0, ""),
        (["mlx5_0", "mlx5_1"], "mlx5_1", 1, "no such RDMA device within 60 s: mlx5_0 "),
        ([], "", 1, "no such RDMA device within 60 s: any "),
    ],
)
def test_the_unit_waits_for_the_devices_and_fails_without(
    machine: Machine, tmp_path: Path, devices: list[str], comes: str, code: int, said: str
) -> None:
    """They come after the interfaces; the first second passes without."""
    port = f"{tmp_path}/none/class/infiniband/{comes}/ports/1"
    settings = tmp_path / f"none/kernel/config/rdma_cm/{comes}/ports/1"
    settings.mkdir(parents=True)
    slept = tmp_path / "slept"
    appears = f"mkdir -p {port}; echo Ethernet > {port}/link_layer" if comes else "true"
    sleep = f"echo >> {slept}; [ $(wc -l < {slept}) -lt 2 ] || {{ {appears}; }}"
    programs(tmp_path / "bin", modprobe="true", dcb="true", sleep=sleep)
    done = subprocess.run(
        ["/bin/sh", "-c", marker(machine, tmp_path, devices=devices)],
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.partition("(")[0]) == (code, said)
    # One that is there is marked all the same.
    assert not comes or (settings / "default_roce_tos").read_text() == "104\n"
    assert len(slept.read_text()) == (60 if code else 2)


def test_the_unit_maps_the_mark_by_either_tool(machine: Machine, tmp_path: Path) -> None:
    """The maker's tool takes trust and map only one after the other."""
    script = marker(machine, tmp_path)
    (tmp_path / "none/class/infiniband/mlx5_0").mkdir(parents=True)
    for tool, expected in (
        (
            "mlnx_qos",
            [
                "mlnx_qos -i ens1f0np0 --trust=dscp --pfc=0,0,0,1,0,0,0,0",
                "mlnx_qos -i ens1f0np0 --dscp2prio=set,26,3",
            ],
        ),
        (
            "dcb",
            [
                "dcb app replace dev ens1f0np0 dscp-prio 26:3",
                "dcb pfc set dev ens1f0np0 prio-pfc all:off 3:on",
            ],
        ),
    ):
        folder, said = tmp_path / tool, tmp_path / f"{tool}.said"
        programs(folder, **{name: f'echo "{name} $*" >> {said}' for name in (tool, "modprobe")})
        subprocess.run(["/bin/sh", "-c", script], env={"PATH": str(folder)}, check=True)
        assert said.read_text().splitlines()[:2] == expected
