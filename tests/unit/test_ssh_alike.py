"""Ansible's own command line, as the real ssh understands it, against what the provider does.

The command is made by Ansible's plugin; `ssh -G` prints what it would do with it.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh
import pytest
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from bedplate.provider.openssh import Options
from bedplate.site import addresses
from bedplate.site.effective import RawHost
from bedplate.site.places import Places
from bedplate.site.reach import Reaches

if TYPE_CHECKING:
    from bedplate.common.connection import Connection

NAME = "gpu-1"
#: Pieces of command lines: what is carried, and what is harmless. ssh takes the first of each.
PIECES = (
    "-C",
    "-q",
    "-A",
    "-4",
    "-6",
    "-p 2022",
    "-o Port=2023",
    "-l ops",
    "-o 'User admin'",
    "-o ControlMaster=auto -o ControlPersist=60s",
    "-o ServerAliveInterval=30",
    "-o StrictHostKeyChecking=accept-new",
    "-o UserKnownHostsFile=/known/one",
    "-o 'UserKnownHostsFile=/known/one /known/two'",
    "-oUserKnownHostsFile=~/.ssh/lab_hosts",
    "-o GlobalKnownHostsFile=/known/all",
    "-o HostKeyAlias=gpu",
    "-o hostkeyalias=other",
    "-o CertificateFile=/keys/lab-cert.pub",
    "-o CertificateFile=/keys/other-cert.pub",
    "-i lab",
    "-o IdentityFile=other",
    "-o IdentitiesOnly=yes",
    "-o IdentityAgent=/run/agent",
    "-c aes256-ctr",
    "-o Ciphers=aes128-ctr,aes256-ctr",
    "-o MACs=hmac-sha2-256",
    "-m hmac-sha2-512",
    "-o KexAlgorithms=curve25519-sha256",
    "-o HostKeyAlgorithms=ssh-ed25519",
    "-o BindAddress=127.0.0.1",
    "-o PubkeyAuthentication=yes",
    "-o PasswordAuthentication=no",
    "-o PreferredAuthentications=publickey,password",
    "-J bastion",
    "-o ProxyJump=me@bastion:2222,second",
)
SOURCES = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
OF_VARIABLES = {
    "ansible_port": 2201,
    "ansible_user": "ansible",
    "ansible_ssh_private_key_file": "a",
}


def by_ssh(variables: dict[str, Any]) -> dict[str, list[str]]:
    """Return what ssh makes of Ansible's command line: the values of each option."""
    context = PlayContext()
    plugin = connection_loader.get("ssh", context)
    plugin.set_options(var_options={"inventory_hostname": NAME, **variables})
    command = plugin._build_command("ssh", "ssh", "-F", "none", "-G", plugin.get_option("host"))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def by_plan(variables: dict[str, Any], site: Path) -> Connection:
    """Return how the plan says that the host is reached."""
    wishes = {"bedplate_kubernetes": {}}  # a node: Pulumi reaches it too
    raw = RawHost(NAME, ("workers",), wishes, variables, Reaches().of(NAME, variables), Places({}))
    found, problems = addresses.reached(raw, site)
    assert not problems, problems
    assert found is not None
    return found.connection


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with keys: ssh leaves out what -i names and is not there."""
    (tmp_path / "site").mkdir()
    for name in ("lab", "other", "a"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "site"


def alike(variables: dict[str, Any], site: Path) -> None:
    """Compare the two, for each thing that decides which host is reached and how it is known."""
    wanted, host = by_ssh(variables), by_plan(variables, site)
    openssh = Options(site, None)
    configured = openssh.configuration(host.model_copy(update={"config": "none"}), password=False)
    found = asyncssh.SSHClientConnectionOptions(
        host=host.address, port=host.port, username=host.user, client_keys=None, **configured
    )
    config = found.config
    jump = ",".join(host.jump) or None
    assert [found.host, str(found.port), found.username, jump] == [
        wanted["hostname"][0],
        wanted["port"][0],
        wanted["user"][0],
        wanted.get("proxyjump", [None])[0],
    ]
    known = {name: _named(openssh, host, name) for name in ("user", "global")}
    for name, files in known.items():
        if files is not None:
            assert files == wanted[f"{name}knownhostsfile"][0].split()
        else:
            assert "/known/" not in wanted[f"{name}knownhostsfile"][0]
    texts = {
        "hostkeyalias": found.host_key_alias,
        "ciphers": config.get("Ciphers"),
        "macs": config.get("MACs"),
        "kexalgorithms": config.get("KexAlgorithms"),
        "hostkeyalgorithms": config.get("HostKeyAlgorithms"),
        "bindaddress": config.get("BindAddress"),
        "identityagent": config.get("IdentityAgent"),
        "preferredauthentications": config.get("PreferredAuthentications"),
    }
    for name, value in texts.items():
        if value is not None:
            assert value == wanted[name][0], name
        elif name in {"hostkeyalias", "bindaddress", "identityagent"}:
            assert name not in wanted, name
    family = {"any": 0, "inet": 2, "inet6": 10}[wanted["addressfamily"][0]]
    assert int(config.get("AddressFamily", 0)) == family  # type: ignore[call-overload]
    assert bool(config.get("IdentitiesOnly")) is (wanted["identitiesonly"] == ["yes"])
    assert config.get("CertificateFile", []) == wanted.get("certificatefile", [])
    if host.keys:
        # Ansible's own is in another place among them.
        keys = sorted(str(openssh.path(key).resolve()) for key in host.keys)
        assert keys == sorted(str(Path(key).resolve()) for key in wanted["identityfile"])
    openssh.close()


def _named(openssh: Options, host: Connection, whose: str) -> list[str] | None:
    option = {"user": "UserKnownHostsFile", "global": "GlobalKnownHostsFile"}[whose]
    found = openssh._named(host, option)
    return None if found is None else [str(path) for path in found]


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("source", SOURCES)
def test_each_option_is_taken_as_ssh_takes_it(piece: str, source: str, folder: Path) -> None:
    alike({source: piece, "ansible_user": "root", "ansible_host": "192.0.2.7"}, folder)


@pytest.mark.parametrize("seed", range(60))
def test_of_several_the_same_one_wins(seed: int, folder: Path) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same cases each time
    variables: dict[str, Any] = {"ansible_host": "192.0.2.7", "ansible_become": True}
    variables |= {name: one for name, one in OF_VARIABLES.items() if chance.random() < 0.5}
    jumps = [piece for piece in PIECES if piece.startswith(("-J", "-o ProxyJump"))]
    others = [piece for piece in PIECES if piece not in jumps]
    # ssh refuses a second -J.
    for name, jump in zip(SOURCES, chance.sample([*jumps[1:], "", ""], 3), strict=True):
        pieces = [*chance.sample(others, chance.randrange(8)), jump]
        variables[name] = " ".join(chance.sample(pieces, len(pieces)))
    variables.setdefault("ansible_user", "root")
    alike(variables, folder)
