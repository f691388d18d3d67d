"""Root by sudo over a real SSH server: the password and the command's input never mix.

The server runs what it is asked to; its `sudo` is a program of these tests that behaves as sudo
does with `-S` and `-p`. It reads a byte at a time, as sudo does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import asyncssh
import pytest

from bedplate.common.connection import Connection
from bedplate.provider.errors import ProviderError
from bedplate.provider.ssh import SESSIONS, SshTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECRET = "hunter2 $(reboot) 'ü"
#: secure_path of sudo on RHEL and Rocky.
SECURE = "/sbin:/bin:/usr/sbin:/usr/bin"
#: Reads as sudo does: a byte at a time, no further than the line's end.
SUDO = """#!{python}
import os, sys
words = sys.argv[1:]
assert words[0] == "-S" and words[1] == "-p" and words[3] == "--", words
mode = open({folder!r} + "/mode").read()
with open({folder!r} + "/argv", "a") as out:
    out.write(repr(sys.argv) + "\\n")
if mode == "tty":
    sys.exit("sudo: sorry, you must have a tty to run sudo")
for _ in range(3 if mode == "password" else 0):
    sys.stderr.write(words[2])
    sys.stderr.flush()
    line = b""
    while not line.endswith(b"\\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit("sudo: no password was provided")
        line += byte
    with open({folder!r} + "/tries", "a") as out:
        out.write("try\\n")
    if line.decode().rstrip("\\n") == {secret!r}:
        break
    sys.stderr.write("Sorry, try again.\\n")
else:
    if mode == "password":
        sys.exit("sudo: 3 incorrect password attempts")
os.environ["PATH"] = {secure!r}
os.execvp(words[4], words[4:])
"""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Connection, SshTransport]]:
    """How to reach a server as a user who is not root, and the transport with a site."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "hosts.yml").write_text("all: {children: {control_plane: {hosts: {h: {}}}}}\n")
    (tmp_path / "sudo").write_text(
        SUDO.format(python=sys.executable, folder=str(tmp_path), secret=SECRET, secure=SECURE)
    )
    (tmp_path / "sudo").chmod(0o755)
    (tmp_path / "mode").write_text("password")

    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            process.command or "",
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        status = await child.wait()
        await process.stdout.drain()
        process.exit(status)

    host_key, key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    key.write_private_key(tmp_path / "key")
    key.write_public_key(tmp_path / "authorized")
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        process_factory=serve,
        encoding=None,
        server_host_keys=[host_key],
        authorized_client_keys=str(tmp_path / "authorized"),
    )
    port = listener.get_port()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
    transport = SshTransport(tmp_path / "key", known, site)
    yield Connection(name="h", address="127.0.0.1", port=port, user="ops"), transport
    await transport.close()
    listener.close()


def give(folder: Path, variables: dict[str, Any]) -> None:
    """Write variables of all hosts of the site."""
    (folder / "site" / "group_vars").mkdir(exist_ok=True)
    (folder / "site" / "group_vars" / "all.yml").write_text(json.dumps(variables))


@pytest.mark.parametrize(
    "variable", ["ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"]
)
@pytest.mark.parametrize("stdin", ["text\nmore\n", ""])
async def test_the_password_comes_from_the_site(
    variable: str, stdin: str, served: Any, tmp_path: Path
) -> None:
    host, transport = served
    give(tmp_path, {variable: "{{ mine }}", "mine": SECRET})
    done = await transport.run(host, ["cat"], stdin=stdin, seconds=60)
    assert (done.status, done.output, done.errors) == (0, stdin, "")
    assert SECRET not in (tmp_path / "argv").read_text()


async def test_the_environment_has_a_password_too(
    served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, transport = served
    monkeypatch.setenv("ANSIBLE_BECOME_PASS", SECRET)
    done = await transport.run(host, ["sh", "-c", "echo no >&2; exit 3"], stdin="", seconds=60)
    assert (done.status, done.output, done.errors) == (3, "", "no\n")


async def test_a_host_that_left_the_site_has_what_all_have(served: Any, tmp_path: Path) -> None:
    """It is to leave the cluster as well."""
    host, transport = served
    give(tmp_path, {"ansible_become_password": SECRET})
    gone = host.model_copy(update={"name": "gone"})
    assert (await transport.run(gone, ["cat"], stdin="x", seconds=60)).output == "x"


async def test_no_password_is_given_to_who_does_not_ask(served: Any, tmp_path: Path) -> None:
    """Whatever is in the site: the command would read it as its input."""
    host, transport = served
    give(tmp_path, {"ansible_become_password": SECRET})
    (tmp_path / "mode").write_text("free")
    done = await transport.run(host, ["cat"], stdin="text", seconds=60)
    assert (done.status, done.output) == (0, "text")


@pytest.mark.parametrize("mode", ["password", "free"])
async def test_programs_in_usr_local_are_found(mode: str, served: Any, tmp_path: Path) -> None:
    host, transport = served
    give(tmp_path, {"ansible_become_password": SECRET})
    (tmp_path / "mode").write_text(mode)
    done = await transport.run(host, ["sh", "-c", 'echo "$PATH"'], stdin="", seconds=60)
    assert done.output == f"/usr/local/sbin:/usr/local/bin:{SECURE}\n"


async def test_a_wrong_password_is_tried_once(
    served: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host, transport = served
    give(tmp_path, {"ansible_become_password": "wr0ng-secret"})
    for _ in range(2):
        with pytest.raises(ProviderError) as caught:
            await transport.run(host, ["cat"], stdin="text", seconds=60)
        assert str(caught.value) == (
            f"sudo on h refuses the password — ops@127.0.0.1:{host.port} — got Sorry, try again. / "
            "allowed ops's password there — correct ansible_become_password of this host"
        )
    assert (tmp_path / "tries").read_text() == "try\n"
    del caught
    await asyncio.sleep(0.1)
    gc.collect()
    assert "never retrieved" not in caplog.text, "asyncio would show a traceback for it"


async def test_commands_at_once_try_a_wrong_password_once(served: Any, tmp_path: Path) -> None:
    """Six wrong answers would lock the account; so might a prompt that is left."""
    host, transport = served
    give(tmp_path, {"ansible_become_password": "wr0ng-secret"})
    runs = (transport.run(host, ["cat"], stdin="text", seconds=60) for _ in range(SESSIONS))
    for refused in await asyncio.gather(*runs, return_exceptions=True):
        assert isinstance(refused, ProviderError)
        assert str(refused).startswith("sudo on h refuses the password — ")
    assert (tmp_path / "tries").read_text() == "try\n"
    assert len((tmp_path / "argv").read_text().splitlines()) == 1


async def test_commands_run_at_once_as_soon_as_the_first_is_root(
    served: Any, tmp_path: Path
) -> None:
    host, transport = served
    give(tmp_path, {"ansible_become_password": SECRET})
    waits = ["sh", "-c", 'until [ -e "$0" ]; do sleep 0.1; done', str(tmp_path / "there")]
    first = asyncio.ensure_future(transport.run(host, waits, stdin="", seconds=120))
    async with asyncio.timeout(120):
        while not (tmp_path / "argv").exists():
            await asyncio.sleep(0.1)
    await transport.run(host, ["touch", str(tmp_path / "there")], stdin="", seconds=120)
    assert (await first).status == 0


async def test_no_password_in_the_site(served: Any) -> None:
    host, transport = served
    with pytest.raises(ProviderError) as caught:
        await transport.run(host, ["cat"], stdin="text", seconds=60)
    assert str(caught.value) == (
        f"sudo on h wants a password, and the site has none — ops@127.0.0.1:{host.port} — got no "
        "word from sudo / allowed ansible_become_password in the site, best in a vault; or sudo "
        "without one — set it for this host, or ANSIBLE_BECOME_PASS in the environment of pulumi"
    )


async def test_sudo_that_wants_a_tty(served: Any, tmp_path: Path) -> None:
    host, transport = served
    (tmp_path / "mode").write_text("tty")
    with pytest.raises(ProviderError) as caught:
        await transport.run(host, ["cat"], stdin="text", seconds=60)
    assert "sudo: sorry, you must have a tty to run sudo" in str(caught.value)
    assert "no requiretty" in str(caught.value)


async def test_a_site_that_cannot_be_read(served: Any, tmp_path: Path) -> None:
    host, transport = served
    give(tmp_path, {"ansible_become_password": "{{ nothing }}"})
    with pytest.raises(ProviderError) as caught:
        await transport.run(host, ["cat"], stdin="text", seconds=60)
    assert str(caught.value).startswith("sudo's password cannot be read — ")
    assert "'nothing' is undefined" in str(caught.value)
