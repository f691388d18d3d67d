"""rpm, dnf's locks and plans, a repository's key and files: read and written without rpm itself."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import openpgp, repositories
from bedplate.portable.driver import state as driver
from bedplate.portable.host import Host, Result
from bedplate.portable.packages import dnf, rpm, rpm_manager
from bedplate.portable.packages import origin as package_origin
from bedplate.portable.packages.dnf import Change, Wish
from bedplate.portable.packages.transaction import TransactionError

if TYPE_CHECKING:
    from pathlib import Path

PLAN = """\
Dependencies resolved.
================================================================================
 Package                  Arch    Version                  Repository      Size
================================================================================
Installing:
 kmod-nvidia-latest-dkms  x86_64  3:580.178.04-1.el9       bedplate-nvidia 7 k
     replacing  nvidia-kmod-old.x86_64 3:570.1-1.el9
Removing:
 kmod-nvidia-open-dkms    x86_64  3:580.178.04-1.el9       @bedplate       0
Removing dependent packages:
 somebodys-tool           x86_64  1-1                      @System         0

Transaction Summary
================================================================================
Install  1 Package
Remove   2 Packages

Operation aborted.
"""


def host(root: Path, answers: dict[str, Result] | None = None) -> Host:
    """A host with canned commands: the longest beginning of the command line decides."""
    known = sorted((answers or {}).items(), key=lambda pair: -len(pair[0]))

    def run(argv: list[str], _timeout: float, _environment: object = None) -> Result:
        line = " ".join(argv)
        return next((said for start, said in known if start in line), Result(0, "", ""))

    return Host(str(root), run)


def put(on: Host, name: str, text: str) -> None:
    """Write a file of the host."""
    on.write(name, text)


def test_installed_versions_are_read(tmp_path: Path) -> None:
    out = (
        "a\t3:1-1.el9\tx86_64\npackage b is not installed\na\t3:2-1.el9\tx86_64\nc\t0:1-1\tnoarch\n"
    )
    on = host(tmp_path, {"rpm --query": Result(1, out, "")})
    have = rpm.versions(rpm.query(on, ["a", "b", "c"]))
    assert have == {"a": ["3:1-1.el9", "3:2-1.el9"], "c": ["0:1-1"]}
    assert rpm.differing(have, {"a": "3:2-1.el9", "b": "1-1", "c": "1-1"}) == ["a", "b"]
    assert rpm.query(on, []) == []


def test_a_lock_list_keeps_what_is_the_users(tmp_path: Path) -> None:
    text = "# mine\nbash-0:5.1-1.*\n!kernel-0:5.15-1.*\nnvidia-smi-3:1-1.*\nold-tool-0:1-1.*\n"
    ours = rpm.with_locks(text, {"nvidia-smi": "3:1-1", "old-tool": "1-1"})
    after = rpm.with_locks(ours, {"nvidia-smi": "3:2-1", "lib-x": "1-1"}, ["old-tool"])
    assert after.splitlines() == [
        *text.splitlines(),
        "# Bedplate: lib-x stays at its version",
        "lib-x-0:1-1.*",
        "# Bedplate: nvidia-smi stays at its version",
        "nvidia-smi-3:2-1.*",
    ]
    assert rpm.with_locks(after, {"nvidia-smi": "3:2-1", "lib-x": "1-1"}) == after
    assert rpm.others(after) == ["bash-0:5.1-1.*", "nvidia-smi-3:1-1.*", "old-tool-0:1-1.*"]
    on = host(tmp_path)
    put(on, rpm.VERSIONLOCK, "[main]\nlocklist = /etc/other.list\n")
    put(on, "/etc/other.list", after)
    assert rpm.locked(on, rpm.Package("nvidia-smi", "3:2-1", "x86_64"))
    assert not rpm.locked(on, rpm.Package("nvidia-smi", "3:3-1", "x86_64"))
    assert not rpm.locked(on, rpm.Package("kernel", "0:5.15-1", "x86_64"))


def test_a_plan_says_what_goes() -> None:
    assert rpm.removals(PLAN) == ["kmod-nvidia-open-dkms", "nvidia-kmod-old", "somebodys-tool"]
    assert rpm.removals("Installing:\n a x86_64 1-1 r 7 k\n") == []


def planned(tmp_path: Path, plan: str) -> Host:
    """A host on which a package of another flavour is installed, and dnf has a plan."""
    return host(
        tmp_path,
        {
            "rpm --query": Result(0, "kmod-nvidia-open-dkms\t3:1-1\tx86_64\n", ""),
            "repoquery": Result(0, "kmod-nvidia-latest-dkms\t3:1-1\n", ""),
            "--assumeno": Result(1, plan, ""),
        },
    )


def test_a_plan_that_removes_what_nobody_allowed_is_refused(tmp_path: Path) -> None:
    on = planned(tmp_path, PLAN)
    wish = Wish({"kmod-nvidia-latest-dkms": "3:1-1"}, ["kmod-nvidia-open-dkms", "nvidia-kmod-old"])
    assert dnf.change(on, wish) == Change(["kmod-nvidia-latest-dkms"], ["kmod-nvidia-open-dkms"])
    with pytest.raises(TransactionError) as caught:
        dnf.carry_out(on, wish, "/tmp")
    assert caught.value.parts == (
        "the change would remove packages that are not allowed to go",
        "somebodys-tool",
        "kmod-nvidia-open-dkms, nvidia-kmod-old",
        "Remove them yourself, or allow their removal.",
    )
    assert rpm.journal(on) is None
    assert on.read("/tmp/transaction") == (
        "install kmod-nvidia-latest-dkms-3:1-1\nremove kmod-nvidia-open-dkms\nrun\n"
    )


def test_a_version_that_nobody_offers_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransactionError) as caught:
        dnf.carry_out(planned(tmp_path, PLAN), Wish({"nvidia-smi": "3:9-1"}), "/tmp")
    assert caught.value.parts[1] == "no nvidia-smi-3:9-1"


def test_what_is_there_in_any_version_or_provided_is_not_asked_for(tmp_path: Path) -> None:
    on = host(
        tmp_path,
        {
            "rpm --query --whatprovides a": Result(0, "another-1-1.x86_64\n", ""),
            "rpm --query --whatprovides a b": Result(
                1, "another-1-1.x86_64\nno package provides b\n", ""
            ),
            "rpm --query --whatprovides a d": Result(
                1, "another-1-1.x86_64\nno package provides d\n", ""
            ),
            "rpm --query": Result(1, "package c is not installed\n", ""),
            "--whatprovides b": Result(0, "another\t0:2-1\n", ""),
            "--whatprovides d": Result(0, "", ""),
            "repoquery": Result(0, "c\t0:1-1\n", ""),
            "--assumeno": Result(1, "Operation aborted.\n", ""),
        },
    )
    put(on, rpm.LOCK_LIST, "b-0:2-1.*\n")
    wish = Wish({"c": "1-1"}, present=["a", "b"])
    assert dnf.change(on, wish) == Change(["b", "c"], [])
    assert dnf.change(on, Wish({}, present=["a"])) == Change([], [])
    with pytest.raises(TransactionError):  # these answers never change
        dnf.carry_out(on, wish, "/tmp")
    assert on.read("/tmp/transaction") == "install b c-0:1-1\nrun\n"
    # The user's own lock on it counts.
    assert "b-0:2-1.*\n" in (on.read("/tmp/versionlock.list") or "")
    assert rpm.journal(on) == {"b": "", "c": "1-1"}
    with pytest.raises(TransactionError) as caught:
        dnf.carry_out(on, Wish({}, present=["a", "d"]), "/tmp")
    assert caught.value.parts[1] == "no d"


def test_where_rpm_does_not_answer_nothing_counts_as_there(tmp_path: Path) -> None:
    on = host(tmp_path, {"rpm --query --whatprovides": Result(124, "", "no answer within 60 s")})
    assert rpm.unprovided(on, ["b", "a"]) == ["a", "b"]


def test_the_index_is_fetched_anew_once_for_all(tmp_path: Path) -> None:
    asked: list[str] = []

    def run(argv: list[str], *_: object) -> Result:
        asked.append(" ".join(argv))
        return Result(0, "", "")

    wish = Wish({"c": "1-1"}, present=["a", "b"])
    missing = dnf.unoffered(Host(str(tmp_path), run), wish, ["a", "b", "c"], refresh=True)
    assert sorted(missing) == ["a", "b", "c"]
    assert [" --refresh " in line for line in asked] == [True, False, False]


LOCKS = "# mine\nkernel-devel-0:5.14.0-570.1.el9_6.*\nbash-0:5.1-1.*\n"


@pytest.mark.parametrize("raises", [False, True])
def test_own_locks_are_lifted_for_one_transaction_alone(tmp_path: Path, raises: bool) -> None:
    """The host's own list is never written, so that a run that is cut off leaves it in force."""
    text = rpm.with_locks(LOCKS, {"kernel-headers": "5.14.0-570.1", "nvidia-smi": "3:1-1"})
    during: list[tuple[str | None, str | None]] = []

    def run(argv: list[str], *_: object) -> Result:
        (folder,) = (word.rpartition(",")[2] for word in argv if "pluginconfpath" in word)
        (named,) = on.list(folder)
        settings = on.read(f"{folder}/{named}") or ""
        during.append((on.read(settings.rpartition(" = ")[2].strip()), on.read(rpm.LOCK_LIST)))
        if raises:
            raise OSError("cut off")
        return Result(0, "", "")

    on = Host(str(tmp_path), run)
    put(on, rpm.LOCK_LIST, text)
    with (
        pytest.raises(OSError, match="cut off") if raises else nullcontext(),
        dnf.lifted(on, ["kernel-devel", "kernel-headers"]) as options,
    ):
        on.run(["dnf", *options, "install", "kernel-headers"])
    # The user's own lock on one of the names stays in force, as do ours on other packages.
    assert during == [(rpm.with_locks(LOCKS, {"nvidia-smi": "3:1-1"}), text)]
    assert on.read(rpm.LOCK_LIST) == text
    assert on.list(dnf.WORK) == []


def test_a_list_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    on = host(tmp_path)
    put(on, rpm.LOCK_LIST, rpm.with_locks(LOCKS, {"nvidia-smi": "3:1-1"}))
    put(on, dnf.WORK, "a file where the folder should be")
    with pytest.raises(NotADirectoryError) as told, dnf.lifted(on, ["nvidia-smi"]):
        pass
    assert told.value.__context__ is None, "something else is told in its place"


def test_where_no_lock_is_ours_none_is_lifted(tmp_path: Path) -> None:
    on = host(tmp_path)
    put(on, rpm.LOCK_LIST, LOCKS)
    with dnf.lifted(on, ["kernel-devel"]) as options:
        assert options == []
        assert not on.exists(dnf.WORK)
    assert on.read(rpm.LOCK_LIST) == LOCKS


def test_a_package_file_is_asked_for_by_its_path(tmp_path: Path) -> None:
    on = host(
        tmp_path,
        {
            "--package /f.rpm": Result(0, "a\t0:2-1\tx86_64\n", "warning: /f.rpm: NOKEY"),
            "--package /gone.rpm": Result(1, "", "error: open of /gone.rpm failed"),
            "rpm --query": Result(0, "a\t0:1-1\tx86_64\n", ""),
            "--assumeno": Result(1, "Operation aborted.\n", ""),
        },
    )
    wish = dnf.of_files(on, ["/f.rpm"])
    assert wish == Wish({"a": "0:2-1"}, files={"a": "/f.rpm"})
    with pytest.raises(TransactionError):  # these answers never change
        dnf.carry_out(on, wish, "/tmp")
    assert on.read("/tmp/transaction") == "install /f.rpm\nrun\n"
    with pytest.raises(TransactionError) as caught:
        dnf.of_files(on, ["/gone.rpm"])
    assert caught.value.parts[:2] == (
        "a package file cannot be read",
        "/gone.rpm: error: open of /gone.rpm failed",
    )


def test_a_transaction_that_dnf_cannot_solve_says_why(tmp_path: Path) -> None:
    on = planned(tmp_path, "Error: \n Problem: a conflicts with b\n")
    with pytest.raises(TransactionError) as caught:
        dnf.carry_out(on, Wish({"kmod-nvidia-latest-dkms": "3:1-1"}), "/tmp")
    assert caught.value.parts[:2] == (
        "packages could not be installed",
        "Error: Problem: a conflicts with b",
    )


def test_what_was_cut_off_is_finished(tmp_path: Path) -> None:
    asked: list[str] = []
    twice = Result(0, "a\t3:1-1\tx86_64\na\t3:2-1\tx86_64\nb\t0:1-1\tx86_64\n", "")
    files = Result(1, "/usr/lib64/libcuda.so.1\npackage b is not installed\n", "")

    def run(argv: list[str], _timeout: float, _environment: object = None) -> Result:
        if "--list" in argv:
            return files
        asked.append(" ".join(argv))
        return twice if "--query" in argv else Result(0, "", "")

    on = Host(str(tmp_path), run)
    assert not dnf.repair(on)
    assert asked == []
    put(on, rpm.JOURNAL, '{"a": "3:2-1", "b": "0:2-1", "c": "1-1"}')
    for name in ("libcuda.so.1", "libcuda.so.595;6b0304f4", "somebody;s"):
        put(on, f"/usr/lib64/{name}", "")
    assert dnf.repair(on)
    assert on.list("/usr/lib64") == ["libcuda.so.1", "somebody;s"]
    assert asked[-2:] == [
        "rpm --erase --nodeps --noscripts a-3:1-1",
        "dnf " + " ".join(dnf.OPTIONS) + " --disableplugin=versionlock reinstall a-3:2-1 b-0:1-1",
    ]
    assert not on.exists(rpm.JOURNAL)


def test_a_torn_journal_is_one_too(tmp_path: Path) -> None:
    on = host(tmp_path)
    put(on, rpm.JOURNAL, "{")
    assert rpm.journal(on) == {}
    assert dnf.repair(on)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes, bytes]:
    """A key that GnuPG made: fingerprint, armoured and binary file."""
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)
    gpg = ["gpg", "--batch", "--quiet", "--homedir", str(home)]

    def ask(*arguments: str) -> bytes:
        return subprocess.run([*gpg, *arguments], capture_output=True, check=True).stdout

    ask("--passphrase", "", "--quick-generate-key", "somebody", "rsa2048", "sign", "never")
    rows = [line.split(":") for line in ask("--with-colons", "--list-keys").decode().splitlines()]
    found = (
        next(row[9] for row in rows if row[0] == "fpr"),
        ask("--armor", "--export"),
        ask("--export"),
    )
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)
    return found


def test_a_keys_fingerprint_is_gnupgs(key: tuple[str, bytes, bytes]) -> None:
    fingerprint, armoured, binary = key
    assert openpgp.fingerprints(armoured) == [fingerprint]
    assert openpgp.fingerprints(binary) == [fingerprint]
    assert openpgp.binary(armoured) == binary
    assert openpgp.armoured(binary).split() == armoured.decode().split()


@pytest.mark.parametrize("content", [b"", b"<html>", b"-----BEGIN PGP MESSAGE-----\n", b"\xc6\xff"])
def test_what_holds_no_key_is_refused(content: bytes) -> None:
    with pytest.raises(openpgp.KeyFileError):
        openpgp.fingerprints(content)


REPOSITORY = repositories.Repository(
    "nvidia", "NVIDIA", "https://vendor.example/ubuntu2404/", "0" * 40, "Vendor"
)


def test_a_repositorys_files() -> None:
    header = "# Managed by Bedplate: changes here are lost.\n"
    assert repositories.apt_files(REPOSITORY) == {
        "/etc/apt/sources.list.d/bedplate-nvidia.sources": header
        + "Types: deb\nURIs: https://vendor.example/ubuntu2404/\nSuites: /\n"
        "Signed-By: /etc/apt/keyrings/bedplate-nvidia.asc\n",
        "/etc/apt/preferences.d/bedplate-nvidia": header
        + "Package: *\nPin: release o=Vendor\nPin-Priority: 1\n",
    }
    assert repositories.rpm_files(REPOSITORY) == {
        "/etc/yum.repos.d/bedplate-nvidia.repo": header
        + "[bedplate-nvidia]\nname=NVIDIA\nbaseurl=https://vendor.example/ubuntu2404/\nenabled=1\n"
        "gpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-bedplate-nvidia\n"
    }


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("cuda.list", "deb [signed-by=/k.gpg] https://vendor.example/ubuntu2404 /\n", True),
        ("cuda.list", "# deb https://vendor.example/ubuntu2404 /\n", False),
        ("cuda.sources", "Types: deb\nURIs: https://vendor.example/ubuntu2404/\nSuites: /\n", True),
        ("cuda.sources", "Enabled: no\nURIs: https://vendor.example/ubuntu2404/\n", False),
        ("cuda.sources.save", "URIs: https://vendor.example/ubuntu2404/\n", False),
        ("bedplate-nvidia.sources", "URIs: https://vendor.example/ubuntu2404/\n", False),
    ],
)
def test_the_users_own_entry_is_found(tmp_path: Path, name: str, text: str, found: bool) -> None:
    on = host(tmp_path)
    put(on, f"/etc/apt/sources.list.d/{name}", text)
    theirs = f"/etc/apt/sources.list.d/{name}" if found else None
    assert repositories.offered_by(on, REPOSITORY) == theirs


def test_the_stream_of_a_module_is_read(tmp_path: Path) -> None:
    on = host(tmp_path)
    path = "/etc/dnf/modules.d/nvidia-driver.module"
    assert repositories.stream(on, "nvidia-driver") is None
    put(
        on, path, "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n"
    )
    assert repositories.stream(on, "nvidia-driver") == "580-open"
    put(on, path, "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nstate=disabled\n")
    assert repositories.stream(on, "nvidia-driver") is None
    put(on, path, "torn")
    assert repositories.stream(on, "nvidia-driver") is None


@pytest.mark.parametrize(
    ("system", "said", "found"),
    [
        (
            "ID=debian\n",
            "installed\t\ninstalled\tbedplate-standin\nconfig-files\tother\n",
            ["bedplate-standin"],
        ),
        ("ID=debian\n", "installed\t\n", []),
        (
            "ID=rocky\n",
            "\tbedplate-standin\npackage b is not installed\n\t(none)\n",
            ["bedplate-standin"],
        ),
        ("ID=rocky\n", "\tNVIDIA\n", ["NVIDIA"]),
    ],
)
def test_packages_say_who_made_them(
    tmp_path: Path, system: str, said: str, found: list[str]
) -> None:
    on = host(tmp_path, {"--showformat": Result(1, said, ""), "--queryformat": Result(1, said, "")})
    put(on, "/etc/os-release", system)
    assert package_origin.origins(on, ["a", "b"]) == found
    assert package_origin.stand_in(on, ["a", "b"]) == ("bedplate-standin" in found)
    assert package_origin.origins(on, []) == []


def test_rpm_answers_the_driver_role_in_its_words(tmp_path: Path) -> None:
    out = "a\t3:1-1\tx86_64\nb\t0:2-1\tx86_64\ntwice\t0:1-1\tx86_64\ntwice\t0:2-1\tx86_64\n"
    owned = {
        "%{NAME}\n --file /usr/bin/smi": Result(0, "a\n", ""),
        "%{NAME}\n --file /x": Result(1, "no owner\n", ""),
    }
    on = host(tmp_path, {"rpm --query": Result(0, out, ""), **owned})
    put(on, rpm.LOCK_LIST, "a-3:1-1.*\n")
    have = rpm_manager.installed(on, ["a", "b", "twice"])
    assert {name: tuple(package) for name, package in have.items()} == {
        "a": ("3:1-1", True),
        "b": ("2-1", False),
    }
    assert rpm_manager.there(on, ["a", "b", "twice"]) == ["a", "b", "twice"]
    assert rpm_manager.owners(on, ["/usr/bin/smi", "/x"]) == {"/usr/bin/smi": "a"}
    assert not rpm_manager.interrupted(on)
    put(on, rpm.JOURNAL, "{}")
    assert rpm_manager.interrupted(on)


#: Of the community's repository on Rocky Linux 9, and what depends on it.
FOREIGN = """\
xorg-x11-drv-nvidia\txorg-x11-drv-nvidia-550.1-1.el9.src.rpm
xorg-x11-drv-nvidia-cuda-libs\txorg-x11-drv-nvidia-550.1-1.el9.src.rpm
akmod-nvidia\tnvidia-kmod-550.1-1.el9.src.rpm
kmod-nvidia-5.14.0-503.el9.x86_64\tnvidia-kmod-550.1-1.el9.src.rpm
nvidia-container-toolkit\tnvidia-container-toolkit-1.17-1.src.rpm
gpg-pubkey\t(none)
"""
DEPENDANTS = """\
Dependencies resolved.
Removing:
 akmod-nvidia                   x86_64  3:550.1-1.el9  @rpmfusion  0
Removing dependent packages:
 nvidia-settings                x86_64  3:550.1-1.el9  @rpmfusion  0
 somebodys-tool                 x86_64  1-1            @System     0

Operation aborted.
"""


def test_a_foreign_driver_goes_with_all_that_it_is_made_of(tmp_path: Path) -> None:
    on = host(
        tmp_path,
        {"rpm --query --all": Result(0, FOREIGN, ""), "--assumeno": Result(1, DEPENDANTS, "")},
    )
    put(on, "/etc/os-release", "ID=rocky\nID_LIKE=rhel\n")
    assert driver.siblings(on, ["xorg-x11-drv-nvidia-cuda-libs"]) == [
        "akmod-nvidia",
        "kmod-nvidia-5.14.0-503.el9.x86_64",
        "nvidia-settings",
        "xorg-x11-drv-nvidia",
        "xorg-x11-drv-nvidia-cuda-libs",
    ]
    assert driver.siblings(on, []) == []


def test_the_plugin_that_holds_packages_is_brought_once(tmp_path: Path) -> None:
    refused = Result(1, "", "No match for argument")
    with pytest.raises(TransactionError, match="versionlock plugin cannot be installed"):
        dnf.have_versionlock(host(tmp_path, {dnf.VERSIONLOCK_PACKAGE: refused}))
    on = host(tmp_path, {dnf.VERSIONLOCK_PACKAGE: refused})
    put(on, rpm.VERSIONLOCK, "[main]\n")
    dnf.have_versionlock(on)
