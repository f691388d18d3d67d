"""A driver's change on a host: builds, other drivers, the transaction, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.portable import dkms, nvidia
from bedplate.portable.driver import foreign as driver_foreign
from bedplate.portable.driver import record as driver_record
from bedplate.portable.driver import rollback as driver_rollback
from bedplate.portable.driver import state as driver
from bedplate.portable.driver.record import Driver, Record
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

KERNEL = "6.12.107+deb13-cloud-amd64"
OLD = Driver("470.256.02", "proprietary", "distro", "6.1", {"old": "470"})
NEW = Driver("535.261.03", "proprietary", "distro", "6.1", {"new": "535"})
DEBIAN = "ID=debian\nVERSION_ID=12\n"
LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Release Build\n"


def put(root: Path, name: str, text: str = "") -> None:
    """Write a file of the host."""
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def host(root: Path, answer: Callable[[Sequence[str]], Result]) -> Host:
    """A Debian host whose commands are answered by *answer*."""
    put(root, "/etc/os-release", DEBIAN)
    return Host(str(root), lambda argv, _timeout, _environment=None: answer(argv))


def dpkg(packages: Mapping[str, str]) -> Callable[[Sequence[str]], Result]:
    """Answer as a dpkg that has these packages installed."""

    def answer(argv: Sequence[str]) -> Result:
        if argv[0] != "dpkg-query":
            return Result(0, "", "")
        if "source:Package" in argv[2]:  # each is built from a source of its own
            rows = [f"{n}\t{v}\t{n}" for n, v in packages.items() if n in argv]
        elif "db:Status-Want" in argv[2]:
            rows = [f"{n}\t{v}\thold\tinstalled" for n, v in packages.items() if n in argv]
        elif "db:Status-Status" in argv[2]:
            rows = [f"installed\t{n}" for n in packages if n in argv]
        else:
            rows = [f"hi \t{n}" for n in packages]
        return Result(0, "\n".join([*rows, ""]), "")

    return answer


def test_a_module_is_built_once_it_lies_where_the_kernel_finds_it(tmp_path: Path) -> None:
    put(
        tmp_path,
        "/usr/src/nvidia-current-550.1/dkms.conf",
        'PACKAGE_NAME="nvidia-current"\nPACKAGE_VERSION="550.1"\n',
    )
    put(
        tmp_path,
        "/usr/src/nvidia-550.1/dkms.conf",
        "PACKAGE_NAME=nvidia\nPACKAGE_VERSION=#MODULE_VERSION#\n",
    )
    put(tmp_path, "/usr/src/nvidia-535.2/dkms.conf", "PACKAGE_NAME=nvidia\nPACKAGE_VERSION=535.2\n")
    here = Host(str(tmp_path))
    two = [dkms.Module("nvidia", "550.1"), dkms.Module("nvidia-current", "550.1")]
    assert dkms.modules(here, "550.1") == two
    assert dkms.missing(here, "550.1", KERNEL) == []  # no headers: nothing can be built
    (tmp_path / f"lib/modules/{KERNEL}/build").mkdir(parents=True)
    assert dkms.missing(here, "550.1", KERNEL) == two
    put(tmp_path, f"/var/lib/dkms/nvidia/550.1/{KERNEL}/x86_64/module/nvidia.ko")
    assert dkms.missing(here, "550.1", KERNEL) == two
    put(tmp_path, f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
    assert dkms.missing(here, "550.1", KERNEL) == two[1:]


def test_a_failed_build_is_told_by_its_first_error(tmp_path: Path) -> None:
    log = "/var/lib/dkms/nvidia-current-open/550.163.01/build/make.log"
    put(
        tmp_path,
        log,
        "cc -Werror=implicit-int -o a.o\n"
        "/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.c:237:15: error: too few"
        " arguments to function 'pci_resize_resource'\nmake[2]: *** [nv-pci.o] Error 1\n",
    )
    said = f"Error! Bad return status for module build\nConsult {log} for more information.\n"
    found = dkms.failure(Host(str(tmp_path)), said)
    assert found == (
        "nvidia/nv-pci.c:237:15: error: too few arguments to function 'pci_resize_resource'"
        f" ({log})"
    )
    assert dkms.failure(Host(str(tmp_path)), "E: all else") == ""


def test_a_build_that_says_it_went_well_must_have_made_something(tmp_path: Path) -> None:
    here = host(tmp_path, lambda _: Result(0, "", "done"))
    assert dkms.build(here, dkms.Module("nvidia", "550.1"), KERNEL) == "done"


def test_other_drivers_are_found_by_their_files_and_named_with_their_owner(tmp_path: Path) -> None:
    ours = "/usr/src/nvidia-current-535.261.03/dkms.conf"
    theirs = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.1"
    for name in (ours, theirs, driver_foreign.UNINSTALLER):
        put(tmp_path, name)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.1")
    packages = dpkg({"libnvidia-ml1": "550.1-1", "new": "535"})

    def answer(argv: Sequence[str]) -> Result:
        if "--search" in argv:
            assert "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" not in argv
            return Result(1, f"new: {ours}\nlibnvidia-ml1:amd64: {theirs}\n", "")
        return packages(argv)

    marks = ["/usr/src/nvidia*/dkms.conf", "/usr/lib/*/libnvidia-ml.so.*", "/usr/bin/nvidia-un*"]
    here = host(tmp_path, answer)
    assert driver_foreign.find(here, marks, [{"new": "535"}], runfile=False).said == (
        "package libnvidia-ml1 550.1-1, /usr/bin/nvidia-uninstall (of no package: NVIDIA's"
        " installer)"
    )
    ours = [{"new": "535"}, {"libnvidia-ml1": "470"}]
    assert not driver_foreign.find(here, marks, ours, runfile=True)


def test_a_source_that_makes_no_driver_is_nobodys_driver(tmp_path: Path) -> None:
    conf = "/usr/src/{}/dkms.conf"
    made = {
        "nvidia-fs-2.25.7": 'PACKAGE_NAME="nvidia-fs"\nBUILT_MODULE_NAME[0]="nvidia-fs"\n',
        "nvidia-peer-memory-1.3": "BUILT_MODULE_NAME[0]=nvidia_peermem\n",
        "nvidia-580.1": 'BUILT_MODULE_NAME[0]="nvidia"\nBUILT_MODULE_NAME[1]="nvidia-uvm"\n',
        "nvidia-550.1": 'BUILT_MODULE_NAME[0]="$PACKAGE_NAME"\n',
        "nvidia-current-535.1": "",
    }
    for name, text in made.items():
        put(tmp_path, conf.format(name), text)
    here = host(tmp_path, lambda _: Result(1, "", ""))
    found = driver_foreign.find(here, ["/usr/src/nvidia*-[0-9]*/dkms.conf"], [], runfile=False)
    drivers = ("nvidia-550.1", "nvidia-580.1", "nvidia-current-535.1")
    assert found.files == [conf.format(name) for name in drivers]


@pytest.mark.parametrize(
    ("version", "source", "status", "expected"),
    [
        ("580.1-1", "nvidia-graphics-drivers", "installed", []),
        # An exchange that was cut off: of the driver before, or unpacked and no more.
        ("575.1-1", "nvidia-graphics-drivers", "installed", []),
        ("580.1-1", "nvidia-graphics-drivers", "unpacked", []),
        ("550.1-1", "nvidia-graphics-drivers", "installed", ["libnvidia-ml1"]),
        ("580.1-1", "somebody-elses", "installed", ["libnvidia-ml1"]),
        # Its version is that of another of our packages, which was built from another source.
        ("570.9-1", "nvidia-graphics-drivers", "installed", ["libnvidia-ml1"]),
    ],
)
def test_what_came_along_with_our_packages_is_not_foreign(
    version: str, source: str, status: str, expected: list[str], tmp_path: Path
) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1"
    put(tmp_path, library)
    packages = {
        "libcuda1": ("580.1-1", "nvidia-graphics-drivers", "installed"),
        "nvidia-modprobe": ("570.9-1", "nvidia-modprobe", "installed"),
        "libnvidia-ml1": (version, source, status),
    }

    def answer(argv: Sequence[str]) -> Result:
        if "--search" in argv:
            return Result(0, f"libnvidia-ml1:amd64: {library}\n", "")
        form = argv[2].partition("=")[2].replace("\\t", "\t").replace("\\n", "\n")
        shown, out = ("Version", "source:Package", "db:Status-Status"), ""
        for name in [name for name in packages if name in argv]:
            fields = dict(zip(shown, packages[name], strict=True))
            fields |= {"Package": name, "binary:Package": name, "db:Status-Want": "install"}
            row = form
            for field, value in fields.items():
                row = row.replace(f"${{{field}}}", value)
            out += row
        return Result(0, out, "")

    ours = [
        {"libcuda1": "580.1-1", "nvidia-modprobe": "570.9-1", "yet-to-come": "580.1-1"},
        {"libcuda1": "575.1-1"},
    ]
    found = driver_foreign.find(host(tmp_path, answer), [library], ours, runfile=False)
    assert sorted(found.packages) == expected


def test_what_a_change_of_ours_had_begun_to_unpack_is_not_foreign(tmp_path: Path) -> None:
    begun = "/usr/lib/libcuda.so.535.261.03.dpkg-new"
    other = "/usr/lib/libcuda.so.550.1"
    for name in (begun, other):
        put(tmp_path, name)
    here = host(tmp_path, lambda _: Result(1, "", ""))
    marks = ["/usr/lib/libcuda.so.*"]
    assert driver_foreign.find(here, marks, [], False, ["535.261.03"]).files == [other]
    assert driver_foreign.find(here, marks, [], False).files == [begun, other]


@pytest.mark.parametrize(
    ("packages", "loaded", "expected"),
    [
        ({"old": "470"}, "470.256.02", (False, [])),  # it failed before anything was changed
        ({"new": "535"}, "470.256.02", (True, ["new"])),
        ({"old": "470", "new": "535"}, "470.256.02", (True, ["new"])),
        ({"old": "470"}, "535.261.03", (True, [])),
        ({"old": "470"}, "", (True, [])),
    ],
)
def test_a_failed_change_goes_back_to_the_last_good_driver(
    packages: dict[str, str], loaded: str, expected: tuple[bool, list[str]], tmp_path: Path
) -> None:
    here = host(tmp_path, dpkg(packages))
    if loaded:
        put(tmp_path, "/proc/driver/nvidia/version", LOADED.format(loaded))
    record = driver_record.begun(Record((OLD,)), NEW)
    plan = driver_rollback.after_failure(here, record, NEW)
    assert (plan.needed, plan.remove) == expected
    assert plan.target == OLD


def test_a_failure_without_a_change_takes_nothing_back(tmp_path: Path) -> None:
    plan = driver_rollback.after_failure(host(tmp_path, dpkg({})), Record((OLD,)), OLD)
    assert plan == (False, None, [])


def test_the_last_good_driver_is_not_taken_away_when_mending_it_fails(tmp_path: Path) -> None:
    put(tmp_path, "/var/lib/dpkg/updates/0001")
    record = driver_record.begun(Record((OLD,)), OLD)
    plan = driver_rollback.after_failure(host(tmp_path, dpkg({"old": "470"})), record, OLD)
    assert plan == (False, None, [])


def test_a_first_installation_is_removed_only_where_it_was_left_in_the_middle(
    tmp_path: Path,
) -> None:
    record = driver_record.begun(Record(), NEW)
    here = host(tmp_path, dpkg({"new": "535"}))
    assert driver_rollback.after_failure(here, record, NEW) == (False, None, ["new"])
    put(tmp_path, "/var/lib/dpkg/updates/0001")
    assert driver_rollback.after_failure(here, record, NEW) == (True, None, ["new"])


def test_a_driver_with_too_few_gpus_is_no_good(tmp_path: Path) -> None:
    row = "0, Tesla T4, GPU-1, 15360, Enabled, 00000000:11:00.0, 535.261.03\n"
    here = host(tmp_path, lambda _: Result(0, row, ""))
    assert driver.health(here, "535.261.03", 1) == ""
    assert driver.health(here, "535.261.03", 4) == "1 of 4 GPUs answer"
    assert driver.health(here, "470.256.02", 1) == "the library is of version 535.261.03"
    broken = host(tmp_path, lambda _: Result(9, "", "Failed to initialize NVML"))
    assert driver.health(broken, "1", 1) == "nvidia-smi: Failed to initialize NVML"


def test_options_that_the_loaded_module_does_not_have(tmp_path: Path) -> None:
    here = Host(str(tmp_path))
    wish = {"nvidia": {"NVreg_EnableGpuFirmware": "0", "NVreg_Unknown": 1}, "nvidia_uvm": {"x": 1}}
    assert nvidia.other_options(here, wish) == []  # nothing is loaded
    put(tmp_path, "/proc/driver/nvidia/params", 'EnableGpuFirmware: 18\nRegistryDwords: ""\n')
    assert nvidia.other_options(here, wish) == ["NVreg_EnableGpuFirmware=0"]
    put(tmp_path, "/proc/driver/nvidia/params", "EnableGpuFirmware: 0\n")
    assert nvidia.other_options(here, wish) == []
