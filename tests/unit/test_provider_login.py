"""Passwords and options of SSH against a real server in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import asyncssh
import pytest

from bedplate.common.connection import Connection
from bedplate.provider.errors import ProviderError, UnreachableError
from bedplate.provider.ssh import SshTransport
from tests.unit.test_provider_ssh import answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECRET = "hunter2 'ü"


@dataclass
class Served:
    """A server, the site that has it, and the passwords that it was given."""

    site: Path
    host: Connection
    key: asyncssh.SSHKey
    host_key: str
    tried: list[str] = field(default_factory=list)
    interactive: bool = False

    def transport(self, known_hosts: Path | None = None) -> SshTransport:
        """Return a provider's transport, with the site's key if there is one."""
        own = self.site.parent / "key"
        return SshTransport(own if own.exists() else None, known_hosts, self.site)

    def known(self, text: str, name: str = "known") -> None:
        """Write a file of known hosts that has the server's key under one name."""
        (self.site.parent / name).write_text(f"{text} {self.host_key}")

    def having(self, *options: str) -> Connection:
        """Return how to reach the server with options."""
        return self.host.model_copy(update={"options": options})

    def give(self, **variables: str) -> None:
        """Write variables of all hosts of the site."""
        (self.site / "group_vars").mkdir(exist_ok=True)
        (self.site / "group_vars" / "all.yml").write_text(json.dumps(variables))


class Door(asyncssh.SSHServer):
    """Lets in who has the password, asked for in one of the two ways."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def password_auth_supported(self) -> bool:
        """Tell whether it is asked for as a password."""
        return not self._served.interactive

    def kbdint_auth_supported(self) -> bool:
        """Tell whether it is asked for as PAM does."""
        return self._served.interactive

    def validate_password(self, username: str, password: str) -> bool:
        """Keep a password, and judge it."""
        del username
        self._served.tried.append(password)
        return password == SECRET

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        """Ask as PAM does."""
        del username, lang, submethods
        return "", "", "", [("Password: ", False)]

    def validate_kbdint_response(self, username: str, responses: list[str]) -> bool:
        """Keep a password, and judge it."""
        return self.validate_password(username, responses[0])


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A server that takes a key, a certificate or a password."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    site = tmp_path / "site"
    site.mkdir()
    (site / "hosts.yml").write_text("all: {children: {control_plane: {hosts: {h: {}}}}}\n")
    host_key, key, authority = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))
    certificate = authority.generate_user_certificate(key, "lab", principals=["root"])
    certificate.write_certificate(tmp_path / "lab-cert.pub")
    signed = authority.export_public_key().decode()
    (tmp_path / "authorized").write_text(f"cert-authority {signed}")
    found = Served(site, Connection(name="h", address="127.0.0.1"), key, "")
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: Door(found),
        process_factory=answer,
        server_host_keys=[host_key],
        authorized_client_keys=str(tmp_path / "authorized"),
        encryption_algs=["aes256-ctr"],
    )
    found.host = found.host.model_copy(update={"port": listener.get_port()})
    found.host_key = host_key.export_public_key().decode()
    found.known(f"[127.0.0.1]:{found.host.port}")
    yield found
    listener.close()


KNOWN = "UserKnownHostsFile ../known"


@pytest.mark.parametrize("interactive", [False, True])
@pytest.mark.parametrize(
    "variable", ["ansible_password", "ansible_ssh_pass", "ansible_ssh_password"]
)
async def test_the_password_comes_from_the_site(
    variable: str, interactive: bool, served: Served
) -> None:
    served.interactive = interactive
    served.give(**{variable: "{{ mine }}", "mine": SECRET})
    transport = served.transport()
    for _ in range(2):
        done = await transport.run(served.having(KNOWN), ["id"], stdin="", seconds=60)
        assert done.output == "id|"
    await transport.close()
    assert served.tried == [SECRET], "once, for all commands"


async def test_a_file_of_ansible_cfg_has_it_too(served: Served) -> None:
    (served.site.parent / "password").write_text(f"{SECRET}\n")
    cfg = "[defaults]\nconnection_password_file = password\n"
    (served.site.parent / "ansible.cfg").write_text(cfg)
    transport = served.transport()
    host = served.having(KNOWN, "PreferredAuthentications password")
    assert (await transport.run(host, ["id"], stdin="", seconds=60)).output == "id|"
    await transport.close()


async def test_no_password_leaves_where_a_key_lets_in(served: Served) -> None:
    served.give(ansible_password=SECRET)
    served.key.write_private_key(served.site.parent / "key")
    transport = served.transport()
    host = served.having(KNOWN, "CertificateFile ../lab-cert.pub", "IdentitiesOnly yes")
    assert (await transport.run(host, ["id"], stdin="", seconds=60)).output == "id|"
    await transport.close()
    assert served.tried == []
    served.give(ansible_password="wrong")
    with pytest.raises(UnreachableError, match=r"^h refuses the password — "):
        await served.transport().run(served.having(KNOWN), ["id"], stdin="", seconds=60)


async def test_a_certificate_that_is_not_there(served: Served) -> None:
    host = served.having("CertificateFile keys/lab-cert.pub")
    with pytest.raises(UnreachableError, match=r"^certificate for h is not there — .*keys/lab-c"):
        await served.transport().run(host, ["id"], stdin="", seconds=60)


async def test_a_wrong_password_is_tried_once(served: Served) -> None:
    served.give(ansible_password="not-the-Secret")
    transport = served.transport()
    for _ in range(3):
        with pytest.raises(ProviderError) as caught:
            await transport.run(served.having(KNOWN), ["id"], stdin="", seconds=60)
    await transport.close()
    assert str(caught.value) == (
        f"h refuses the password — root@127.0.0.1:{served.host.port} — got Permission denied for "
        "user root on host 127.0.0.1 / allowed root's password there, or a key — correct "
        "ansible_password of this host"
    )
    assert served.tried == ["not-the-Secret"]


async def test_a_host_whose_key_is_unknown_gets_no_password(served: Served) -> None:
    served.give(ansible_password=SECRET)
    (served.site.parent / "empty").touch()
    host = served.having("UserKnownHostsFile ../empty")
    transport = served.transport(served.site.parent / "known")
    with pytest.raises(UnreachableError, match=r"^host key of h is not known"):
        await transport.run(host, ["id"], stdin="", seconds=60)
    assert served.tried == []


@pytest.mark.parametrize(
    ("known", "options", "reached"),
    [
        ("gpu", ("UserKnownHostsFile ../other", "HostKeyAlias gpu"), True),
        ("gpu", ("UserKnownHostsFile ../missing ../other", "HostKeyAlias gpu"), True),
        ("gpu", ("GlobalKnownHostsFile ../other", "HostKeyAlias gpu"), True),
        ("gpu", ("UserKnownHostsFile none", "GlobalKnownHostsFile ../other"), False),
        ("[127.0.0.1]:{}", ("UserKnownHostsFile ../other",), True),
        # ssh looks for an alias alone: neither for the address nor with the port.
        ("[127.0.0.1]:{}", ("UserKnownHostsFile ../other", "HostKeyAlias gpu"), False),
        ("[gpu]:{}", ("UserKnownHostsFile ../other", "HostKeyAlias gpu"), False),
        ("gpu", ("UserKnownHostsFile ../other",), False),
    ],
)
async def test_a_host_is_known_as_ssh_knows_it(
    known: str, options: tuple[str, ...], reached: bool, served: Served
) -> None:
    served.give(ansible_password=SECRET)
    served.known(known.format(served.host.port), "other")
    transport = served.transport()
    if reached:
        done = await transport.run(served.having(*options), ["id"], stdin="", seconds=60)
        assert done.output == "id|"
    else:
        with pytest.raises(UnreachableError, match=r"^host key of h is not known"):
            await transport.run(served.having(*options), ["id"], stdin="", seconds=60)
    await transport.close()


async def test_the_options_of_a_host_are_not_those_of_its_bastion(served: Served) -> None:
    """Its known hosts are: that is how Ansible's users write them."""
    served.give(ansible_password=SECRET)
    served.key.write_private_key(served.site.parent / "key")
    (served.site.parent / "key-cert.pub").write_text(
        (served.site.parent / "lab-cert.pub").read_text()
    )
    jump = (f"root@127.0.0.1:{served.host.port}",)
    host = served.having(KNOWN, "HostKeyAlias gpu").model_copy(update={"jump": jump})
    transport = served.transport()
    await transport._hop(host, 1)
    await transport.close()


@pytest.mark.parametrize(("cipher", "said"), [("aes256-ctr", None), ("aes128-ctr", "encryption")])
async def test_the_ciphers_are_those_of_the_option(
    cipher: str, said: str | None, served: Served
) -> None:
    served.give(ansible_password=SECRET)
    transport, host = served.transport(), served.having(KNOWN, f"Ciphers {cipher}")
    if said is None:
        assert (await transport.run(host, ["id"], stdin="", seconds=60)).output == "id|"
    else:
        with pytest.raises(UnreachableError, match=said):
            await transport.run(host, ["id"], stdin="", seconds=60)
    await transport.close()


@pytest.mark.parametrize("user", ["root", "ops"])
async def test_a_site_that_cannot_be_read(user: str, served: Served) -> None:
    (served.site / "hosts.yml").write_text("all: [")
    host = served.having(KNOWN).model_copy(update={"user": user})
    with pytest.raises(ProviderError, match=r"^SSH's password cannot be read — .*site"):
        await served.transport().run(host, ["id"], stdin="", seconds=60)
