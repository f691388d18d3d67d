"""Secure Boot, the kernel's pin and the evidence of both, on a host that is only a folder."""

from __future__ import annotations

import stat
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.portable.evidence import baseline
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.evidence.baseline import collect
from bedplate.portable.evidence.checks import failures
from bedplate.portable.host import KUBELET_CONFIG, Host, Result, run_command
from bedplate.portable.kernel import pin as kernel_pin
from bedplate.portable.kernel import secure_boot
from bedplate.portable.kernel import settings as kernel
from bedplate.portable.slurm import config as slurm_config

EFI = "/sys/firmware/efi"
SECURE_BOOT = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
OWNER = bytes(16)
RUNNING = kernel_pin.running()
SLURM_NODE = "/etc/systemd/system/slurmd.service.d/50-bedplate.conf"
NONE = Result(127, "", "no such program")


def host(root: Path, answers: dict[str, Result] | None = None) -> Host:
    """A host with canned commands, by their first word."""

    def run(argv: list[str], _timeout: float, _environment: object = None) -> Result:
        return (answers or {}).get(argv[0], NONE)

    return Host(str(root), run)


def put(on: Host, name: str, content: bytes | str = b"") -> None:
    """Write a file of the host."""
    path = Path(on.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def enforce(on: Host) -> None:
    """Boot the host under Secure Boot."""
    put(on, SECURE_BOOT, b"\x06\0\0\0\x01")


def signature_list(kind: bytes, *signatures: bytes) -> bytes:
    """An EFI signature list; all signatures of one are of one size."""
    body = b"".join(OWNER + signature for signature in signatures)
    size = 28 + len(body)
    return struct.pack("<16sIII", kind, size, 0, 16 + len(signatures[0])) + body


def test_secure_boot_is_on_off_or_cannot_be_told(tmp_path: Path) -> None:
    on = host(tmp_path)
    assert secure_boot.state(on) == "off"
    Path(on.path(EFI)).mkdir(parents=True)
    assert secure_boot.state(on) == "no such program"
    enforce(on)
    assert secure_boot.state(on) == "on"
    put(on, SECURE_BOOT, b"\x06\0\0\0\0")
    assert secure_boot.state(on) == "off"


def test_certificates_of_signature_lists() -> None:
    hashes = bytes.fromhex("2616c4c14c509240aca941f936934328")
    lists = signature_list(hashes, b"h" * 32) + signature_list(secure_boot.X509, b"one", b"two")
    assert secure_boot.certificates(lists) == [b"one", b"two"]
    assert secure_boot.certificates(lists[:-1]) == []
    assert secure_boot.certificates(b"torn") == []


def test_dkms_signs_with_the_users_pair_or_one_that_is_there(tmp_path: Path) -> None:
    on = host(tmp_path)
    ours = secure_boot.pair(on)
    assert ours == secure_boot.Pair("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
    for name in secure_boot.PAIRS[0]:
        put(on, name)
    assert secure_boot.pair(on) == secure_boot.Pair(*secure_boot.PAIRS[0])
    put(on, secure_boot.DROP_IN, secure_boot.drop_in(ours))
    assert secure_boot.pair(on) == secure_boot.Pair(*secure_boot.PAIRS[0])
    put(on, secure_boot.CONFIGURATION, '# mok_signing_key="/no"\nmok_signing_key=/k # mine\n')
    assert not secure_boot.pair(on).foreign
    put(on, secure_boot.DROP_INS + "/site.conf", "mok_certificate='/c'\n")
    assert secure_boot.pair(on) == secure_boot.Pair("/k", "/c", True)


def test_a_pair_that_appears_later_is_not_signed_with(tmp_path: Path) -> None:
    """Ours was enrolled at the console; shim's, which a package makes, was not."""
    on = host(tmp_path)
    ours = secure_boot.pair(on)
    for name in (*secure_boot.PAIRS[0], *secure_boot.PAIRS[1]):
        put(on, name)
    put(on, secure_boot.DROP_IN, secure_boot.drop_in(ours))
    assert secure_boot.pair(on) == ours


def test_a_pair_that_a_drop_in_of_ours_outdoes_is_not_called_enrolled(tmp_path: Path) -> None:
    on = host(tmp_path, {"mokutil": Result(0, "c is already enrolled", "")})
    put(on, kernel_pin.CONTAINER)
    enforce(on)
    ours = secure_boot.pair(on)
    put(on, secure_boot.CONFIGURATION, "mok_signing_key=/k\nmok_certificate=/c\n")
    for name in ("/k", "/c"):
        put(on, name)
    put(on, secure_boot.DROP_IN, secure_boot.drop_in(ours))
    assert evidence(on, secure_boot=True, headers=True)[1] == folded(
        """
        the key that signs DKMS's modules is enrolled — gpu-1 [baseline.signing_key] — got
        /etc/dkms/framework.conf.d/bedplate.conf has DKMS sign with another pair than your own /
        allowed /k — Run bedplate.gpu.site for this host again.
        """
    )
    Path(on.path(secure_boot.DROP_IN)).unlink()
    assert evidence(on, secure_boot=True, headers=True)[1] == []


def test_a_pair_is_made_for_root_only(tmp_path: Path) -> None:
    on = Host(str(tmp_path), run_command)
    pair = secure_boot.pair(on)
    put(on, pair.key, "half of an earlier pair")
    assert not pair.present(on)
    assert secure_boot.make(on, pair, "gpu-1") is None
    assert pair.present(on)
    key = Path(on.path(pair.key))
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(path.name for path in key.parent.iterdir()) == ["mok.key", "mok.pub"]
    argv = ["openssl", "x509", "-inform", "DER", "-in", on.path(pair.certificate)]
    assert "CN = Module signing key of gpu-1" in on.run([*argv, "-noout", "-subject"]).out
    public = on.run([*argv, "-noout", "-pubkey"]).out
    assert public == on.run(["openssl", "pkey", "-in", str(key), "-pubout"]).out


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        (f"{'n' * 42}x.example.org", f"Module signing key of {'n' * 42}"),
        ("rack/1+CN=gpu 1", "Module signing key of rack_1_CN_gpu_1"),
    ],
    ids=["long", "signs of openssl's"],
)
def test_any_name_of_a_host_makes_a_pair(tmp_path: Path, name: str, subject: str) -> None:
    on = Host(str(tmp_path), run_command)
    pair = secure_boot.pair(on)
    assert secure_boot.make(on, pair, name) is None
    argv = ["openssl", "x509", "-inform", "DER", "-in", on.path(pair.certificate)]
    told = on.run([*argv, "-noout", "-subject"]).out
    assert told.rpartition("CN = ")[2].strip() == subject


def test_a_pair_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    on = host(tmp_path, {"openssl": Result(1, "", "no entropy")})
    assert secure_boot.make(on, secure_boot.pair(on), "gpu-1") == "no entropy"
    assert list(Path(on.path("/var/lib/dkms")).iterdir()) == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("c is already enrolled", True),
        ("c is not enrolled", False),
        ("c is already in the enrollment request", False),
        ("EFI variables are not supported on this system", None),
    ],
)
def test_mokutil_says_whether_a_key_is_enrolled(
    tmp_path: Path, said: str, told: bool | None
) -> None:
    assert secure_boot.enrolled(host(tmp_path, {"mokutil": Result(0, said, "")}), "/c") is told


def test_the_firmware_says_so_without_mokutil(tmp_path: Path) -> None:
    on = host(tmp_path)
    put(on, "/c", b"certificate")
    assert secure_boot.enrolled(on, "/c") is None
    keys = signature_list(secure_boot.X509, b"certificate")
    put(on, secure_boot.OWNER_KEYS[1][0], b"\x06\0\0\0" + keys)
    assert secure_boot.enrolled(on, "/c") is True
    put(on, secure_boot.OWNER_KEYS[0][0], signature_list(secure_boot.X509, b"another one"))
    assert secure_boot.enrolled(on, "/c") is False


def evidence(on: Host, **wished: Any) -> tuple[dict[str, str], list[str]]:
    """The results of the baseline's checks by name, and the messages of those that failed."""
    to = Collected([], {}, {})
    collect(on, Wishes(baseline=wished), to)
    return {one["id"]: one["result"] for one in to.checks}, failures(to.checks, "gpu-1")


def folded(text: str) -> list[str]:
    """Messages as written here: folded lines, an empty line between two messages."""
    running = text.replace("RUNNING", RUNNING)
    return [" ".join(message.split()) for message in running.strip().split("\n\n")]


def test_a_container_shares_kernel_and_clock(tmp_path: Path) -> None:
    on = host(tmp_path)
    put(on, kernel_pin.CONTAINER, "podman\n")
    results, messages = evidence(on, headers=True)
    assert messages == []
    assert results == {
        "baseline.settings": "pass",
        "baseline.later_files": "pass",
        "baseline.initramfs": "pass",
        "baseline.kernel": "skipped",
        "baseline.kernel_held": "skipped",
        "baseline.headers": "skipped",
        "baseline.secure_boot": "pass",
        "baseline.signing_key": "skipped",
        "baseline.clock": "skipped",
    }


def test_a_machine_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    """Each check fails with its own reason and way out."""
    on = host(
        tmp_path,
        {
            "dpkg-query": Result(0, "linux-image-6.1.0-1-amd64\t6.1\tinstall\tinstalled\n", ""),
            "timedatectl": Result(0, "no\n", ""),
        },
    )
    put(on, "/etc/os-release", "ID=debian\n")
    put(on, "/var/lib/bedplate/initramfs-is-stale")
    enforce(on)
    packages = ["linux-image-6.1.0-1-amd64", "linux-headers-6.1.0-1-amd64"]
    results, messages = evidence(
        on,
        settings={"sysctls": {"fs.a": "2"}},
        kernel="6.1.0-1-amd64",
        kernel_packages=packages,
        headers=True,
        secure_boot=False,
    )
    assert results.pop("baseline.later_files") == "pass"
    assert set(results.values()) == {"fail"}
    assert messages == folded(
        """
        kernel settings as role host_baseline keeps them, without differences — gpu-1
        [baseline.settings] — got /etc/sysctl.d/99-zz-bedplate-host.conf differs, fs.a is unknown
        instead of 2 / allowed nothing — Run bedplate.gpu.site for this host again, and reboot it if
        a blacklisted module is loaded.

        the initramfs carries the blacklist and the module options — gpu-1 [baseline.initramfs]
        — got of old (a run was cut off before it refreshed it) / allowed refreshed — Run
        bedplate.gpu.site for this host again.

        the running kernel is the site's — gpu-1 [baseline.kernel] — got RUNNING / allowed
        6.1.0-1-amd64 — Reboot the host into that kernel; where a newer one is installed, make
        it the boot loader's default first (grub-set-default, or grubby --set-default).

        kernel packages held against upgrades, without differences — gpu-1
        [baseline.kernel_held] — got linux-headers-6.1.0-1-amd64 is missing,
        linux-image-6.1.0-1-amd64 is not held / allowed nothing — Run bedplate.gpu.site for this
        host again.

        headers of the running kernel, to build modules with — gpu-1 [baseline.headers] — got
        no /lib/modules/RUNNING/build / allowed /lib/modules/RUNNING/build — Install
        linux-headers-RUNNING, or name in bedplate_host.kernel the kernel that the host is to
        run.

        Secure Boot as declared — gpu-1 [baseline.secure_boot] — got on / allowed off — Correct
        bedplate_host.secure_boot of the host's pool and run 'bedplate plan' again, or change it
        in the host's firmware.

        the key that signs DKMS's modules is enrolled — gpu-1 [baseline.signing_key] — got
        there is no /var/lib/dkms/mok.key with /var/lib/dkms/mok.pub / allowed enrolled — Run
        bedplate.gpu.site for this host again.

        the clock is synchronised — gpu-1 [baseline.clock] — got no / allowed yes — Run chrony,
        ntpd or systemd-timesyncd on the host, with servers that it can reach.
        """
    )


def test_a_file_that_undoes_a_setting_at_the_next_boot_fails_now(tmp_path: Path) -> None:
    on = host(tmp_path)
    put(on, kernel_pin.CONTAINER)
    put(on, "/proc/sys/fs/a", "2\n")
    wish = kernel.resolve(on, kernel.Settings(sysctls={"fs.a": "2"}))
    for path, text in kernel.files("host", wish).items():
        if text:
            put(on, path, text)
    put(on, "/etc/sysctl.d/zz-cis.conf", "fs.a = 1\n")
    assert evidence(on, settings={"sysctls": {"fs.a": "2"}})[1] == folded(
        """
        no file that is read at boot after those of role host_baseline undoes a kernel parameter —
        gpu-1 [baseline.later_files] — got /etc/sysctl.d/zz-cis.conf: fs.a = 1 / allowed nothing
        — Take these lines out of those files.
        """
    )


def test_a_key_waits_for_its_owner(tmp_path: Path) -> None:
    on = host(tmp_path, {"mokutil": Result(0, "it is not enrolled", "")})
    put(on, kernel_pin.CONTAINER)
    enforce(on)
    for name in secure_boot.PAIRS[1]:
        put(on, name)
    results, messages = evidence(on, secure_boot=True, headers=True)
    assert results["baseline.secure_boot"] == "pass"
    assert messages == folded(
        """
        the key that signs DKMS's modules is enrolled — gpu-1 [baseline.signing_key] — got not
        enrolled / allowed enrolled — Run 'mokutil --import /var/lib/dkms/mok.pub' on the host,
        choose a password, reboot, and confirm 'Enroll MOK' with that password at the host's
        console.
        """
    )


def test_modules_that_come_built_want_no_key_of_the_hosts(tmp_path: Path) -> None:
    """Who built them signed them: a person would enrol a key that signs nothing."""
    on = host(tmp_path, {"mokutil": Result(0, "it is not enrolled", "")})
    put(on, kernel_pin.CONTAINER)
    enforce(on)
    to = Collected([], {}, {})
    collect(on, Wishes(baseline={"secure_boot": True, "headers": False}), to)
    assert failures(to.checks, "gpu-1") == []
    (found,) = (one for one in to.checks if one["id"] == "baseline.signing_key")
    assert (found["result"], found["reason"]) == ("skipped", "no module is built on this host")


def test_a_kernel_that_is_there_and_held_passes(tmp_path: Path) -> None:
    name = f"linux-image-{RUNNING}"
    on = host(
        tmp_path,
        {
            "dpkg-query": Result(0, f"{name}\t1\thold\tinstalled\n", ""),
            "timedatectl": Result(0, "yes\n", ""),
        },
    )
    put(on, "/etc/os-release", "ID=debian\n")
    put(on, f"/lib/modules/{RUNNING}/build/Makefile")
    results, messages = evidence(
        on,
        kernel=RUNNING,
        kernel_packages=[name],
        kernel_followers=["linux-image-amd64"],
        headers=True,
    )
    assert messages == []
    assert results["baseline.kernel"] == results["baseline.headers"] == "pass"
    assert results["baseline.kernel_held"] == results["baseline.clock"] == "pass"


@pytest.mark.parametrize(
    ("sign", "way"),
    [
        (
            KUBELET_CONFIG,
            (
                "Run bedplate.gpu.upgrade with -e upgrade_reboot_allowed=true, which drains"
                " the node first."
            ),
        ),
        (
            SLURM_NODE,
            (
                "Run bedplate.gpu.slurm with -e slurm_change_nodes=true"
                " -e host_baseline_reboot_allowed=true, which lets jobs end first."
            ),
        ),
    ],
    ids=["kubernetes", "slurm"],
)
def test_a_node_is_told_the_only_way_to_another_kernel(tmp_path: Path, sign: str, way: str) -> None:
    """site.yml would bring no kernel, and a reboot would find none; what is there can be held."""
    follower = Result(0, "linux-image-amd64\t6.1\tinstall\tinstalled\n", "")
    on = host(tmp_path, {"timedatectl": Result(0, "yes\n", ""), "dpkg-query": follower})
    put(on, "/etc/os-release", "ID=debian\n")
    put(on, sign)
    _, messages = evidence(
        on,
        kernel="6.1.0-1-amd64",
        kernel_packages=["linux-image-6.1.0-1-amd64"],
        kernel_followers=["linux-image-amd64"],
    )
    assert messages == folded(
        """
        the running kernel is the site's — gpu-1 [baseline.kernel] — got RUNNING / allowed
        6.1.0-1-amd64 — WAY

        kernel packages held against upgrades, without differences — gpu-1
        [baseline.kernel_held] — got linux-image-amd64 is not held / allowed nothing — Run
        bedplate.gpu.site for this host again.
        """.replace("WAY", way)
    )


def test_a_node_of_slurm_is_told_by_the_file_and_in_the_words_of_its_playbook() -> None:
    root = Path(__file__).parents[2]
    names = yaml.safe_load((root / "roles/slurm/vars/main.yml").read_text())
    assert names["__slurm_drop_in"] == slurm_config.DROP_IN == SLURM_NODE
    play = " ".join((root / "playbooks/slurm.yml").read_text().split())
    assert f"__host_baseline_way: >- {baseline.DRAINED_BY_SLURM}" in play
