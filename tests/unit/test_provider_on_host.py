"""What the provider does to a host that may already be a member: only the API's own no is a no."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.portable import removal
from bedplate.provider import on_host, server

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
MINE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
OTHERS = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n"
ENDPOINT = "192.0.2.1:6443"
UNREACHABLE = [
    "The connection to the server 192.0.2.1:6443 was refused - did you specify the right host?",
    "Unable to connect to the server: dial tcp 192.0.2.1:6443: i/o timeout",
    "Unable to connect to the server: dial tcp: lookup k8s.example: no such host",
    (
        "Unable to connect to the server: tls: failed to verify certificate: x509: "
        "certificate signed by unknown authority"
    ),
    "Unable to connect to the server: EOF",
    "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
    "Error from server (InternalError): an error on the server has prevented the request",
    "Error from server: etcdserver: request timed out",
    "Error from server (Timeout): the server was unable to return a response in time",
    "Error from server (NotFound): the server could not find the requested resource",
    "error loading config file: yaml: line 2: mapping values are not allowed in this context",
    "",
]
NO = [
    'Error from server (NotFound): nodes "gpu-a" not found',
    'Error from server (Forbidden): nodes "gpu-a" is forbidden: node "old" cannot read "gpu-a"',
    "error: You must be logged in to the server (Unauthorized)",
    (
        "E1121 memcache.go:265] couldn't get current server API group list\n"
        "error: You must be logged in to the server (the server has asked for the client to "
        "provide credentials)"
    ),
]


class Host(on_host.Host):
    """A host whose commands only note that they ran; kubectl answers as told."""

    def __init__(self, root: Path, answer: str) -> None:
        super().__init__(root, budget=5)
        self.answer = answer
        self.ran: list[str] = []
        self.others = False

    def try_run(
        self,
        *argv: str,
        stdin: str = "",  # noqa: ARG002 - what the real one has
    ) -> subprocess.CompletedProcess[str]:
        """Note the command and answer."""
        self.ran.append(" ".join(argv[:2]))
        if argv[0] == "kubectl":
            return subprocess.CompletedProcess(argv, 0 if self.answer == "ok" else 1, self.answer)
        answers = {"kubeadm version": "v1.36.3\n"}
        return subprocess.CompletedProcess(argv, 0, answers.get(self.ran[-1], ""))

    def answers(self, endpoint: str) -> bool:  # type: ignore[override]
        """Whether there is a cluster of others."""
        assert endpoint == ENDPOINT
        return self.others


def request(host: Host, **more: Any) -> dict[str, Any]:
    """A request to join the cluster that the host is a member of."""
    return {
        "name": "gpu-a",
        "version": "1.36.3",
        "endpoint": ENDPOINT,
        "config": "",
        "ignore_preflight": [],
        "etcd_data_dir": "/srv/etcd",
        "cri_socket": "unix:///run/crio/crio.sock",
        "authority": on_host.authority(host),
        **more,
    }


def member(root: Path, answer: str, action: str = "join", phase: str = "done") -> Host:
    """A host that an earlier run has made a member, or had begun to."""
    for name, text in {
        "etc/kubernetes/kubelet.conf": "kubelet",
        "etc/kubernetes/pki/ca.crt": MINE,
        on_host.MARK: json.dumps(
            {"name": "gpu-a", "action": action, "endpoint": ENDPOINT, "phase": phase}
        ),
        "run/keep": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Host(root, answer)


@pytest.mark.parametrize("action", ["join", "init"])
@pytest.mark.parametrize("answer", UNREACHABLE)
def test_what_the_api_did_not_say_leaves_the_host_alone(
    action: str, answer: str, tmp_path: Path
) -> None:
    host = member(tmp_path, answer, action)
    with pytest.raises(on_host.FailureError) as caught:
        on_host.ACTIONS[action](host, request(host))
    assert str(caught.value) == (
        "whether this host is still a member is not known, so it is left alone: the cluster's API "
        f"did not say: {answer}"
    )
    assert [command.split()[0] for command in host.ran] == ["kubectl"]
    assert on_host.read_mark(host)["phase"] == "done"


@pytest.mark.parametrize("answer", NO)
def test_a_no_of_the_api_is_a_half_made_membership(answer: str, tmp_path: Path) -> None:
    host = member(tmp_path, answer)
    host.deadline = 0  # no kubelet ends a join by itself here: its time is over
    assert not on_host.join(host, request(host))["adopted"]
    assert host.ran.index("kubeadm reset") < host.ran.index("kubeadm join")


@pytest.mark.parametrize("answer", NO)
def test_a_finished_control_plane_is_never_wiped(answer: str, tmp_path: Path) -> None:
    host = member(tmp_path, answer, "init")
    with pytest.raises(on_host.RefusalError, match="has been a whole control plane"):
        on_host.init(host, request(host))
    assert not any(command.startswith("kubeadm") for command in host.ran)
    assert on_host.read_mark(host)["phase"] == "done"


@pytest.mark.parametrize(("folder", "refused"), [("srv/etcd", True), ("var/lib/etcd", False)])
def test_data_of_etcd_is_looked_for_where_the_site_has_it(
    folder: str, refused: bool, tmp_path: Path
) -> None:
    host = member(tmp_path, NO[0], "init")
    for name in on_host.KUBE_FILES:
        (tmp_path / "etc/kubernetes" / name).unlink(missing_ok=True)
    (tmp_path / folder / "member").mkdir(parents=True)
    if refused:
        with pytest.raises(on_host.RefusalError, match="has been a whole control plane"):
            on_host.init(host, request(host))
    else:
        on_host.init(host, request(host))
    assert ("kubeadm init" in host.ran) is not refused


def test_a_yes_of_the_api_is_adopted(tmp_path: Path) -> None:
    host = member(tmp_path, "ok")
    assert on_host.join(host, request(host))["adopted"]
    assert not any(command.startswith("kubeadm") for command in host.ran)


def test_a_command_that_does_not_end_is_a_failure(tmp_path: Path) -> None:
    host = on_host.Host(tmp_path, budget=0)
    with pytest.raises(on_host.FailureError, match=r"^`sleep 9` did not end in time: $"):
        host.try_run("sleep", "9")


def test_a_command_that_outlives_its_process_holds_the_lock(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    killed = (
        "import os, pathlib; from bedplate.provider import on_host\n"
        f"host = on_host.Host(pathlib.Path({str(tmp_path)!r}), 60)\n"
        "with on_host.locked(host):\n"
        f"    host.run('sh', '-c', f'kill -9 {{os.getpid()}}; read end < {gate}')"
    )
    done = subprocess.run([sys.executable, "-c", killed], check=False)
    assert done.returncode == -signal.SIGKILL
    with (
        pytest.raises(on_host.FailureError, match="another run still holds"),
        on_host.locked(on_host.Host(tmp_path, 0)),
    ):
        pass
    gate.write_text("\n")
    with on_host.locked(on_host.Host(tmp_path, 60)):
        pass


def test_the_membership_of_a_cluster_that_is_gone_is_not_asked_about(tmp_path: Path) -> None:
    """Its own endpoint has another authority now: nobody is left who could say anything."""
    host = member(tmp_path, UNREACHABLE[3])
    wished = request(host)
    (tmp_path / "etc/kubernetes/pki/ca.crt").write_text(OTHERS)
    assert not on_host.join(host, wished)["adopted"]
    assert "kubectl" not in " ".join(host.ran)
    assert "kubeadm reset" in host.ran


def test_a_member_of_another_cluster_is_refused(tmp_path: Path) -> None:
    host = member(tmp_path, "ok")
    wished = request(host, endpoint="192.0.2.9:6443")
    (tmp_path / "etc/kubernetes/pki/ca.crt").write_text(OTHERS)
    with pytest.raises(on_host.RefusalError) as caught:
        on_host.join(host, wished)
    assert str(caught.value) == (
        f"this host is a member of another cluster ({ENDPOINT}), requested 192.0.2.9:6443: take it "
        "out there, or run `kubeadm reset` on it if it may go"
    )
    assert host.ran == []


def test_a_join_that_was_cut_off_after_the_kubelet_had_started_is_not_repeated(
    tmp_path: Path,
) -> None:
    host = member(tmp_path, "ok", phase="begun")
    left = tmp_path / "etc/kubernetes/bootstrap-kubelet.conf"
    left.write_text("token")
    plugin = tmp_path / "etc/kubernetes/manifests/bedplate-device-plugin.yaml"
    plugin.parent.mkdir()
    plugin.write_text("kind: Pod\n")
    assert on_host.join(host, request(host))["adopted"]
    assert "kubeadm join" not in host.ran
    assert "kubeadm reset" not in host.ran
    assert on_host.read_mark(host)["phase"] == "done"
    assert not left.exists()


def cut_off_before_the_certificate(root: Path) -> None:
    """The kubelet has only its bootstrap token, and never gets further."""
    (root / "etc/kubernetes/kubelet.conf").rename(root / "etc/kubernetes/bootstrap-kubelet.conf")


def cut_off_in_a_control_plane(root: Path) -> None:
    """etcd's manifest is there: phases of the join may be missing."""
    manifest = root / "etc/kubernetes/manifests/etcd.yaml"
    manifest.parent.mkdir()
    manifest.write_text("kind: Pod\n")


def cut_off_in_another_cluster(root: Path) -> None:
    """The authority has changed since."""
    (root / "etc/kubernetes/pki/ca.crt").write_text(OTHERS)


@pytest.mark.parametrize(
    "state",
    [cut_off_before_the_certificate, cut_off_in_a_control_plane, cut_off_in_another_cluster],
)
def test_a_join_that_cannot_end_by_itself_is_reset_and_repeated(
    state: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_host, "BOOTSTRAP_SECONDS", 0.0)
    host = member(tmp_path, "ok", phase="begun")
    wished = request(host)
    state(tmp_path)
    assert not on_host.join(host, wished)["adopted"]
    assert host.ran.index("kubeadm reset") < host.ran.index("kubeadm join")


def test_no_second_cluster_is_made_where_one_answers(tmp_path: Path) -> None:
    """A first control plane whose disk was lost has nothing that says that it was one."""
    host = Host(tmp_path, "")
    (tmp_path / "run").mkdir()
    host.others = True
    with pytest.raises(on_host.RefusalError, match="a cluster answers at "):
        on_host.init(host, request(host))
    assert "kubeadm init" not in host.ran
    assert on_host.read_mark(host) == {}
    host.others = False
    on_host.init(host, request(host))
    assert "kubeadm init" in host.ran


def test_one_on_its_way_into_a_cluster_makes_none(tmp_path: Path) -> None:
    """Another control plane let it in; that one does not answer now."""
    host = member(tmp_path, NO[0], phase="begun")
    with pytest.raises(on_host.RefusalError, match="was on its way into the cluster"):
        on_host.init(host, request(host))
    assert "kubeadm init" not in host.ran
    assert "kubeadm reset" not in host.ran


MEMBERS = [
    {"ID": 0xCE0000000000000A, "name": "cp1", "peerURLs": ["https://192.0.2.11:2380"]},
    {"ID": 0xCE0000000000000B, "name": "cp3", "peerURLs": ["https://192.0.2.13:2380"]},
    {"ID": 0xCE0000000000000C, "peerURLs": ["https://192.0.2.14:2380"], "isLearner": True},
]


def test_a_machine_in_service_under_another_name_is_left_alone(tmp_path: Path) -> None:
    """Its site has renamed it: it would be reset undrained, and again as the one that leaves."""
    host = member(tmp_path, NO[1])
    with pytest.raises(on_host.RefusalError, match="under the name gpu-a, requested gpu-z: give"):
        on_host.join(host, request(host, name="gpu-z"))
    assert on_host.reset(host, request(host, name="gpu-z")) == {"changed": False}
    assert "kubeadm reset" not in host.ran
    assert on_host.reset(host, request(host)) == {"changed": True}


@pytest.mark.parametrize(
    ("text", "ran"),
    [
        (
            "# Managed by Bedplate (role control_plane_endpoint).",
            ["systemctl is-active", "systemctl disable"],
        ),
        ("# of the site's own", []),
        (None, []),
    ],
)
def test_only_our_keepalived_is_stopped(text: str | None, ran: list[str], tmp_path: Path) -> None:
    config = tmp_path / on_host.KEEPALIVED
    if text is not None:
        config.parent.mkdir(parents=True)
        config.write_text(text)
    host = Host(tmp_path, "ok")
    assert on_host.serve_endpoint(host, {"on": True}) == {"changed": False}
    assert on_host.serve_endpoint(host, {"on": False}) == {"changed": bool(ran)}
    assert host.ran == ran
    # Once: it may be stopped by hand afterwards.
    assert on_host.serve_endpoint(host, {"on": True}) == {"changed": bool(ran)}
    assert on_host.serve_endpoint(host, {"on": True}) == {"changed": False}
    assert host.ran == [*ran, *["systemctl enable"][: len(ran)]]


def test_the_note_of_an_address_given_away_ends_with_what_starts_or_removes_keepalived() -> None:
    """It would start one months later that was stopped by hand."""
    assert f"/{on_host.GIVEN}" in removal.RECORDS
    tasks = yaml.safe_load((ROOT / "roles/control_plane_endpoint/tasks/configure.yml").read_text())
    gone = [task["ansible.builtin.file"] for task in tasks if "ansible.builtin.file" in task]
    assert gone == [{"path": f"/{on_host.GIVEN}", "state": "absent"}]


def test_a_warning_that_no_engine_reads_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pipe is gone with it; a node would stay cordoned."""

    class Gone:
        def write(self, _: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "argv", ["pulumi-resource-bedplate"])
    monkeypatch.setattr(sys, "stderr", Gone())
    asyncio.run(server._warn("cp3 takes no new pods"))


class Etcd(Host):
    """A host with an etcd, which has members; it may not remove one, with a reason."""

    refuses: tuple[str, str] | None = None

    def try_run(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Answer as crictl does, with a warning on standard error."""
        super().try_run(*argv, stdin=stdin)
        if argv[1] == "ps":
            return subprocess.CompletedProcess(argv, 0, "e7cd\n")
        if "list" in argv:
            text = f"W1201 a warning\n{json.dumps({'members': MEMBERS})}\n"
            return subprocess.CompletedProcess(argv, 0, text)
        self.ran.append(" ".join(argv[-3:]))
        if self.refuses and argv[-1].endswith(self.refuses[0]):
            return subprocess.CompletedProcess(argv, 1, f"Error: {self.refuses[1]}")
        return subprocess.CompletedProcess(argv, 0, "Member removed")


@pytest.mark.parametrize(
    ("name", "address", "for_another", "removed"),
    [
        ("cp3", "192.0.2.99", False, ["ce0000000000000b"]),
        ("cp4", "192.0.2.14", False, ["ce0000000000000c"]),
        ("cp5", "192.0.2.11", False, []),
        ("cp5", "192.0.2.11", True, ["ce0000000000000a"]),
        ("cp5", "192.0.2.15", True, []),
    ],
)
def test_a_member_is_known_by_its_name_or_before_it_has_one_by_its_address(
    name: str, address: str, for_another: bool, removed: list[str], tmp_path: Path
) -> None:
    host = Etcd(tmp_path, "ok")
    wanted = {"name": name, "addresses": [address], "for_another": for_another}
    answer = on_host.leave_etcd(host, wanted)
    assert answer == {"changed": bool(removed), "refused": ""}
    assert [line for line in host.ran if "remove" in line] == [
        f"member remove {number}" for number in removed
    ]


def test_only_etcds_own_refusal_says_that_all_members_are_there(tmp_path: Path) -> None:
    host = Etcd(tmp_path, "ok")
    wanted = {"name": "cp3", "addresses": ["192.0.2.14"], "for_another": True}
    unhealthy = "etcdserver: unhealthy cluster"
    host.refuses = ("b", unhealthy)
    answer = on_host.leave_etcd(host, wanted)
    assert answer == {"changed": False, "refused": f"Error: {unhealthy}"}
    host.refuses = ("b", "context deadline exceeded")
    with pytest.raises(
        on_host.FailureError, match="has removed 0 of 2 members so far: Error: cont"
    ):
        on_host.leave_etcd(host, wanted)
    # The first has left by then.
    host.refuses = ("c", unhealthy)
    with pytest.raises(on_host.FailureError, match=r"removed 1 of 2 members so far: .*unhealthy"):
        on_host.leave_etcd(host, wanted)


class Answers(http.server.BaseHTTPRequestHandler):
    """An API server, or a balancer, that says one thing."""

    status = 200

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("status", "found"), [(200, True), (401, True), (500, True), (503, False)])
def test_whoever_answers_at_the_endpoint_is_a_cluster(
    status: int, found: bool, tmp_path: Path
) -> None:
    """Ready or not; a balancer without anybody behind it is none, and neither is an open port."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=localhost", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    kind = type("Kind", (Answers,), {"status": status})
    with http.server.HTTPServer(("127.0.0.1", 0), kind) as server:
        plain = server.socket
        server.socket = context.wrap_socket(plain, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert on_host.Host.answers(f"127.0.0.1:{server.server_port}") is found
        server.shutdown()
    assert not on_host.Host.answers(f"127.0.0.1:{server.server_port}")
