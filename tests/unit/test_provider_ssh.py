"""The SSH transport against a real SSH server in this process."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import TYPE_CHECKING, Any

import asyncssh
import pytest

from bedplate.provider.errors import UnreachableError
from bedplate.provider.model import Machine
from bedplate.provider.ssh import SshTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


async def answer(process: asyncssh.SSHServerProcess[str]) -> None:
    """Answer with the command and what it was given."""
    text = await process.stdin.read()
    process.stdout.write(f"{process.command}|{text}")
    process.exit(3 if process.command == "false" else 0)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Machine, Path, Path]]:
    """How to reach a server, the client's key and the known hosts."""
    host_key, key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    key.write_private_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o600)
    key.write_public_key(tmp_path / "authorized")
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        process_factory=answer,
        server_host_keys=[host_key],
        authorized_client_keys=str(tmp_path / "authorized"),
    )
    port = listener.get_port()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
    yield Machine(name="h", address="127.0.0.1", port=port), tmp_path / "key", known
    listener.close()


async def test_commands_run_with_their_input_and_status(served: Any) -> None:
    host, key, known = served
    transport = SshTransport(key, known)
    done = await transport.run(host, ["echo", "a b"], stdin="text", seconds=60)
    assert (done.status, done.output) == (0, "echo 'a b'|text")
    assert (await transport.run(host, ["false"], stdin="", seconds=60)).status == 3
    await transport.close()


async def test_many_commands_share_one_connection(served: Any) -> None:
    host, key, known = served
    transport = SshTransport(key, known)
    done = await asyncio.gather(
        *(transport.run(host, [f"c{n}"], stdin="", seconds=60) for n in range(12))
    )
    assert [found.output for found in done] == [f"c{n}|" for n in range(12)]
    assert len(transport._connections) == 1
    await transport.close()


async def test_a_server_without_a_session_to_spare_is_asked_again(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, key, known = served
    refusals = iter([True, True])
    start = asyncssh.SSHClientConnection.create_process

    async def full(self: Any, *words: Any, **options: Any) -> Any:
        if next(refusals, False):
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "open failed")
        return await start(self, *words, **options)

    monkeypatch.setattr(asyncssh.SSHClientConnection, "create_process", full)
    transport = SshTransport(key, known)
    done = await transport.run(host, ["id"], stdin="", seconds=60)
    assert done.output == "id|"
    assert next(refusals, None) is None
    await transport.close()


async def test_unknown_host_key_is_refused(served: Any, tmp_path: Path) -> None:
    host, key, _ = served
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(UnreachableError) as caught:
        await SshTransport(key, empty).run(host, ["id"], stdin="", seconds=60)
    assert str(caught.value) == (
        f"host key of h is not known — root@127.0.0.1:{host.port} — got Host key is not trusted "
        f"for host 127.0.0.1 / allowed a key in {empty} — compare the host's key with its console, "
        "then add it there"
    )


async def test_wrong_key_is_refused(served: Any, tmp_path: Path) -> None:
    host, _, known = served
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")
    with pytest.raises(UnreachableError) as caught:
        await SshTransport(tmp_path / "other", known).run(host, ["id"], stdin="", seconds=60)
    assert str(caught.value) == (
        f"h refuses the login — root@127.0.0.1:{host.port} — got Permission denied for user root "
        "on host 127.0.0.1 / allowed public key authentication, or the site's ansible_password — "
        "set bedplate:privateKey, or load the key into your SSH agent"
    )


async def test_a_host_that_does_not_answer_is_named(served: Any) -> None:
    host, key, known = served
    gone = host.model_copy(update={"port": 1})
    with pytest.raises(UnreachableError) as caught:
        await SshTransport(key, known).run(gone, ["id"], stdin="", seconds=60)
    assert str(caught.value).startswith("h cannot be reached — root@127.0.0.1:1 — got ")
    assert str(caught.value).endswith(
        "/ allowed an answer over SSH — start the host or correct its address; if it is gone "
        "permanently, set BEDPLATE_FORCE=true to forget it"
    )


def encrypt(key: Path) -> None:
    """Give a key file a passphrase, as the user's own tool does."""
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True)


@pytest.fixture
async def agent(served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """An SSH agent that has the client's key."""
    _, key, _ = served
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(120):
            while not path.exists():
                await asyncio.sleep(0.02)
        loaded = {**os.environ, "SSH_AUTH_SOCK": str(path)}
        subprocess.run(["ssh-add", "-q", key], check=True, env=loaded)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        yield str(path)
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("through", [False, True])
async def test_a_key_with_a_passphrase_comes_from_the_agent(
    through: bool, served: Any, agent: str
) -> None:
    host, key, known = served
    encrypt(key)
    transport = SshTransport(key, known)
    if through:
        jump = (f"root@127.0.0.1:{host.port}",)
        await transport._hop(host.model_copy(update={"jump": jump}), 1)
    else:
        assert (await transport.run(host, ["id"], stdin="", seconds=60)).output == "id|"
    await transport.close()


async def test_a_key_with_a_passphrase_and_no_agent(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, key, known = served
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    encrypt(key)
    with pytest.raises(UnreachableError) as caught:
        await SshTransport(key, known).run(host, ["id"], stdin="", seconds=60)
    assert str(caught.value).startswith("h refuses the login — ")
    assert str(caught.value).endswith("or load the key into your SSH agent")


@pytest.mark.parametrize("jump", [(), ("bastion",)])
async def test_a_file_that_is_no_key(jump: tuple[str, ...], served: Any, tmp_path: Path) -> None:
    host, _, known = served
    (tmp_path / "other").write_text("no key")
    reached = host.model_copy(update={"jump": jump})
    with pytest.raises(UnreachableError) as caught:
        await SshTransport(tmp_path / "other", known).run(reached, ["id"], stdin="", seconds=60)
    name, where = ("bastion bastion", "bastion") if jump else ("h", str(host))
    assert str(caught.value) == (
        f"settings of SSH for {name} cannot be used — {where} — got Invalid private key "
        f"({tmp_path / 'other'}) / allowed private keys, known hosts and a configuration of SSH "
        "that can be read — correct the file, or load the key into your SSH agent and name no file"
    )
