"""MIG on simulated cards, by NVML's own calls. NVIDIA's nvidia-smi runs on it in roles' tests."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit import test_gpu_simulation as simulated
from tests.unit.test_gpu_simulation import Nvml, install_driver, kernel, modprobe, paths

if TYPE_CHECKING:
    from collections.abc import Callable

host = simulated.host
NOT_SUPPORTED, NOT_FOUND, IN_USE, INSUFFICIENT_RESOURCES = 3, 6, 19, 23
SMALL, HALF = 19, 9


@pytest.fixture
def nvml(host: Callable[[str, int], Path]) -> Nvml:
    """A host with two cards that can be divided, its driver loaded."""
    root = host("a100-sxm4-80gb", 2)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    return started(root)


def paths_root() -> Path:
    return Path(paths.ROOT)


def started(root: Path) -> Nvml:
    """As a new process would find it: the loader gives the same library again, which reads anew."""
    nvml = Nvml(root)
    while nvml("Shutdown") == 0:
        pass
    assert nvml("Init_v2") == 0
    return nvml


def set_mode(nvml: Nvml, index: int, mode: int) -> int:
    activation = ctypes.c_int()
    args = (nvml.handle(index), ctypes.c_uint(mode), ctypes.byref(activation))
    assert nvml("DeviceSetMigMode", *args) == 0
    return activation.value


def create(nvml: Nvml, profile: int) -> int:
    """A GPU instance of card 0, and the compute instance that fills it."""
    instance, part = ctypes.c_void_p(), ctypes.c_void_p()
    args = (nvml.handle(0), ctypes.c_uint(profile), ctypes.byref(instance))
    result = nvml("DeviceCreateGpuInstance", *args)
    if result == 0:
        whole = ctypes.c_uint({SMALL: 0, HALF: 2}[profile])
        assert nvml("GpuInstanceCreateComputeInstance", instance, whole, ctypes.byref(part)) == 0
    return result


def devices(nvml: Nvml, index: int) -> list[str]:
    """UUIDs of the MIG devices of a card."""
    found: list[str] = []
    while True:
        mig, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        args = (nvml.handle(index), ctypes.c_uint(len(found)), ctypes.byref(mig))
        result = nvml("DeviceGetMigDeviceHandleByIndex", *args)
        if result != 0:
            assert result == NOT_FOUND
            return found
        assert nvml("DeviceGetUUID", mig, uuid, ctypes.c_uint(96)) == 0
        found.append(uuid.value.decode())


def test_a_card_is_divided_and_the_host_shows_it(nvml: Nvml) -> None:
    assert set_mode(nvml, 0, 1) == 0
    assert [create(nvml, HALF), create(nvml, SMALL), create(nvml, SMALL)] == [0, 0, 0]
    kernel.show()  # on a host the library has this done
    again = started(paths_root())
    uuids = devices(again, 0)
    assert len(set(uuids)) == 3
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    assert devices(again, 1) == []
    minors = paths.read("/proc/driver/nvidia-caps/mig-minors").splitlines()
    # The last line of the real file.
    assert minors[-1] == "gpu31/gi14/ci7/access 4322"
    capabilities = "/proc/driver/nvidia/capabilities/gpu0/mig"
    assert paths.names(capabilities) == ["gi1", "gi2", "gi3"]
    assert paths.names("/dev/nvidia-caps")[:2] == ["nvidia-cap1", "nvidia-cap12"]


def test_a_process_sees_the_mig_devices_whose_nodes_it_has(nvml: Nvml) -> None:
    set_mode(nvml, 0, 1)
    assert [create(nvml, SMALL), create(nvml, SMALL)] == [0, 0]
    kernel.show()
    first, second = devices(started(paths_root()), 0)
    (paths_root() / "dev/nvidia-caps/nvidia-cap12").unlink()
    assert devices(started(paths_root()), 0) == [second]
    assert first != second


def test_a_mig_device_counts_its_memory_errors_by_place_and_a_card_does_not(nvml: Nvml) -> None:
    """NVIDIA's nvidia-smi -q -x lists no MIG device without."""
    set_mode(nvml, 0, 1)
    assert create(nvml, HALF) == 0
    kernel.show()
    again, device, errors = started(paths_root()), ctypes.c_void_p(), ctypes.c_ulonglong(9)
    card = again.handle(0)
    first = (card, ctypes.c_uint(0), ctypes.byref(device))
    assert again("DeviceGetMigDeviceHandleByIndex", *first) == 0
    uncorrected, volatile, sram = ctypes.c_int(1), ctypes.c_int(0), ctypes.c_int(7)
    asked = (uncorrected, volatile, sram, ctypes.byref(errors))
    assert again("DeviceGetMemoryErrorCounter", device, *asked) == 0
    assert errors.value == 0
    assert again("DeviceGetMemoryErrorCounter", card, *asked) == NOT_SUPPORTED


def test_no_more_instances_than_fit(nvml: Nvml) -> None:
    set_mode(nvml, 0, 1)
    assert [create(nvml, SMALL) for _ in range(8)] == [0] * 7 + [INSUFFICIENT_RESOURCES]
    assert create(nvml, HALF) == INSUFFICIENT_RESOURCES


def test_a_card_in_use_changes_its_mode_later(nvml: Nvml) -> None:
    paths.write(paths.PLANTED, "process 0 4711\n")
    kernel.show()
    busy = started(paths_root())
    assert set_mode(busy, 0, 1) == IN_USE
    now, pending = ctypes.c_uint(), ctypes.c_uint()
    args = (busy.handle(0), ctypes.byref(now), ctypes.byref(pending))
    assert busy("DeviceGetMigMode", *args) == 0
    assert (now.value, pending.value) == (0, 1)
    assert set_mode(busy, 1, 1) == 0


def test_a_card_that_cannot_be_divided_says_so(host: Callable[[str, int], Path]) -> None:
    root = host("t4-16gb", 1)
    install_driver(root)
    modprobe.main(["nvidia"])
    nvml, activation = started(root), ctypes.c_int()
    args = (nvml.handle(0), ctypes.c_uint(1), ctypes.byref(activation))
    assert nvml("DeviceSetMigMode", *args) == NOT_SUPPORTED
