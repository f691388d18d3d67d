"""A backup of the cluster: goes on from test_site.py. Its restore: tests/mixes/test_restore.py."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.lock import load_lock
from bedplate.portable import encryption_keys
from tests.site.cluster import unwrapped
from tests.site.hosts import on_host
from tests.substrate.tools.build import path, tools

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

PLAY = "playbooks/backup.yml"
WORD = "planted-7c41e9"
#: What the head of the packed archive has in the clear.
PACKED = b"all.tar\x00"
LEFT = "find /var/lib/bedplate -name '*.db' -o -name 'ca.key' -o -name '*.tar.gz'"


def openssl(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["openssl", *arguments], check=check, capture_output=True)


def keys(folder: Path, name: str) -> tuple[str, str]:
    """Return a new key and its certificate."""
    key, certificate = str(folder / f"{name}.key"), str(folder / f"{name}.pem")
    subject = ["-subj", f"/CN={name}", "-keyout", key, "-out", certificate]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject)
    return key, certificate


def test_a_backup_opens_with_its_key_alone_and_can_be_restored(
    site: SiteCommands, tmp_path: Path
) -> None:
    key, certificate = keys(tmp_path, "backup")
    for given, why in ((), "got nothing"), (("-e", f"backup_certificate={key}"), "a private key"):
        done = site.playbook(PLAY, *given, check=False)
        told = unwrapped(done.stdout)
        assert "no certificate to encrypt the backup for" in told
        assert why in told
    site.kubectl("create", "secret", "generic", "planted", f"--from-literal=word={WORD}")
    other, others = keys(tmp_path, "other")
    folder = tmp_path / "backups"
    folder.mkdir()
    endpoint = load_lock(site.site).cluster.kubernetes.endpoint.replace(":", "-")
    for number in range(2):
        (folder / f"{endpoint}_2026-01-0{number + 1}T000000Z.cms").write_text("of before")
    (folder / "other-6443_2026-01-01T000000Z.cms").write_text("of another cluster")
    here = ["-e", f"backup_certificate={certificate}", "-e", f"backup_folder={folder}"]
    done = site.playbook(PLAY, *here, "-e", "backup_keep=2")
    first, saved, others_own = sorted(folder.iterdir())
    assert first.name == f"{endpoint}_2026-01-02T000000Z.cms"
    assert others_own.name.startswith("other-6443_")
    assert str(saved) in unwrapped(done.stdout).replace(" ", "")

    content = saved.read_bytes()
    assert PACKED not in content, "what is packed is not encrypted"
    assert on_host(site, "cp1", LEFT) == ""
    opened = str(tmp_path / "opened")
    decrypt = ["cms", "-decrypt", "-binary", "-inform", "DER", "-in", str(saved), "-out", opened]
    wrong = openssl(*decrypt, "-inkey", other, "-recip", others, check=False)
    assert wrong.returncode != 0
    openssl(*decrypt, "-inkey", key)
    assert PACKED in Path(opened).read_bytes()
    with tarfile.open(opened) as tar:
        tar.extractall(tmp_path / "content", filter="data")
    said = json.loads((tmp_path / "content/backup.json").read_text())
    assert "cp1" in said["members"]
    assert (tmp_path / "content/pki/ca.key").read_text().startswith("-----BEGIN")
    # By another program than the one that the backup brings.
    program = str(path(tools()["etcd-tools"]) / "bin/etcdutl")
    snapshot = str(tmp_path / "content/etcd.db")
    status = subprocess.run(
        [program, "snapshot", "status", snapshot, "-w=json"], check=True, capture_output=True
    )
    assert json.loads(status.stdout)["revision"] == said["revision"]
    data = tmp_path / "restored"
    subprocess.run(
        [program, "snapshot", "restore", snapshot, f"--data-dir={data}"],
        check=True,
        capture_output=True,
    )
    # What etcd has is encrypted, and the backup has the key.
    found = (data / "member/snap/db").read_bytes()
    (known,) = encryption_keys.read((tmp_path / "content/pki" / encryption_keys.NAME).read_text())
    assert b"/registry/secrets/default/planted" in found
    assert f"{encryption_keys.MARK}{known.name}:".encode() in found
    assert WORD.encode() not in found
