"""dpkg's state and apt's sources: what is read, and that nothing else is changed."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import Host, Result
from bedplate.portable.packages import debian

if TYPE_CHECKING:
    from pathlib import Path

WANTED = ["contrib", "non-free", "non-free-firmware"]
DEB822 = """\
# See sources.list(5)
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
components:   main contrib

Types: deb
URIs: http://vendor.example/tools
Suites: stable
Components: main
"""


def host(root: Path, answers: dict[str, Result] | None = None) -> Host:
    """A host with files below *root* and canned commands, by their first word."""

    def run(argv: list[str], _timeout: float, _environment: object = None) -> Result:
        return (answers or {})[argv[0]]

    return Host(str(root), run)


def put(root: Path, name: str, text: str) -> None:
    """Write a file of the host."""
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_installed_says_what_is_there_and_held(tmp_path: Path) -> None:
    out = (
        "libcuda1:amd64\t535.1-1\thold\tinstalled\n"
        "nvidia-smi\t535.1-1\tinstall\tinstalled\n"
        "removed\t1\tdeinstall\tconfig-files\n"
        "half\t1\tinstall\thalf-configured\n"
        "never\t\tunknown\tnot-installed\n"
    )
    answer = Result(1, out, "dpkg-query: no packages found matching absent")
    found = debian.installed(host(tmp_path, {"dpkg-query": answer}), ["libcuda1", "absent"])
    assert found == {
        "libcuda1": debian.Package("535.1-1", True),
        "nvidia-smi": debian.Package("535.1-1", False),
    }


def test_nobody_is_asked_about_nothing(tmp_path: Path) -> None:
    assert debian.installed(host(tmp_path), []) == {}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Result(0, "ii \nhi \nrc \n", ""), False),
        (Result(0, "ii \niF \n", ""), True),
        (Result(0, "iU \nii \n", ""), True),
        (Result(0, "ii \nit \n", ""), True),
        (Result(0, "iHR\n", ""), True),
        (Result(0, "iiR\n", ""), True),
        (Result(2, "", "dpkg-query: error"), True),
    ],
)
def test_interrupted_by_what_dpkg_says(answer: Result, expected: bool, tmp_path: Path) -> None:
    assert debian.interrupted(host(tmp_path, {"dpkg-query": answer})) is expected


def test_interrupted_by_a_journal(tmp_path: Path) -> None:
    put(tmp_path, "/var/lib/dpkg/updates/0001", "")
    assert debian.interrupted(host(tmp_path))


@pytest.mark.parametrize("name", ["lock-frontend", "lock"])
def test_locked_while_another_process_holds_a_lock(name: str, tmp_path: Path) -> None:
    """The second is that of a dpkg whose apt was killed: it works on."""
    put(tmp_path, "/var/lib/dpkg/lock-frontend", "")
    lock = tmp_path / "var/lib/dpkg" / name
    assert not debian.locked(host(tmp_path))
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert debian.locked(host(tmp_path))
        other.communicate("")
    assert not debian.locked(host(tmp_path))
    with lock.open("a") as again:
        fcntl.lockf(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_differing() -> None:
    have = {"a": debian.Package("1", False), "b": debian.Package("1", True)}
    assert debian.differing(have, {"a": "1"}) == []
    assert debian.differing(have, {"c": "1", "b": "2", "a": "1"}) == ["b", "c"]
    have = {"a": debian.Package("20.10.24", False)}
    for wished, differing in (("", []), ("20.10*", []), ("20.1", ["a"]), ("26*", ["a"])):
        assert debian.differing(have, {"a": wished}) == differing, wished


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "deb http://m.example/debian bookworm main\n",
            "deb http://m.example/debian bookworm main contrib non-free non-free-firmware\n",
        ),
        (
            "deb [arch=amd64 signed-by=/k.gpg] http://m.example bookworm-security main  # mine\n",
            (
                "deb [arch=amd64 signed-by=/k.gpg] http://m.example bookworm-security main contrib "
                "non-free non-free-firmware  # mine\n"
            ),
        ),
        (
            "deb-src http://m.example bookworm-updates main non-free\n",
            "deb-src http://m.example bookworm-updates main non-free contrib non-free-firmware\n",
        ),
    ],
)
def test_line_style_is_extended(before: str, after: str) -> None:
    assert debian.extend_line_style(before, "bookworm", WANTED) == after
    assert debian.extend_line_style(after, "bookworm", WANTED) == after, "a second time: nothing"


@pytest.mark.parametrize(
    "text",
    [
        "# deb http://m.example/debian bookworm main\n",
        "deb http://m.example/debian trixie main\n",
        "deb http://m.example/debian bookworm-backports main\n",
        "deb http://vendor.example/apt bookworm stable\n",
        "deb cdrom:[Debian GNU/Linux 12.5.0 _Bookworm_ - Official]/ bookworm main\n",
        "deb http://vendor.example/flat ./\n",
        "\n",
        "no newline at the end",
        "",
    ],
)
def test_other_lines_stay_as_they_are(text: str) -> None:
    assert debian.extend_line_style(text, "bookworm", WANTED) == text


def test_deb822_changes_components_of_this_release_only() -> None:
    after = debian.extend_deb822(DEB822, "bookworm", WANTED)
    changed = [
        (old, new)
        for old, new in zip(DEB822.splitlines(), after.splitlines(), strict=True)
        if old != new
    ]
    assert changed == [
        ("Components: main", "Components: main contrib non-free non-free-firmware"),
        (
            "components:   main contrib",
            "components:   main contrib non-free non-free-firmware",
        ),
    ]
    assert debian.extend_deb822(after, "bookworm", WANTED) == after


def test_sources_that_change_are_named_with_both_texts(tmp_path: Path) -> None:
    line = "deb http://m.example/debian bookworm main\n"
    put(tmp_path, "/etc/apt/sources.list", line)
    put(tmp_path, "/etc/apt/sources.list.d/debian.sources", DEB822)
    put(tmp_path, "/etc/apt/sources.list.d/old.list.save", line)
    put(tmp_path, "/etc/apt/sources.list.d/vendor.list", "deb http://v.example stable main\n")
    found = debian.extend_sources(host(tmp_path), "bookworm", WANTED)
    assert sorted(found) == ["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"]
    assert found["/etc/apt/sources.list"][0] == line
    assert debian.extend_sources(host(tmp_path / "empty"), "bookworm", WANTED) == {}


def test_preferences_keep_the_users_in_front(tmp_path: Path) -> None:
    wish = {"nvidia-smi": "535.1-1", "libcuda1": "535.1-1", "other": "2"}
    mine = (
        "Package: ?*\nPin: version 2\nPin-Priority: 1001\n\n"
        "Package: ?*\nPin: version 535.1-1\nPin-Priority: 1001\n"
    )
    assert debian.preferences(host(tmp_path), wish) == mine
    put(tmp_path, "/etc/apt/preferences", "Package: x\nPin: version 1\nPin-Priority: 500\n\n\n")
    theirs = "Package: x\nPin: version 1\nPin-Priority: 500\n\n"
    assert debian.preferences(host(tmp_path), wish) == theirs + mine


def test_offered_versions_are_those_of_the_index(tmp_path: Path) -> None:
    out = (
        " nvidia-smi | 535.1-1 | http://m.example bookworm/non-free amd64 Packages\n"
        " nvidia-smi | 535.2-1 | http://m.example bookworm/non-free amd64 Packages\n"
        "   libcuda1 | 535.1-1 | http://m.example bookworm/non-free amd64 Packages\n"
    )
    there = host(tmp_path, {"apt-cache": Result(0, out, "")})
    assert debian.offered(there, ["nvidia-smi", "libcuda1", "other"]) == {
        "nvidia-smi": {"535.1-1", "535.2-1"},
        "libcuda1": {"535.1-1"},
        "other": set(),
    }
    assert debian.offered(host(tmp_path), []) == {}


def test_owners_of_files(tmp_path: Path) -> None:
    out = (
        "diversion by glx-diversions from: /usr/lib/libGL.so.1\n"
        "libcuda1:amd64: /usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.1\n"
        "nvidia-a, nvidia-b: /usr/src/nvidia-current-535.1/dkms.conf\n"
    )
    asked = host(tmp_path, {"dpkg-query": Result(1, out, "no path found matching pattern /x")})
    assert debian.owners(asked, ["/x"]) == {
        "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.1": "libcuda1",
        "/usr/src/nvidia-current-535.1/dkms.conf": "nvidia-a",
    }


def test_unfinished_and_present_packages(tmp_path: Path) -> None:
    answers = {
        "dpkg-query": Result(0, "ii \tgood\t1\niF \thalf\t2\niU \tunpacked\t3\nrc \tgone\t4\n", "")
    }
    assert debian.unfinished(host(tmp_path, answers)) == {"half": "2", "unpacked": "3"}
    answers = {
        "dpkg-query": Result(1, "installed\tgood\nhalf-configured\thalf\nconfig-files\tgone\n", "")
    }
    assert debian.there(host(tmp_path, answers), ["good", "half", "gone", "never"]) == [
        "good",
        "half",
    ]


def test_kept_archives_and_those_that_may_go(tmp_path: Path) -> None:
    folder = "/var/lib/bedplate/driver"
    for name in ("a_1%3a2-3_amd64.deb", "b_535.1-1_all.deb", "b_535.1-10_all.deb", "lock"):
        put(tmp_path, f"{folder}/{name}", "")
    here = host(tmp_path)
    assert debian.archive(here, folder, "a", "1:2-3") == f"{folder}/a_1%3a2-3_amd64.deb"
    assert debian.archive(here, folder, "b", "535.1-1") == f"{folder}/b_535.1-1_all.deb"
    assert debian.archive(here, folder, "b", "535") == ""
    kept = [{"a": "1:2-3"}, {"b": "535.1-10"}]
    assert debian.superfluous(here, folder, kept) == [f"{folder}/b_535.1-1_all.deb"]
    assert len(debian.superfluous(here, folder, [])) == 3
    # What came along with a kept package carries its version.
    put(tmp_path, f"{folder}/c_535.1-10_amd64.deb", "")
    assert debian.superfluous(here, folder, kept) == [f"{folder}/b_535.1-1_all.deb"]


def test_siblings_are_built_from_the_same_source(tmp_path: Path) -> None:
    out = (
        "installed\tlibnvidia-ml1\tdrivers\nhalf-configured\tnvidia-smi\tdrivers\n"
        "config-files\tlibcuda1\tdrivers\ninstalled\tbash\tbash\n"
    )
    asked = host(tmp_path, {"dpkg-query": Result(0, out, "")})
    assert debian.siblings(asked, ["libnvidia-ml1"]) == ["libnvidia-ml1", "nvidia-smi"]
    assert debian.siblings(asked, []) == []


def test_modules_that_ubuntu_builds_apart_go_with_their_driver(tmp_path: Path) -> None:
    """Their source package is the kernel's restricted modules, of whatever driver."""
    out = (
        "installed\tlibnvidia-compute-550\tnvidia-graphics-drivers-550\n"
        "installed\tnvidia-utils-550\tnvidia-graphics-drivers-550\n"
        "installed\tlinux-modules-nvidia-550-6.8.0-45-generic\tlinux-restricted-modules\n"
        "installed\tlinux-modules-nvidia-550-generic\tlinux-restricted-modules\n"
        "installed\tlinux-objects-nvidia-550-6.8.0-45-generic\tlinux-restricted-modules\n"
        "installed\tlinux-signatures-nvidia-6.8.0-45-generic\tlinux-restricted-signatures\n"
        "config-files\tlinux-modules-nvidia-535-6.8.0-45-generic\tlinux-restricted-modules\n"
        "installed\tlinux-modules-6.8.0-45-generic\tlinux\n"
    )
    asked = host(tmp_path, {"dpkg-query": Result(0, out, "")})
    assert debian.siblings(asked, ["libnvidia-compute-550"]) == [
        "libnvidia-compute-550",
        "linux-modules-nvidia-550-6.8.0-45-generic",
        "linux-modules-nvidia-550-generic",
        "linux-objects-nvidia-550-6.8.0-45-generic",
        "linux-signatures-nvidia-6.8.0-45-generic",
        "nvidia-utils-550",
    ]


def test_what_a_simulated_transaction_removes() -> None:
    text = "Inst a (1 Debian [amd64])\nRemv b:amd64 [1]\nRemv c [2] [d:amd64 ]\nConf a (1)\n"
    assert debian.removed_by(text) == ["b", "c"]


def test_unattended_upgrades_are_kept_away_by_exact_names() -> None:
    text = debian.unattended_blacklist("role x", ["libstdc++6", "a-b"])
    assert text.splitlines()[1:] == [
        "Unattended-Upgrade::Package-Blacklist {",
        '  "^a-b$";',
        '  "^libstdc[+][+]6$";',
        "};",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "dpkg: error: dpkg frontend is locked by another process",
        "dpkg: error: dpkg database lock was locked by another process with pid 81",
        "dpkg: error: dpkg frontend lock was locked by /usr/bin/apt-get process with pid 81",
    ],
)
def test_a_hold_waits_for_the_package_manager_of_a_killed_run(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(debian.time, "sleep", lambda _: None)
    locked = Result(100, "", f"{said}\nE: Executing dpkg failed. Are you root?\n")
    other = Result(100, "", "E: Executing dpkg failed. Are you root?\n")
    good = Result(0, "", "")
    for seconds, answers in {600: [locked, locked, good], 60: [other], -1: [locked]}.items():
        left = iter(answers)
        machine = Host(runner=lambda *_, left=left: next(left))
        assert debian.mark(machine, "hold", ["bash"], seconds) is answers[-1]
        assert not list(left)
