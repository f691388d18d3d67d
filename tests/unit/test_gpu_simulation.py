"""The simulated GPUs, without a host: a folder is its root and nothing needs privileges."""

from __future__ import annotations

import ctypes
import fcntl
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.portable import nvidia, pci
from bedplate.portable.host import Host
from tests.substrate import gpu
from tests.substrate.gpu import library, models

sys.path.insert(0, str(gpu.HOST_FILES / gpu.HOME))
from simulation import hardware, kernel, libraries, modprobe, paths, tools

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = "535.261.03"
LIBRARIES = "usr/lib/x86_64-linux-gnu/nvidia/current"
DRIVER_NOT_LOADED, MISMATCH, GPU_IS_LOST = 9, 18, 15
#: As Debian's nvidia-kernel-support installs it.
DEBIAN_MODPROBE = """
install nvidia modprobe -i nvidia-current $CMDLINE_OPTS
remove nvidia modprobe -r -i nvidia-drm nvidia-modeset nvidia-peermem nvidia-uvm nvidia
alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia
"""


class Nvml:
    """The library of a root as a C program sees it."""

    def __init__(self, root: Path, version: str = VERSION) -> None:
        self._library = ctypes.CDLL(str(root / LIBRARIES / f"libnvidia-ml.so.{version}"))

    def __call__(self, function: str, *arguments: object) -> int:
        return int(getattr(self._library, f"nvml{function}")(*arguments))

    def count(self) -> int:
        number = ctypes.c_uint()
        assert self("DeviceGetCount_v2", ctypes.byref(number)) == 0
        return number.value

    def handle(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        assert self("DeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)) == 0
        return handle

    def text(self, function: str, index: int) -> str:
        buffer = ctypes.create_string_buffer(96)
        assert self(function, self.handle(index), buffer, ctypes.c_uint(96)) == 0
        return buffer.value.decode()

    def error(self, code: int) -> str:
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        return self._library.nvmlErrorString(code).decode()


def install_driver(root: Path, version: str = VERSION, name: str = "nvidia-current") -> None:
    """Leave what the packages leave: the module's source and the libraries."""
    for old in (root / "usr/src").glob("*/dkms.conf"):
        old.unlink()
    source = root / f"usr/src/{name}-{version}"
    source.mkdir(parents=True)
    (source / "dkms.conf").write_text("")
    install_library(root, version)


def install_library(root: Path, version: str) -> None:
    folder = root / LIBRARIES
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name in ("libnvidia-ml", "libnvidia-cfg"):
        (folder / f"{name}.so.{version}").write_text("as packaged")
    libraries.refresh()


def unload_all() -> None:
    for name in ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia", "nouveau"):
        if name in kernel.loaded():
            assert tools.rmmod([name]) == 0


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Path]:
    """Make the root of a host with some cards, shortly after its boot."""

    def make(model: str, count: int) -> Path:
        root = tmp_path
        monkeypatch.setattr(paths, "ROOT", str(root))
        monkeypatch.setenv("SIMULATED_GPU_ROOT", str(root))
        # Only root may make device nodes; the library asks no more than whether there is one.
        monkeypatch.setattr(kernel.os, "mknod", lambda path, *_: Path(path).touch())
        for path, content in gpu.plug(model, count).items():
            (root / path).parent.mkdir(parents=True)
            (root / path).write_bytes(content)
        for built in library.build().values():
            (root / gpu.HOME / built.name).write_bytes(built.read_bytes())
        (root / "proc/sys/kernel").mkdir(parents=True)
        (root / "proc/sys/kernel/osrelease").write_text("6.1.0-50-amd64\n")
        (root / "dev").mkdir()
        kernel.show()
        # In place of the mounts.
        for shown, target in (("driver", "proc/driver"), ("pci-devices", "sys/bus/pci/devices")):
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            (root / target).symlink_to(f"{root}{paths.SHOWN}/{shown}")
        return root

    return make


@pytest.mark.parametrize("model", models.known_models())
def test_library_tells_what_the_models_file_says(
    model: str, host: Callable[[str, int], Path]
) -> None:
    data = yaml.safe_load((models.MODELS / f"{model}.yml").read_text())
    root = host(model, 2)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    nvml = Nvml(root)
    assert nvml("Init_v2") == 0
    assert nvml.count() == 2
    assert nvml.text("DeviceGetName", 1) == data["name"]
    memory = (ctypes.c_ulonglong * 3)()
    assert nvml("DeviceGetMemoryInfo", nvml.handle(0), memory) == 0
    assert memory[0] == data["memory_mib"] * 2**20
    major, minor = ctypes.c_int(), ctypes.c_int()
    capability = (ctypes.byref(major), ctypes.byref(minor))
    assert nvml("DeviceGetCudaComputeCapability", nvml.handle(0), *capability) == 0
    assert f"{major.value}.{minor.value}" == data["compute_capability"]
    cuda = ctypes.c_int()
    assert nvml("SystemGetCudaDriverVersion_v2", ctypes.byref(cuda)) == 0
    assert cuda.value == 12020
    assert nvml("DeviceGetFanSpeed", nvml.handle(0), ctypes.byref(cuda)) == library.NOT_SUPPORTED


def test_every_declared_function_is_there_and_only_missing_ones_are_stubs() -> None:
    header = library.header().read_text()
    declared = set(re.findall(r"DECLDIR\s+(nvml\w+)\s*\(", header))
    assert len(declared) > 350
    built = ctypes.CDLL(str(library.build()["libnvidia-ml"]))
    assert [name for name in sorted(declared) if not hasattr(built, name)] == []
    one = "nvmlReturn_t DECLDIR nvmlOne(void);\nnvmlReturn_t DECLDIR nvmlTwo(int x);\n"
    made = library.stubs(one, ["nvmlReturn_t nvmlOne(void) {"])
    assert "nvmlTwo" in made
    assert "nvmlOne" not in made


def test_a_warning_of_the_compiler_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    for path in library.SOURCES.iterdir():
        (sources / path.name).write_text(path.read_text())
    (sources / "events.c").write_text("static int unused;\n" + (sources / "events.c").read_text())
    header = library.header()
    monkeypatch.setattr(library, "SOURCES", sources)
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "header", lambda: header)
    with pytest.raises(models.SimulationError, match="unused") as refused:
        library.build()
    assert str(refused.value).startswith("the simulated NVML library can't be built — gcc — got ")
    assert list((tmp_path / "gpu").iterdir()) == []


def test_module_is_the_installed_one_and_says_it_is_simulated(
    host: Callable[[str, int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = host("h100-pcie-80gb", 8)
    assert modprobe.main(["nvidia"]) == 1
    assert capsys.readouterr().err == (
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1.0-50-amd64\n"
    )
    install_driver(root)
    assert nvidia.loaded_module(Host(str(root))) is None
    assert modprobe.main(["nvidia"]) == 0
    loaded = nvidia.loaded_module(Host(str(root)))
    assert loaded == nvidia.LoadedModule(VERSION, "proprietary", simulated=True)
    assert tools.modinfo(["-F", "version", "nvidia"]) == 0
    assert capsys.readouterr().out == f"{VERSION}\n"


def test_of_two_installed_flavours_the_named_one_is_loaded(
    host: Callable[[str, int], Path],
) -> None:
    root = host("h100-pcie-80gb", 1)
    install_driver(root, VERSION, "nvidia-current-open")
    (root / f"usr/src/nvidia-current-{VERSION}").mkdir()
    (root / f"usr/src/nvidia-current-{VERSION}/dkms.conf").write_text("")
    for name, flavour in (("nvidia-current-open", "open"), ("nvidia-current", "proprietary")):
        assert modprobe.main([name]) == 0
        loaded = nvidia.loaded_module(Host(str(root)))
        assert loaded == nvidia.LoadedModule(VERSION, flavour, simulated=True)
        unload_all()


def test_cards_are_on_the_bus_and_bound_once_the_module_is_loaded(
    host: Callable[[str, int], Path],
) -> None:
    root = host("h100-pcie-80gb", 8)
    cards = pci.gpus(pci.scan(Host(str(root))))
    assert [card.identifier for card in cards] == ["10de:2331"] * 8
    assert {card.driver for card in cards} == {None}
    assert cards[0].subsystem == "10de:1626"
    install_driver(root)
    modprobe.main(["nvidia"])
    assert {card.driver for card in pci.gpus(pci.scan(Host(str(root))))} == {"nvidia"}


def test_a_card_exists_only_where_its_device_node_does(host: Callable[[str, int], Path]) -> None:
    root = host("t4-16gb", 4)
    install_driver(root)
    modprobe.main(["nvidia"])
    everywhere = Nvml(root)
    assert everywhere("Init_v2") == 0
    uuids = [everywhere.text("DeviceGetUUID", index) for index in range(4)]
    assert len(set(uuids)) == 4
    assert all(uuid.startswith("GPU-bed91a7e-") for uuid in uuids)
    held = everywhere.handle(1)
    for minor in (0, 1, 3):
        (root / f"dev/nvidia{minor}").unlink()
    name = ctypes.create_string_buffer(96)
    assert everywhere("DeviceGetName", held, name, ctypes.c_uint(96)) == GPU_IS_LOST
    everywhere("Shutdown")
    assert everywhere("Init_v2") == 0  # as a pod that was given the third card starts
    assert everywhere.count() == 1
    assert everywhere.text("DeviceGetUUID", 0) == uuids[2]


def test_library_of_another_version_than_the_loaded_module_is_refused(
    host: Callable[[str, int], Path],
) -> None:
    root = host("t4-16gb", 1)
    install_driver(root)
    assert Nvml(root)("Init_v2") == DRIVER_NOT_LOADED
    modprobe.main(["nvidia"])
    install_driver(root, "535.300.01")
    upgraded = Nvml(root, "535.300.01")
    code = upgraded("Init_v2")
    assert (code, upgraded.error(code)) == (MISMATCH, "Driver/library version mismatch")
    loaded = nvidia.loaded_module(Host(str(root)))
    assert loaded is not None
    assert loaded.version == VERSION
    unload_all()
    modprobe.main(["nvidia"])
    assert upgraded("Init_v2") == 0


def test_no_card_no_module(
    host: Callable[[str, int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    install_driver(host("t4-16gb", 0))
    assert modprobe.main(["nvidia"]) == 1
    assert capsys.readouterr().err == "modprobe: ERROR: could not insert 'nvidia': No such device\n"


def test_modules_go_only_when_nothing_uses_them(
    host: Callable[[str, int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = host("t4-16gb", 1)
    install_driver(root)
    assert modprobe.main(["nvidia-uvm"]) == 0
    assert (root / "dev/nvidia-uvm").exists()
    assert tools.rmmod(["nvidia"]) == 1
    assert capsys.readouterr().err == ("rmmod: ERROR: Module nvidia is in use by: nvidia_uvm\n")
    assert tools.rmmod(["nvidia_uvm", "nvidia"]) == 0
    assert list((root / "dev").iterdir()) == []


def test_a_process_that_computes_keeps_the_modules_until_it_ends(
    host: Callable[[str, int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = host("t4-16gb", 1)
    install_driver(root)
    assert modprobe.main(["nvidia-uvm"]) == 0
    planted = root / "run/substrate/gpu/planted"
    planted.write_text("process 0 4711\n")
    assert tools.rmmod(["nvidia_uvm"]) == 1
    assert capsys.readouterr().err == "rmmod: ERROR: Module nvidia_uvm is in use\n"
    planted.unlink()
    assert tools.rmmod(["nvidia_uvm", "nvidia"]) == 0


def test_the_module_says_the_options_that_it_was_loaded_with(
    host: Callable[[str, int], Path],
) -> None:
    root = host("t4-16gb", 1)
    install_driver(root)
    (root / "etc/modprobe.d").mkdir(parents=True)
    (root / "etc/modprobe.d/own.conf").write_text("options nvidia NVreg_EnableGpuFirmware=0\n")
    parameters = root / kernel.paths.SHOWN.lstrip("/") / "driver/nvidia/params"
    assert modprobe.main(["nvidia", "NVreg_DeviceFileMode=432"]) == 0
    said = parameters.read_text().splitlines()
    assert {"EnableGpuFirmware: 0", "DeviceFileMode: 432", "ModifyDeviceFiles: 0"} <= set(said)


def test_boot_loads_what_claims_the_cards_unless_blacklisted(
    host: Callable[[str, int], Path],
) -> None:
    root = host("t4-16gb", 1)
    hardware.coldplug()
    assert set(kernel.loaded()) == {"nouveau"}
    unload_all()
    (root / "etc/modprobe.d").mkdir(parents=True)
    (root / "etc/modprobe.d/off.conf").write_text("blacklist nouveau\n")
    install_driver(root)
    hardware.coldplug()
    assert set(kernel.loaded()) == {"nvidia"}
    unload_all()
    (root / "etc/modprobe.d/off.conf").write_text("blacklist nouveau\nblacklist nvidia\n")
    hardware.coldplug()
    assert set(kernel.loaded()) == set()


def test_a_module_that_is_loaded_during_boot_waits_for_its_end(
    host: Callable[[str, int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd's own modprobe@fuse.service once took a place that boot was about to fill."""
    root = host("t4-16gb", 1)
    asked = []

    def ask(*_: str) -> None:
        with (root / f".{paths.STATE}/lock").open("w") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        asked.append(True)

    shown = {"module": "/proc/self/fd", "modules": "/proc/self/status"}
    monkeypatch.setattr(hardware, "MOUNTS", shown)
    monkeypatch.setattr(hardware, "_adopt", ask)
    monkeypatch.setattr(hardware, "_mount", ask)
    monkeypatch.setattr(hardware.kernel, "show", ask)
    monkeypatch.setattr(hardware, "coldplug", lambda: None)
    assert hardware.boot() == 0
    # What is adopted, shown, and mounted twice.
    assert asked == [True] * 4


def test_debians_configuration_is_understood(host: Callable[[str, int], Path]) -> None:
    root = host("t4-16gb", 1)
    (root / "etc/modprobe.d").mkdir(parents=True)
    (root / "etc/modprobe.d/nvidia.conf").write_text(DEBIAN_MODPROBE)
    configuration = modprobe.Configuration()
    assert configuration.install["nvidia"] == "modprobe -i nvidia-current $CMDLINE_OPTS"
    install_driver(root)
    assert modprobe.main(["-i", "nvidia-current"]) == 0
    assert set(kernel.loaded()) == {"nvidia"}
    assert modprobe.main(["-r", "-i", "nvidia-drm", "nvidia-peermem", "nvidia-uvm", "nvidia"]) == 0
    assert kernel.loaded() == {}


def test_a_configuration_that_leads_nowhere_is_skipped(host: Callable[[str, int], Path]) -> None:
    root = host("t4-16gb", 1)
    install_driver(root)
    for folder in ("modprobe.d", "modules-load.d"):
        (root / "etc" / folder).mkdir(parents=True, exist_ok=True)
        (root / "etc" / folder / "gone.conf").symlink_to("/etc/alternatives/gone.conf")
    assert hardware.coldplug() is None
    assert modprobe.modules_load() == 0
    assert "nvidia" in kernel.loaded()


def test_faults_reach_who_waits_for_events(host: Callable[[str, int], Path]) -> None:
    root = host("t4-16gb", 2)
    install_driver(root)
    modprobe.main(["nvidia"])
    nvml = Nvml(root)
    assert nvml("Init_v2") == 0
    events, data = ctypes.c_void_p(), (ctypes.c_ulonglong * 4)()
    assert nvml("EventSetCreate", ctypes.byref(events)) == 0
    assert nvml("DeviceRegisterEvents", nvml.handle(1), ctypes.c_ulonglong(8), events) == 0
    assert nvml("EventSetWait_v2", events, data, ctypes.c_uint(0)) == 10  # time-out
    paths.write(paths.FAULTS, "0 48\n1 79\n")
    libraries.refresh()
    assert nvml("EventSetWait_v2", events, data, ctypes.c_uint(0)) == 0
    assert (data[0], data[1], data[2]) == (nvml.handle(1).value, 8, 79)
    assert nvml("EventSetWait_v2", events, data, ctypes.c_uint(0)) == 10


@pytest.mark.parametrize(
    ("model", "count", "message"),
    [
        (
            "h100",
            1,
            (
                f"unknown GPU model — {models.MODELS} — got h100 / allowed a100-sxm4-80gb, "
                "h100-pcie-80gb, h100-sxm5-80gb, t4-16gb, v100-sxm2-32gb — "
                "use one of these, or add its data file"
            ),
        ),
        (
            "t4-16gb",
            17,
            (
                "number of cards out of range — t4-16gb — got 17 / allowed 0 to 16 — "
                "plug fewer cards"
            ),
        ),
    ],
)
def test_cards_that_cant_be_plugged_are_refused(model: str, count: int, message: str) -> None:
    with pytest.raises(models.SimulationError) as refused:
        gpu.plug(model, count)
    assert str(refused.value) == message


def test_a_card_can_be_pulled_and_the_others_keep_their_slots() -> None:
    text = models.without_slot(models.slots("t4-16gb", 3), 1)
    assert re.findall(r"^slot (\d+)$", text, re.MULTILINE) == ["0", "2"]
    assert models.minor_of(text, 2) == 1
    with pytest.raises(models.SimulationError) as refused:
        models.without_slot(text, 1)
    assert str(refused.value) == (
        "no card in that slot — slots of the host — got 1 / allowed 0, 2 — name one that has"
    )
