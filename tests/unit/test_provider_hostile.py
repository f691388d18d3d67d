"""The provider and hosts that answer anything, settings that switch checks off, and odd inputs."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import TYPE_CHECKING, Any

import asyncssh
import pytest

from bedplate.common.connection import Hop
from bedplate.provider import ssh as transport
from bedplate.provider import sudo
from bedplate.provider.cluster_api import ClusterApi
from bedplate.provider.deadline import Deadline
from bedplate.provider.errors import ProviderError, UnreachableError
from bedplate.provider.hosts import Hosts
from bedplate.provider.model import ControlPlaneInputs, Machine, NodeInputs, failures
from bedplate.provider.ssh import Completed, SshTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DEEP = "[" * 100_000


async def answer(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Answer as the command says."""
    command = process.command or ""
    if "gush" in command:
        stream = process.stderr if "errors" in command else process.stdout
        while True:
            stream.write(b"x" * 65536)
            await stream.drain()
    if "latin" in command:
        process.stdout.write(b"caf\xe9\n")
    process.exit(0)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Machine, Path, Path]]:
    """How to reach a server, the client's key and the known hosts."""
    host_key, key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    key.write_private_key(tmp_path / "key")
    key.write_public_key(tmp_path / "authorized")
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        process_factory=answer,
        encoding=None,
        server_host_keys=[host_key],
        authorized_client_keys=str(tmp_path / "authorized"),
    )
    port = listener.get_port()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
    yield Machine(name="h", address="127.0.0.1", port=port), tmp_path / "key", tmp_path / "known"
    listener.close()


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "Host *\n  UserKnownHostsFile none\n",
        "UserKnownHostsFile NONE\n",
        "Match host 127.0.0.1\n  UserKnownHostsFile none\n",
    ],
)
async def test_a_host_key_is_checked_whatever_the_configuration_says(
    text: str, jump: bool, served: Any, tmp_path: Path
) -> None:
    host, key, _ = served
    (tmp_path / "config").write_text(text)
    hop = (f"root@127.0.0.1:{host.port}",) if jump else ()
    host = host.model_copy(update={"config": str(tmp_path / "config"), "jump": hop})
    with pytest.raises(UnreachableError, match=r"^host key of .* (not known|not be checked) — "):
        await SshTransport(key, None, tmp_path).run(host, ["id"], stdin="", seconds=60)


async def test_a_file_of_known_hosts_wins_over_the_configuration(
    served: Any, tmp_path: Path
) -> None:
    host, key, known = served
    (tmp_path / "config").write_text("UserKnownHostsFile none\n")
    host = host.model_copy(update={"config": str(tmp_path / "config")})
    ssh = SshTransport(key, known)
    assert (await ssh.run(host, ["id"], stdin="", seconds=60)).status == 0
    await ssh.close()


@pytest.mark.parametrize("stream", ["output", "errors"])
async def test_output_without_end_is_cut_off(
    stream: str, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sudo, "LARGEST", 1 << 20, raising=False)
    host, key, known = served
    ssh = SshTransport(key, known)
    with pytest.raises(ProviderError, match=r"^h printed more than 1 MiB — "):
        await ssh.run(host, ["gush", stream], stdin="", seconds=60)
    await ssh.close()


async def test_so_is_that_of_sudo(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sudo, "LARGEST", 1 << 20, raising=False)
    host, key, known = served
    ssh = SshTransport(key, known)
    user = host.model_copy(update={"user": "u"})
    with pytest.raises(ProviderError, match=r"^h printed more than 1 MiB — "):
        await ssh.run(user, ["gush"], stdin="", seconds=60)
    await ssh.close()


async def test_output_that_is_no_utf_8_is_read(served: Any) -> None:
    host, key, known = served
    ssh = SshTransport(key, known)
    done = await ssh.run(host, ["latin"], stdin="", seconds=60)
    assert done.output == "caf\N{REPLACEMENT CHARACTER}\n"
    await ssh.close()


@pytest.mark.parametrize(
    "content", [b"garbage", b"\xff\xfe", b"h ssh-ed25519 AAAA", b"@cert-authority", b"\0" * 100]
)
async def test_known_hosts_that_cannot_be_read_are_a_message(
    content: bytes, served: Any, tmp_path: Path
) -> None:
    host, key, _ = served
    (tmp_path / "odd").write_bytes(content)
    with pytest.raises(ProviderError, match=" — got "):
        await SshTransport(key, tmp_path / "odd").run(host, ["id"], stdin="", seconds=60)


@pytest.mark.parametrize(
    "change",
    [
        {"user": "a\nb"},
        {"user": "\u0627a1"},
        {"address": "a" * 300},
        {"address": "a..b"},
        {"address": "\udc80"},
        {"address": "a\0b"},
        {"jump": ("a" * 300,)},
    ],
)
async def test_a_name_that_cannot_be_asked_for_is_a_message(
    change: dict[str, Any], served: Any
) -> None:
    host, key, known = served
    odd = host.model_copy(update=change)
    with pytest.raises(UnreachableError, match=" — got "):
        await SshTransport(key, known).run(odd, ["id"], stdin="", seconds=60)


async def test_a_connection_that_nobody_waits_for_any_more_says_nothing(served: Any) -> None:
    host, key, known = served
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    ssh = SshTransport(key, known)
    gate = asyncio.Event()

    async def refused(_: object) -> Any:
        await gate.wait()
        raise UnreachableError("no")

    ssh._connect = refused  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        await ssh.run(host, ["id"], stdin="", seconds=0.05)
    gate.set()
    await asyncio.sleep(0.05)
    ssh._connections.clear()
    gc.collect()
    await asyncio.sleep(0)
    assert said == []


class Says:
    """A transport to a host that always says the same."""

    def __init__(self, output: str, status: int = 0) -> None:
        self.done = Completed(status, output, "")

    async def run(self, *_: object, **__: object) -> Completed:
        return self.done

    async def close(self) -> None:
        pass


HOST = Machine(name="h", address="192.0.2.1")
TEXTS = dict.fromkeys(("kubeconfig", "authority", "phase", "endpoint", "name"), "")
MEMBER = {"ok": True, **TEXTS, "member": True}


@pytest.mark.parametrize(
    "output",
    [
        "[1]",
        "null",
        '{"a": 1}',
        '"ok"',
        "7",
        DEEP,
        '{"ok": 1}',
        '{"ok": "yes"}',
        '{"ok": true}',
        '{"ok": false}',
        '{"ok": false, "reason": ["x"]}',
        json.dumps({**MEMBER, "member": "yes"}),
        json.dumps({**MEMBER, "kubeconfig": None}),
        json.dumps({**MEMBER, "authority": 7}),
        "",
        "\n",
    ],
)
async def test_an_answer_of_another_form_is_a_message(output: str) -> None:
    with pytest.raises(ProviderError, match=r"^`access` gave no answer — h — got "):
        await Hosts(Says(output)).ask(HOST, {"action": "access"}, Deadline("x", 60))


async def test_a_reason_cannot_steer_a_terminal() -> None:
    said = json.dumps({"ok": False, "reason": "a\x1b]0;owned\x07\x1b[2Jb\nc"})
    with pytest.raises(ProviderError) as caught:
        await Hosts(Says(said)).ask(HOST, {"action": "access"}, Deadline("x", 60))
    assert str(caught.value).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "output",
    [
        "",
        "[1]",
        "null",
        DEEP,
        "{}",
        '{"items": 7}',
        '{"items": [1]}',
        '{"items": [{}]}',
        '{"items": [{"metadata": []}]}',
        '{"items": [{"metadata": {"name": ["x"]}}]}',
    ],
)
async def test_a_list_of_the_api_of_another_form_is_a_message(output: str) -> None:
    with pytest.raises(ProviderError, match=r"^the cluster's API gave no list — h — got "):
        await ClusterApi(Hosts(Says(output)), HOST).nodes()
    with pytest.raises(ProviderError, match=r"^the cluster's API gave no list — h — got "):
        await ClusterApi(Hosts(Says(output)), HOST).devices("n", "gpu.nvidia.com")


HOST_INPUT = {"name": "h", "address": "192.0.2.1"}
NODE = {
    "host": HOST_INPUT,
    "controlPlane": HOST_INPUT,
    "version": "1.36.3",
    "endpoint": "192.0.2.1:6443",
}
PLANE = {
    "host": HOST_INPUT,
    "version": "1.36.3",
    "endpoint": "192.0.2.1:6443",
    "podSubnet": "10.244.0.0/16",
    "serviceSubnet": "10.96.0.0/12",
    "etcdImageTag": "3.6.1-0",
    "dnsImageTag": "v1.12.1",
}


@pytest.mark.parametrize(
    "version",
    ["\uff11.\uff13\uff16.\uff13", "1.36.\uff13", "1.36.3\n", "1.36", "v1.36.3", "01.36.3"],
)
def test_a_version_is_of_plain_digits(version: str) -> None:
    assert [path for path, _ in failures(NodeInputs, {**NODE, "version": version})] == ["version"]


@pytest.mark.parametrize(
    "endpoint",
    [
        "h:99999",
        "h:0",
        "-x:1",
        "h:٣",
        "h:",
        ":6443",
        "h",
        "a..b:1",
        "a_b:1",
        "[::1:1",
        "::1:6443",
        "[h]:1",
        "1.2.3:1",
        "999.1.1.1:1",
        "h:6443\n",
        "h :1",
        "[fd00::1]:65536",
        "http://h:1",
    ],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    found = failures(NodeInputs, {**NODE, "endpoint": endpoint})
    assert [path for path, _ in found] == ["endpoint"]


@pytest.mark.parametrize("endpoint", ["h:1", "api.example.org:65535", "[fd00::1]:6443", "A.b:6443"])
def test_an_endpoint_as_it_should_be(endpoint: str) -> None:
    assert failures(NodeInputs, {**NODE, "endpoint": endpoint}) == []


@pytest.mark.parametrize(
    "network",
    [
        "999.1/999",
        "10.0.0.0/33",
        "10.0.0.0",
        "fd00::/129",
        "10.244.0.0/16,",
        "::/0,::/0,::/0",
        "10.0.0.0/\uff18",
        "10.0.0.0/16\n",
        "10.0.0.0/255.0.0.0",
    ],
)
def test_a_network_is_one(network: str) -> None:
    found = failures(ControlPlaneInputs, {**PLANE, "podSubnet": network})
    assert [path for path, _ in found] == ["podSubnet"]


@pytest.mark.parametrize("network", ["10.244.0.0/16", "fd00::/48", "10.244.0.0/16,fd00:1::/56"])
def test_a_network_as_it_should_be(network: str) -> None:
    assert failures(ControlPlaneInputs, {**PLANE, "podSubnet": network}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "a..b"),
        ("name", "a\n"),
        ("user", "a\nb"),
        ("user", "-l"),
        ("user", "a b"),
        ("user", "a\0"),
        ("address", "-oProxyCommand=x"),
        ("address", "a b"),
        ("address", "a\nb"),
        ("address", "u@h"),
        ("address", "a/b"),
    ],
)
def test_how_a_host_is_reached_is_no_option(key: str, value: str) -> None:
    found = failures(NodeInputs, {**NODE, "host": {**HOST_INPUT, key: value}})
    assert [path for path, _ in found] == [f"host.{key}"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user", "DOMAIN\\me"),
        ("user", "me@ad.example"),
        ("address", "fe80::1%eth0"),
        ("address", "H-1.x"),
    ],
)
def test_how_a_host_may_be_reached(key: str, value: str) -> None:
    assert failures(NodeInputs, {**NODE, "host": {**HOST_INPUT, key: value}}) == []


@pytest.mark.parametrize(
    "text", ["-oProxyCommand=x", "u@-x", "-u@h", "h:99999", "h:٣", "h\n", "u\0@h"]
)
def test_a_hop_is_no_option(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not user@host:port"):
        Hop.parse(text)


def test_the_limit_is_generous() -> None:
    assert sudo.LARGEST >= 64 << 20
    assert transport.SESSIONS < 10
