"""What a restore refuses before it touches a host, and what a run that was cut off leaves."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import backup, certificates, refusal
from bedplate.portable.host import Host, Result
from bedplate.provider import on_host

if TYPE_CHECKING:
    from collections.abc import Sequence

SOCKET = "unix:///run/containerd/containerd.sock"
SAID = {
    "format": backup.FORMAT,
    "made": "2026-11-30T10:15:02Z",
    "kubernetes": "1.36.3",
    "members": {"cp1": "https://192.0.2.11:2380"},
    "endpoint": "192.0.2.40:6443",
    "data_folder": "/var/lib/etcd",
    "revision": 5310,
    "keys": 1241,
}


class Machine:
    """A host below a folder whose programs answer from a table, and are noted."""

    def __init__(self, root: Path, **failing: str) -> None:
        self.root, self.failing = root, failing
        self.calls: list[list[str]] = []
        self.host = Host(str(root), self.run)

    def run(self, argv: Sequence[str], _timeout: float, _environment: object) -> Result:
        program = argv[0].rpartition("/")[2]
        self.calls.append([program, *argv[1:]])
        if program in self.failing and self.failing[program] in argv:
            return Result(1, "", "error: it failed")
        if program == "etcdutl":
            (folder,) = (one.partition("=")[2] for one in argv if one.startswith("--data-dir"))
            Path(folder).mkdir(parents=True)
        said = {"kubeadm": "v1.36.3\n", "ip": "2: eth0 inet 192.0.2.11/24 scope global\n"}
        return Result(0, "ok" if "/readyz" in argv else said.get(program, ""), "")

    @property
    def changed(self) -> list[str]:
        """What there is on the host."""
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())


def packed(folder: Path, **other: Any) -> str:
    """Write a decrypted backup."""
    content = folder / "content"
    for name in backup.AUTHORITIES:
        path = content / "pki" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for name in ("etcd.db", "etcdutl", "kubeadm.yaml"):
        (content / name).write_text(f"{name}\n")
    (content / "backup.json").write_text(json.dumps(SAID | other))
    with tarfile.open(folder / "backup.tar.gz", "w:gz") as tar:
        for path in sorted(content.iterdir()):
            tar.add(path, path.name)
    return str(folder / "backup.tar.gz")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "root")


def wanted(archive: str, name: str = "cp1", endpoint: str = "192.0.2.40:6443") -> backup.Wanted:
    return backup.Wanted(archive, name, endpoint, SOCKET, ["SystemVerification"])


def refused(machine: Machine, archive: str, *where: str) -> str:
    """Try to restore, and return the reason; the host is as it was."""
    before = machine.changed
    with pytest.raises(refusal.ImpossibleError) as error:
        backup.restore(machine.host, wanted(archive, *where))
    assert machine.changed == sorted({*before, backup.LOCK.lstrip("/")})
    assert {call[0] for call in machine.calls} <= {"kubeadm", "ip"}
    assert ["kubeadm", "init"] not in [call[:2] for call in machine.calls]
    return f"got {error.value.got} / allowed {error.value.allowed}"


def test_another_version_of_kubernetes_is_refused(machine: Machine, tmp_path: Path) -> None:
    said = refused(machine, packed(tmp_path, kubernetes="1.35.6"))
    assert "kubeadm 1.36.3 on the host, and a backup of Kubernetes 1.35.6" in said


def test_a_host_that_had_no_etcd_is_refused(machine: Machine, tmp_path: Path) -> None:
    assert "w1, which had no etcd when the backup was made / allowed one of cp1" in refused(
        machine, packed(tmp_path), "w1"
    )


def test_another_clusters_backup_is_refused(machine: Machine, tmp_path: Path) -> None:
    """Each site has a cp1."""
    said = refused(machine, packed(tmp_path), "cp1", "192.0.2.90:6443")
    assert "a backup of the cluster at 192.0.2.40:6443" in said


def test_a_host_with_another_address_is_refused(machine: Machine, tmp_path: Path) -> None:
    archive = packed(tmp_path, members={"cp1": "https://192.0.2.1:2380"})
    assert "a host without the address 192.0.2.1, which cp1 had" in refused(machine, archive)


def test_one_run_at_a_time(machine: Machine, tmp_path: Path) -> None:
    """The provider holds the same while it changes a membership."""
    archive = packed(tmp_path)
    with on_host.locked(on_host.Host(machine.root, 1.0)):
        assert "another run that holds" in refused(machine, archive)
    assert not machine.calls


def test_another_format_is_refused(machine: Machine, tmp_path: Path) -> None:
    assert "a backup of format 2" in refused(machine, packed(tmp_path, format=2))


def test_what_is_no_backup_is_refused(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("no archive")
    assert "got no backup: " in refused(machine, str(path))


@pytest.mark.parametrize(
    "path",
    ["etc/kubernetes/admin.conf", "etc/kubernetes/pki/ca.crt", "var/lib/etcd/member/snap/db"],
)
def test_a_member_of_a_cluster_is_refused(machine: Machine, tmp_path: Path, path: str) -> None:
    target = machine.root / path
    target.parent.mkdir(parents=True)
    target.write_text("of a cluster")
    said = refused(machine, packed(tmp_path))
    assert "/" + path.removesuffix("/snap/db") in said
    assert target.read_text() == "of a cluster"


def test_what_else_lies_in_etcds_folder_is_refused(machine: Machine, tmp_path: Path) -> None:
    """Data that were moved aside may be newer than any backup."""
    target = machine.root / "var/lib/etcd/member.old/snap/db"
    target.parent.mkdir(parents=True)
    target.write_text("newer")
    assert "/var/lib/etcd/member.old" in refused(machine, packed(tmp_path))
    assert target.read_text() == "newer"


def test_a_run_that_was_cut_off_is_begun_anew_and_no_other_cluster_comes_between(
    tmp_path: Path,
) -> None:
    """kubeadm's `init` would make an empty cluster where the restored one was to be."""
    archive, root = packed(tmp_path), tmp_path / "root"
    with pytest.raises(refusal.ImpossibleError, match="kubeadm init"):
        backup.restore(Machine(root, kubeadm="init").host, wanted(archive))
    asked = {"name": "cp1", "endpoint": SAID["endpoint"], "etcd_data_dir": "/var/lib/etcd"}
    with pytest.raises(on_host.RefusalError, match=r"bedplate\.gpu\.restore again"):
        on_host.init(on_host.Host(root, 1.0), asked)
    # The keys that were unpacked do not stay, whatever happens.
    assert not (root / backup.FOLDER.lstrip("/")).exists()

    machine = Machine(root)
    (root / "var/lib/etcd/member").mkdir()
    said = backup.restore(machine.host, wanted(archive))
    done = [" ".join(call[:2]) for call in machine.calls]
    assert done == [
        "kubeadm version",
        "ip -oneline",
        "kubeadm reset",
        "etcdutl snapshot",
        "systemctl enable",
        "kubeadm init",
    ]
    assert not (root / "var/lib/etcd/member").exists(), "etcdutl makes a folder that is not there"
    (checks,) = (one for one in machine.calls[-1] if "preflight" in one)
    assert checks.endswith("=SystemVerification,DirAvailable--var-lib-etcd")
    assert json.loads((root / on_host.MARK).read_text())["action"] == "restore"
    backup.finish(machine.host, "cp1", said, ["cp2", "cp3"])
    assert machine.calls[-1][2] == "--server=https://192.0.2.11:6443"
    assert machine.calls[-1][3:] == ["delete", "node", "--ignore-not-found", "cp2", "cp3"]
    mark = json.loads((root / on_host.MARK).read_text())
    assert mark == {"name": "cp1", "action": "init", "endpoint": SAID["endpoint"], "phase": "done"}
    keys = root / "etc/kubernetes/pki/ca.key"
    assert keys.stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_answers_is_completed_and_not_made_again(tmp_path: Path) -> None:
    """A run that gave up waiting left its note, and people have worked on since."""
    archive, root = packed(tmp_path), tmp_path / "root"
    manifest = root / certificates.API_SERVER.lstrip("/")
    manifest.parent.mkdir(parents=True)
    manifest.write_text("kube-apiserver.advertise-address.endpoint: 192.0.2.11:6443\n")
    (root / on_host.MARK).parent.mkdir(parents=True)
    (root / on_host.MARK).write_text('{"action": "restore", "phase": "begun"}')
    machine = Machine(root)
    backup.restore(machine.host, wanted(archive))
    assert "reset" not in {call[1] for call in machine.calls}
    assert "init" not in {call[1] for call in machine.calls}


def test_provider_and_restore_have_one_note_of_the_membership() -> None:
    assert f"/{on_host.MARK}" == backup.MARK
    assert f"/{on_host.LOCK}" == backup.LOCK
