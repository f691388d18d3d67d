"""Role nvidia_driver on Red Hat's family with a driver that is no good: back by itself, and asked.

dnf and rpm are real, and all tasks of the role are played on one stand-in system. What is below
them is written here: `modprobe` loads what `dkms` built, `nvidia-smi` answers with the library that
is installed, `systemctl` says that each unit runs. No kernel, GPU or systemd is looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import nvidia, repositories
from bedplate.portable.driver import record as driver_record
from bedplate.portable.evidence import driver as driver_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.packages import rpm
from tests.standin import playing
from tests.standin import test_nvidia_driver as role
from tests.substrate.standin import StandIn, driver_packages, system
from tests.substrate.standin.packages import pins

if TYPE_CHECKING:
    from pathlib import Path

OS = "rocky-9"
OLD, NEW = "580.178.04", "595.91.07"
OPEN = "kmod-nvidia-open-dkms"
TOOL = StandIn("somebodys-tool", "1.0-1", needs={OPEN: pins(OS, OLD, "open")[OPEN]})
#: The version of the driver of which no card answers.
SICK = "sick"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LOADED = nvidia.PROC_VERSION
#: dkms install --force -m NAME -v VERSION -k KERNEL; the package of another version took its own.
DKMS = """#!/bin/sh
rm -rf /var/lib/dkms/nvidia
built=/var/lib/dkms/nvidia/$6/$8/x86_64/module
mkdir -p $built /lib/modules/$8/extra
[ -d /usr/src/nvidia-open-$6 ] && open="Open " || open=
echo "NVRM version: NVIDIA UNIX x86_64 ${open}Kernel Module  $6  stand-in" > $built/nvidia.ko
cp $built/nvidia.ko /lib/modules/$8/extra
"""
PROGRAMS = {
    "modprobe": f"""#!/bin/sh
mkdir -p /sys/module/$1 {LOADED.rpartition("/")[0]}
[ $1 != nvidia ] || cp /lib/modules/$(uname -r)/extra/nvidia.ko {LOADED}
""",
    "rmmod": f"""#!/bin/sh
rmdir /sys/module/$1
[ $1 != nvidia ] || rm {LOADED}
""",
    "systemctl": """#!/bin/sh
case "$1" in
    show) printf "ActiveState=active\\nUnitFileState=enabled\\n" ;;
    is-failed) exit 1 ;;
esac
""",
    "nvidia-smi": f"""#!/bin/sh
grep -qs "  $(cat /{SICK})  " {LOADED} && echo "No devices were found" && exit 6
library=$(readlink {LIBRARIES}/libnvidia-ml.so.1)
echo "0, Tesla T4, GPU-0, 15360, Enabled, 00000000:01:00.0, ${{library#libnvidia-ml.so.}}"
""",
}

#: Some minutes: run them with `make prove AREA=standin`.
pytestmark = [pytest.mark.prove, role.pytestmark]


def program(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host, to which the vendor's packages and dkms are offered."""
    work = tmp_path_factory.mktemp("back")
    daemon = {"nvidia-persistenced": program(work / "nvidia-persistenced", "#!/bin/sh\n")}
    repository = playing.unpacked(OS, work, driver_packages(OS, [OLD, NEW], daemon))
    place = playing.planned(OS, work, {"nvidia_driver_repository": repository})
    dkms = {"/usr/sbin/dkms": program(work / "dkms", DKMS)}
    offered = [playing.devel(), StandIn("dkms", "3.2.1-1", programs=dkms), TOOL]
    playing.distribution(place, offered)
    for name, text in PROGRAMS.items():
        program(work / "host/usr/local/sbin" / name, text)
    return place


def play(site: Path, entry: str, version: str) -> tuple[int, str]:
    """Play an entry point with a wish for an open driver: how many tasks changed, what was said."""
    wish = role.driver(version, "open", OS)
    changed, said = playing.play(site, "nvidia_driver", entry, **wish)
    return changed, " ".join(said.split())


def reset(site: Path, *arguments: str) -> tuple[int, str]:
    """Take the host out of care: the changes that it shows (-1: it failed), and what was said."""
    words = ["-i", str(site), "bedplate.gpu.reset", "--diff", "-e", "reset_hosts=one", *arguments]
    done = subprocess.run(
        [playing.BIN / "ansible-playbook", *words],
        cwd=playing.ROOT,
        env=os.environ | {"NO_COLOR": "1", "PATH": f"{playing.BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = " ".join((done.stdout + done.stderr).split())
    return -1 if done.returncode else said.count(": removed"), said


def state(site: Path) -> dict[str, Any]:
    """All that a change of the driver changes, and a way back puts back."""
    on = system.host(site.parent / "host")
    record = driver_record.read(on)
    return {
        "packages": role.installed(site),
        "locks": on.read(rpm.lock_list(on)),
        "stream": repositories.stream(on, "nvidia-driver"),
        "loaded": nvidia.loaded_module(on),
        "good": [one.version for one in record.good],
        "changing": record.changing,
        "unfinished": rpm.journal(on),
    }


def transactions(site: Path) -> int:
    """How many transactions dnf has made."""
    said = system.host(site.parent / "host").run(["dnf", "history", "list"]).out
    return len(re.findall(r"^ +\d+ \|", said, re.MULTILINE))


def failing(site: Path, version: str) -> dict[str, str]:
    """What evidence says against the host when it is to have a driver: reasons by check."""
    wishes = Wishes(
        driver_version=version, driver_flavour="open", driver_packages=pins(OS, version, "open")
    )
    found = Collected([], {}, {})
    driver_evidence.collect(system.host(site.parent / "host"), wishes, found)
    return {one["id"]: one["reason"] or "" for one in found.checks if one["result"] == "fail"}


def test_a_driver_that_answers_is_the_last_good_one(site: Path) -> None:
    changed, said = play(site, "change", OLD)
    assert changed > 0, said
    now = state(site)
    assert now["packages"] == pins(OS, OLD, "open")
    assert now["stream"] == "580-open"
    assert now["loaded"][:2] == (OLD, "open")
    assert (now["good"], now["changing"], now["unfinished"]) == ([OLD], None, None)
    assert failing(site, OLD) == {}
    changed, said = play(site, "change", OLD)
    assert changed == 0, said


def test_one_that_is_not_healthy_is_taken_back_in_one_transaction(site: Path) -> None:
    before, made, sick = state(site), transactions(site), site.parent / "host" / SICK
    sick.write_text(NEW)
    changed, said = play(site, "change", NEW)
    sick.unlink()
    assert changed == -1
    reason = (
        f"the driver does not work after the change — {os.uname().nodename} — got nvidia-smi: No"
        f" devices were found / allowed 1 GPUs through driver {NEW} (open) — See 'nvidia-smi' and"
        " the kernel's log on the host."
    )
    assert (
        f"driver {NEW} (open) failed and was rolled back — one — got {reason}; now: {OLD} (open) —"
        " Fix the cause, or choose another driver and run 'bedplate plan'."
    ) in said
    assert state(site) == before
    assert transactions(site) == made + 2  # there, and back
    assert failing(site, OLD) == {}
    assert failing(site, NEW)["driver.kept"] == reason
    changed, said = play(site, "change", OLD)
    assert changed == 0, said


def test_nothing_goes_back_without_the_repository_and_all_of_it_with_it(site: Path) -> None:
    """Red Hat's family keeps no packages: what the way back needs is asked of the repository."""
    old = state(site)
    changed, said = play(site, "change", NEW)
    assert changed > 0, said
    new, made = state(site), transactions(site)
    assert new["good"] == [NEW, OLD]
    there, gone = site.parent / "host" / playing.REPOSITORY, site.parent / "gone"
    shutil.move(there, gone)
    changed, said = play(site, "rollback", NEW)
    shutil.move(gone, there)
    assert changed == -1
    assert re.search(
        rf"the host could not roll back to {OLD} [(]open[)] — one — packages could not be"
        rf" installed — \S+ — got Error opening /{playing.REPOSITORY}/\S+: No such file or"
        r" directory .* / allowed .* — the rollback was for: a rollback was asked for",
        said,
    )
    kept = ("packages", "locks", "loaded", "good")
    now = state(site)
    assert {key: now[key] for key in kept} == {key: new[key] for key in kept}
    assert (now["changing"].version, transactions(site)) == (OLD, made)
    changed, said = play(site, "rollback", NEW)
    assert changed > 0, said
    assert state(site) == old | {"good": [OLD, NEW]}
    assert transactions(site) == made + 1
    assert failing(site, NEW)["driver.kept"] == "a rollback was asked for"


def test_there_is_one_way_back(site: Path) -> None:
    before = state(site)
    changed, said = play(site, "rollback", NEW)
    assert changed == -1
    assert (
        f"there is no driver to roll back to — one — got {OLD} (open) alone / allowed a driver"
        " that worked before it — Choose one in the site and run 'bedplate plan' and"
        " bedplate.gpu.site."
    ) in said
    assert state(site) == before


def test_reset_refuses_to_take_what_is_somebodys_with_the_driver(site: Path) -> None:
    on, before = system.host(site.parent / "host"), state(site)
    assert on.run(["dnf", "--assumeyes", "install", TOOL.name], 300).code == 0
    changes, said = reset(site)
    assert changes == -1
    assert (
        f"not everything could be taken away — {os.uname().nodename} — got packages of yours need"
        f" the driver: {TOOL.name} / allowed every command ends well — Fix what it says and run"
        " bedplate.gpu.reset again: it goes on where it ended."
    ) in said
    assert state(site) == before
    assert on.run(["dnf", "--assumeyes", "remove", TOOL.name], 300).code == 0


def test_reset_takes_the_driver_away_with_locks_repository_and_record(site: Path) -> None:
    on, before = system.host(site.parent / "host"), state(site)
    theirs = f"{before['locks']}somebodys-0:1.0-1.*\n"
    on.write(rpm.lock_list(on), theirs)
    others = playing.installed(site).items() - before["packages"].items()
    changes, said = reset(site, "--check")
    assert changes > len(before["packages"]), said
    assert state(site) == before | {"locks": theirs}
    changes, said = reset(site)
    assert changes > len(before["packages"]), said
    now = state(site)
    assert (now["packages"], now["locks"]) == ({}, "somebodys-0:1.0-1.*\n")
    assert (now["loaded"], now["good"], now["changing"]) == (None, [], None)
    assert (before["stream"], now["stream"]) == ("580-open", None)
    assert playing.installed(site).items() == others
    assert on.list("/etc/yum.repos.d") == ["distribution.repo"]
    for name in ("/etc/bedplate", "/var/lib/bedplate", "/etc/pki/rpm-gpg"):
        assert on.list(name) == []
    changes, said = reset(site)
    assert changes == 0, said
