"""Keys of Secrets: what each step leaves on a control plane, and what of etcd is written again."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import certificates, control_plane_upgrade, encryption
from bedplate.portable import encryption_keys as keys
from bedplate.portable.encryption_keys import FIRST, KNOWN, PLAIN, Key
from bedplate.portable.evidence.area import Collected
from bedplate.portable.evidence.encryption import collect
from bedplate.portable.host import Host, Result
from bedplate.portable.refusal import ImpossibleError
from bedplate.provider import on_host

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OLD, NEW = keys.named(9, keys.fresh()), keys.named(10, keys.fresh())
MANIFEST = """metadata:
  annotations:
    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: 192.0.2.11:6443
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=192.0.2.11
"""


class ControlPlane:
    """A host whose kubelet starts another API server once the manifest is another.

    ``etcd``: what etcd has of each Secret. ``stays``: those that cannot be replaced.
    """

    def __init__(self, root: Path, text: str = "") -> None:
        self.host = Host(str(root), self.run)
        self.etcd: dict[str, bytes] = {}
        self.stays = ""
        self.started, self.starts = 100, 0
        self.calls: list[str] = []
        self.configuration = "apiServer: {}\nkind: ClusterConfiguration\n"
        manifest = MANIFEST.rstrip()
        if text:
            self.host.write(keys.FILE, text)
            os.utime(self.host.path(keys.FILE), (50, 50))
            manifest += f"\n    - --{keys.OPTION}={keys.FILE}"
        self.host.write(certificates.API_SERVER, manifest + "\n")
        os.utime(self.host.path(certificates.API_SERVER), (50, 50))
        self.manifest = self.host.read(certificates.API_SERVER)
        programs = root / "proc/7/root/usr/local/bin"
        programs.mkdir(parents=True)
        (programs / "etcdctl").touch()

    @property
    def keys(self) -> list[str]:
        return [key.name for key in keys.read(self.host.read(keys.FILE) or "")]

    def _containers(self) -> str:
        if self.host.read(certificates.API_SERVER) != self.manifest:
            self._start()
        labels = {"io.kubernetes.pod.namespace": "kube-system"}
        one = {"metadata": {"name": "kube-apiserver"}, "labels": labels}
        at = self.started * 10**9
        etcd = {"metadata": {"name": "etcd"}, "labels": labels, "id": "7", "createdAt": str(at)}
        return json.dumps({"containers": [{**one, "id": str(at), "createdAt": str(at)}, etcd]})

    def _start(self) -> None:
        # Later than any file that is written in this test.
        self.started, self.starts = self.started + 10**10, self.starts + 1
        self.manifest = self.host.read(certificates.API_SERVER)

    def run(self, argv: Sequence[str], _timeout: float, _environment: object) -> Result:
        line = " ".join(argv)
        self.calls.append(line)
        if argv[0] == "crictl":
            if argv[1] == "inspect":
                return Result(0, json.dumps({"info": {"pid": 7}}), "")
            return Result(0, self._containers(), "")
        if "/readyz" in argv:
            return Result(0, "ok", "")
        if argv[0].endswith("etcdctl"):
            return Result(0, self._etcd(argv), "")
        if "secret" in argv:
            return self._patched(argv)
        if "patch" in argv:
            self.configuration = json.loads(argv[-1].partition("=")[2])["data"][
                "ClusterConfiguration"
            ]
        return Result(0, self.configuration, "")

    def _etcd(self, argv: Sequence[str]) -> str:
        if "--keys-only" in argv:
            return "\n\n".join(sorted(self.etcd))
        first, after = argv[-3:-1]
        values = [
            {"key": base64.b64encode(name.encode()).decode()}
            | {"value": base64.b64encode(value).decode()}
            for name, value in sorted(self.etcd.items())
            if first <= name < after
        ]
        return json.dumps({"kvs": values} if values else {})

    def _patched(self, argv: Sequence[str]) -> Result:
        space = argv[2].partition("=")[2]
        for name in argv[argv.index("secret") + 1 : -2]:
            if name == "stays":
                return Result(1, "", "error: admission webhook denied the request")
            self.etcd[f"{encryption.SECRETS}{space}/{name}"] = (
                f"{keys.MARK}{self.keys[0]}:".encode() + bytes(range(256))
            )
        return Result(0, "", "")


def judged(one: ControlPlane) -> dict[str, Any]:
    """Return what the evidence says of a control plane."""
    to = Collected([], {}, {})
    collect(one.host, to)
    (found,) = to.checks
    return dict(found)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "PAUSE", 1e-3)


def test_a_key_comes_after_the_others_by_its_number() -> None:
    known = keys.all_of([keys.written([OLD])] * 3, NEW.secret)
    assert known == [NEW, OLD], "key10 is newer than key9"
    assert len({keys.fresh() for _ in range(9)}) == 9
    assert len(base64.b64decode(keys.fresh())) == 32


DAMAGED = [
    "{}",
    "[]",
    "resources: []",
    keys.written([OLD]).replace("secretbox", "aescbc"),
    keys.written([OLD]).replace('"secrets"\n', '"secrets","configmaps"\n'),
    keys.written([Key("mine", keys.fresh())]),
    keys.written([Key(OLD.name, NEW.secret)]),
    keys.written([OLD, OLD]),
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_file_that_is_not_as_it_was_written_is_left_alone(text: str, tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, text)
    with pytest.raises(ImpossibleError, match="is not as Bedplate writes it"):
        encryption.file(one.host)
    assert "Copy it from another control plane" in judged(one)["fix"]


def test_a_file_that_is_gone_is_named_before_the_api_server_ends(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, keys.written([OLD]))
    one.host.remove(keys.FILE)
    assert judged(one)["reason"] == f"no {keys.FILE}"


def test_a_key_that_the_api_server_no_longer_has_is_not_lost(tmp_path: Path) -> None:
    """Somebody has removed the option, and Secrets that the key has encrypted are there still."""
    one = ControlPlane(tmp_path)
    one.host.write(keys.FILE, keys.written([OLD]))
    text = encryption.file(one.host)
    assert keys.all_of([text]) == [OLD, PLAIN]
    assert keys.read(keys.after(KNOWN, text, keys.all_of([text]))) == [PLAIN, OLD]


def test_an_api_server_without_encryption_gets_it_and_keeps_it(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    assert encryption.file(one.host) == ""
    known = keys.all_of([""], NEW.secret)
    assert encryption.put(one.host, keys.after(KNOWN, "", known), 5)
    assert one.keys == ["", keys.named(1, NEW.secret).name]
    text = one.host.read(certificates.API_SERVER) or ""
    assert f"    - kube-apiserver\n    - --{keys.OPTION}={keys.FILE}\n    - --adv" in text
    assert one.starts == 1
    assert encryption.configure(one.host)
    assert f"extraArgs:\n  - name: {keys.OPTION}\n    value: {keys.FILE}\n" in one.configuration
    assert not encryption.configure(one.host)
    permissions = one.host.permissions(keys.FILE)
    assert permissions is not None
    assert permissions.mode == 0o600


def test_options_of_the_api_server_that_are_there_are_kept(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    one.configuration = "apiServer:\n  extraArgs:\n  - name: v\n    value: '2'\n"
    with pytest.raises(ImpossibleError, match="an apiServer section of its own"):
        encryption.configure(one.host)


def test_a_step_restarts_once_and_the_same_again_does_nothing(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, keys.written([OLD]))
    text = keys.after(KNOWN, keys.written([OLD]), [NEW, OLD])
    assert encryption.put(one.host, text, 5)
    assert not encryption.put(one.host, text, 5)
    assert (one.keys, one.starts) == ([OLD.name, NEW.name], 1)
    # A run that was cut off before its manifest was written, or kubelet has seen that.
    one.host.write(keys.FILE, keys.after(FIRST, text, [NEW, OLD]))
    os.utime(one.host.path(keys.FILE), (one.started + 9, one.started + 9))
    assert encryption.put(one.host, keys.after(FIRST, text, [NEW, OLD]), 5)
    assert one.starts == 2
    assert one.keys == [NEW.name, OLD.name]
    assert not encryption.put(one.host, keys.after(FIRST, text, [NEW, OLD]), 5)


def test_what_another_key_has_encrypted_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "PAGE", 2)
    one = ControlPlane(tmp_path, keys.written([NEW, OLD]))
    new, twin = NEW.name, keys.named(10, keys.fresh()).name
    one.etcd = {
        f"{encryption.SECRETS}other/c": f"{keys.MARK}{OLD.name}:".encode() + b"old",
        f"{encryption.SECRETS}team/a": b"k8s\x00plain",
        f"{encryption.SECRETS}team/b": f"{keys.MARK}{twin}:".encode() + b"of another run",
        f"{encryption.SECRETS}team/c": b"",
        f"{encryption.SECRETS}third/d": f"{keys.MARK}{new}:".encode() + b"new",
    }
    left = [("other", "c"), ("team", "a"), ("team", "b"), ("team", "c")]
    assert encryption.otherwise(one.host, new) == left
    with pytest.raises(ImpossibleError, match=f"4 Secrets that {new} has not encrypted, other/c"):
        encryption.refuse_left(one.host, new)
    assert encryption.rewrite(one.host, new) == 4
    assert [line.split("secret ")[1] for line in one.calls if "patch secret" in line] == [
        f"{names} --type=merge --patch={{}}" for names in ("c", "a b", "c")
    ]
    encryption.refuse_left(one.host, new)
    assert encryption.rewrite(one.host, new) == 0


def test_one_that_cannot_be_written_keeps_the_previous_key(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, keys.written([NEW, OLD]))
    one.etcd = {f"{encryption.SECRETS}team/stays": b"word"}
    with pytest.raises(ImpossibleError, match=r"not encrypted: team/stays \(.*webhook denied"):
        encryption.rewrite(one.host, NEW.name)


@pytest.mark.parametrize(
    ("text", "found", "reason"),
    [
        (keys.written([NEW]), [NEW.name], ""),
        (keys.written([NEW, OLD]), [NEW.name, OLD.name], "was cut off"),
        (keys.written([PLAIN, NEW]), ["none", NEW.name], "was cut off"),
        ("", ["none"], "as they are"),
    ],
)
def test_the_evidence_says_whether_secrets_are_encrypted(
    tmp_path: Path, text: str, found: list[str], reason: str
) -> None:
    one = judged(ControlPlane(tmp_path, text))
    assert (one["id"], one["found"]) == ("secrets.encrypted", found)
    assert one["result"] == ("fail" if reason else "pass")
    assert reason in one["reason"]
    assert OLD.secret not in json.dumps(one)
    assert NEW.secret not in json.dumps(one)


def test_keys_of_the_site_itself_are_not_judged(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, keys.written([OLD]))
    text = one.host.read(certificates.API_SERVER) or ""
    one.host.write(certificates.API_SERVER, text.replace(keys.FILE, "/srv/kms.yaml"))
    assert judged(one)["result"] == "skipped"
    with pytest.raises(ImpossibleError, match="=/srv/kms"):
        encryption.file(one.host)


def test_a_control_plane_that_is_not_asked_is_named(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    pods = [
        {"spec": {"nodeName": name, "containers": [{"image": "x:v1.36.3"}]}}
        for name in ("cp1", "cp2")
    ]
    one.configuration = json.dumps({"items": pods})
    encryption.refuse_without(one.host, ["cp1", "cp2"])
    with pytest.raises(ImpossibleError, match="cp2 in the cluster"):
        encryption.refuse_without(one.host, ["cp1"])


def test_provider_and_hosts_mean_one_file() -> None:
    assert f"/{on_host.ENCRYPTION}" == keys.FILE
    assert keys.FILE.partition("/etc/kubernetes/")[2] in certificates.READ["kube-apiserver"]
    assert control_plane_upgrade.MANIFESTS in certificates.API_SERVER
