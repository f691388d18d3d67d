"""`bedplate kubeconfig`: who is refused, what is never written over, and signers that fail.

The API is a double that speaks TLS; the real one signs in `tests/schedulers/test_kubeconfig.py`.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bedplate.cli.main import main, parser
from bedplate.common import kubeconfig
from bedplate.components.credentials import command, signing
from bedplate.lock import write_lock
from tests.schedulers.certificates import Authority
from tests.schedulers.locks import lock_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUOTA: dict[str, Any] = {"gpus": {"pool_train": (1, None)}}
TEAMS = {
    "audio": {**QUOTA, "members": ["bob", "carol"]},
    "vision": {**QUOTA, "members": ["bob", "group:students"], "namespaces": ["seeing", "looking"]},
    "course": QUOTA,
}


@dataclass
class Cluster:
    """What the double does, and what it has seen."""

    server: str = ""
    authority: Path | None = None
    signs_s: float | None = 3600.0
    denies: bool = False
    refuses: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and document."""
        self.calls.append((method, path.removeprefix(signing.REQUESTS)))
        if method == self.refuses:
            return 403, {"message": f"{method} is forbidden"}
        name = path.removeprefix(signing.REQUESTS).split("/")[1:2]
        if method == "POST":
            self.kept[body["metadata"]["name"]] = body
            return 201, body
        if method == "DELETE":
            return 200, self.kept.pop(name[0], {})
        item = self.kept[name[0]]
        if method == "PUT":
            assert path.endswith("/approval")
            item["status"] = body["status"]
            if self.denies:
                item["status"] = {"conditions": [{"type": "Denied", "message": "not here"}]}
            elif self.signs_s is not None:
                item["status"]["certificate"] = base64.b64encode(signed(item, self.signs_s))
                item["status"]["certificate"] = item["status"]["certificate"].decode()
        return 200, item


def signed(item: dict[str, Any], seconds: float) -> bytes:
    """Return the certificate of a request, by an authority of its own."""
    asked = x509.load_pem_x509_csr(base64.b64decode(item["spec"]["request"]))
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(asked.subject).issuer_name(asked.subject)
    builder = builder.public_key(asked.public_key()).serial_number(1)
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(seconds=seconds))
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = found.answer(self.command, self.path, json.loads(text or b"{}"))
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815 - the base's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    (folder := tmp_path / "tls").mkdir()
    authority = Authority(folder)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("kube-apiserver"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.server = f"https://127.0.0.1:{server.server_port}"
        found.authority = authority.path
        yield found
        server.shutdown()


@pytest.fixture
def site(tmp_path: Path, cluster: Cluster) -> Path:
    """Return a site with teams and the administrator's kubeconfig."""
    (folder := tmp_path / "lab").mkdir()
    write_lock(folder, lock_of({"pool_train": [{}]}, TEAMS))
    of = {"server": cluster.server, "certificate-authority": str(cluster.authority)}
    content = {
        "clusters": [{"name": "c", "cluster": of}],
        "users": [{"name": "u", "user": {"token": "hunter2SECRET"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig.write(folder, yaml.safe_dump(content))
    return folder


def test_the_kubeconfig_is_whole_and_of_its_user_alone(
    site: Path, cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["kubeconfig", str(site), "--user", "x/alice@lab.example", "--group", "students"]
    assert main([*asked, "--group", "staff", "--group", "staff", "--hours", "1.5"]) == 0
    path = site / ".bedplate" / "kubeconfigs" / "x%2Falice@lab.example"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    content = yaml.safe_load(text)
    (context,) = content["contexts"]
    assert content["current-context"] == context["name"] == "x/alice@lab.example@lab"
    assert context["context"]["namespace"] == "seeing"
    assert content["clusters"][0]["cluster"]["server"] == cluster.server
    user = {name: base64.b64decode(one) for name, one in content["users"][0]["user"].items()}
    certificate = x509.load_pem_x509_certificate(user["client-certificate-data"])
    key = serialization.load_pem_private_key(user["client-key-data"], None)
    assert certificate.public_key() == key.public_key()
    assert [one.value for one in certificate.subject] == [
        *("students", "staff"),
        "x/alice@lab.example",
    ]
    assert [method for method, _ in cluster.calls] == ["POST", "PUT", "GET", "DELETE"]
    assert cluster.kept == {}
    printed = "".join(capfd.readouterr())
    assert f"until {certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC." in printed
    shown = (content["users"][0]["user"]["client-key-data"], "PRIVATE KEY", "hunter2SECRET")
    assert not any(one in printed for one in shown)
    assert "hunter2SECRET" not in text


def test_what_is_requested_is_a_client_for_the_time(site: Path, cluster: Cluster) -> None:
    seen: list[dict[str, Any]] = []
    cluster.kept = type("Kept", (dict,), {"pop": lambda self, *name: seen.append(self[name[0]])})()
    assert main(["kubeconfig", str(site), "--user", "carol"]) == 0
    spec = seen[0]["spec"]
    assert (spec["signerName"], spec["usages"], spec["expirationSeconds"]) == (
        "kubernetes.io/kube-apiserver-client",
        ["client auth"],
        12 * 3600,
    )
    assert seen[0]["status"]["conditions"][0]["type"] == "Approved"


PERSON = [
    (
        ["--user", "alice", "--team", "audio"],
        (
            "user is not a member of the team — bedplate_teams.audio.members — got alice / "
            "allowed bob, carol — name one of these groups with --group, or add the user to the "
            "members and plan again"
        ),
    ),
    (
        ["--user", "alice", "--group", "bob", "--team", "audio"],
        (
            "user is not a member of the team — bedplate_teams.audio.members — got alice, "
            "group:bob / allowed bob, carol"
        ),
    ),
    (
        ["--user", "students", "--team", "vision"],
        (
            "user is not a member of the team — bedplate_teams.vision.members — got students / "
            "allowed bob, group:students"
        ),
    ),
    (
        ["--user", "bob", "--team", "course"],
        "no team of this name has members — --team — got course / allowed audio, vision",
    ),
    (["--user", "bob"], "user is in several teams — --team — got bob / allowed audio, vision — "),
    (["--user", "alice"], "user is in no team — --team — got alice / allowed audio, vision — "),
    (
        ["--user", "system:admin", "--team", "audio"],
        (
            "name is one of Kubernetes' own — --user — got system:admin / allowed names "
            "that do not begin with system: or kubeadm: — "
        ),
    ),
    (
        ["--user", "bob", "--group", "system:masters", "--team", "audio"],
        "name is one of Kubernetes' own — --group — got system:masters / ",
    ),
    (
        ["--user", "bob", "--group", "kubeadm:cluster-admins", "--team", "audio"],
        "name is one of Kubernetes' own — --group — got kubeadm:cluster-admins / ",
    ),
    *(
        (["--user", name, "--team", "vision"], f"name is no user's or group's — --user — got {got}")
        for name, got in {
            "group:students": "'group:students' / allowed a name without spaces, not beginning",
            "": "'' / ",
            "bob smith": "'bob smith' / ",
            "bob\n": r"'bob\n' / ",
            ":bob": "':bob' / ",
            "b\x1bob": r"'b\x1bob' / ",
        }.items()
    ),
    (["--user", "bob", "--hours", "nan"], "argument --hours: got nan, allowed a number of hours"),
    (["--user", "bob", "--hours", "0"], "argument --hours: got 0, allowed a number of hours"),
    (["--user", "bob", "--hours", "169"], "argument --hours: got 169, allowed a number of hours"),
]


@pytest.mark.parametrize(("arguments", "told"), PERSON)
def test_who_is_no_member_is_refused_and_nothing_is_requested(
    site: Path,
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    try:
        status: object = main(["kubeconfig", str(site), *arguments])
    except SystemExit as ended:
        status = ended.code
    assert status == 3
    assert told in capsys.readouterr().err
    assert cluster.calls == []
    assert not (site / ".bedplate" / "kubeconfigs").exists()


@pytest.mark.parametrize(
    ("set_", "told"),
    [
        ({"denies": True}, "the cluster signs no certificate — signer kubernetes.io/kube-"),
        ({"signs_s": None}, "got none in 0 s / allowed a certificate — see that kube-controller-"),
        ({"signs_s": 86400.0}, "the cluster signs for longer than was requested — signer kube"),
        ({"refuses": "POST"}, "no certificate can be requested — the cluster's API — got POST is"),
        ({"refuses": "PUT"}, "no certificate can be requested — the cluster's API — got PUT is"),
    ],
    ids=["denied", "unsigned", "longer", "forbidden", "not-approved"],
)
def test_a_cluster_that_does_not_sign_is_left_without_the_request(
    site: Path,
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    set_: dict[str, Any],
    told: str,
) -> None:
    monkeypatch.setattr(signing, "PATIENCE", 0.4)
    for name, value in set_.items():
        setattr(cluster, name, value)
    assert main(["kubeconfig", str(site), "--user", "carol"]) == 3
    assert told in capsys.readouterr().err
    assert cluster.calls[-1][0] == "DELETE"
    assert cluster.kept == {}
    assert not (site / ".bedplate" / "kubeconfigs").exists()


def test_an_interrupt_leaves_no_request(
    site: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one in the middle of an answer."""

    def interrupted(api: Any, path: str) -> bytes:
        api._kept().request("GET", path)
        raise KeyboardInterrupt

    monkeypatch.setattr(signing, "_certificate", interrupted)
    options = parser().parse_args(["kubeconfig", str(site), "--user", "carol"])
    with pytest.raises(KeyboardInterrupt):
        command.run(options)
    assert cluster.calls[-1][0] == "DELETE"
    assert cluster.kept == {}


def test_a_subject_that_no_certificate_has_is_refused(
    site: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--user", "a" * 65, "--group", "students"]
    assert main(["kubeconfig", str(site), *asked]) == 3
    assert "no certificate can be requested — the cluster's API — got " in capsys.readouterr().err
    assert cluster.calls == []


@pytest.mark.parametrize("there", ["other", "merged", "text", "bytes", "folder"])
def test_what_is_not_this_users_is_never_written_over(
    site: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    path = site / "file"
    contexts = {"other": ["bob@lab"], "merged": ["carol@lab", "work"]}.get(there)
    if there == "folder":
        path.mkdir()
    elif contexts:
        path.write_text(yaml.safe_dump({"contexts": [{"name": one} for one in contexts]}))
    else:
        path.write_bytes({"text": b"my notes", "bytes": b"\xff"}[there])
    before = None if there == "folder" else path.read_bytes()
    assert main(["kubeconfig", str(site), "--user", "carol", "--output", str(path)]) == 3
    told = f"file is there and is not this user's kubeconfig — {path} — "
    if there == "folder":
        told = f"the system refuses — {path} — got Is a directory"
    assert told in capsys.readouterr().err
    assert cluster.calls == []
    assert before is None or path.read_bytes() == before


def test_the_previous_kubeconfig_is_replaced_and_a_link_stays_one(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link, real = tmp_path / "link", tmp_path / "real"
    link.symlink_to(real)
    asked = ["kubeconfig", str(site), "--user", "carol", "--output", str(link)]
    assert main(asked) == 0
    first = real.read_text()
    real.chmod(0o644)
    assert main(asked) == 0
    assert link.is_symlink()
    assert real.read_text() != first
    assert real.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    asked[-1] = str(tmp_path / "none" / "file")
    assert main(asked) == 3
    assert f"the system refuses — {tmp_path / 'none'} — got No such" in capsys.readouterr().err
