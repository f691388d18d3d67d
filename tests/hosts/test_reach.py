"""A host behind a bastion, whose sudo wants a password: reached by Ansible and by the provider."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.provider.deadline import Deadline
from bedplate.provider.errors import ProviderError, UnreachableError
from bedplate.provider.hosts import Hosts
from bedplate.provider.ssh import SshTransport
from bedplate.site import load_site
from tests.substrate.hosts import containers, description

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.common.connection import Connection

ROOT = Path(__file__).parents[2]
DESCRIPTION = ROOT / "tests/substrate/hosts/reach.yml"
SECRET = "planted-Secret-7 'x"
SETTINGS = """\
ansible_user: ops
ansible_become: true
ansible_ssh_private_key_file: "{{ inventory_dir }}/.bedplate/ssh/id_ed25519"
ansible_ssh_common_args: >-
  -o UserKnownHostsFile={{ inventory_dir }}/.bedplate/ssh/known_hosts
  -o ProxyCommand="ssh -i {{ inventory_dir }}/.bedplate/ssh/id_ed25519
  -o UserKnownHostsFile={{ inventory_dir }}/.bedplate/ssh/known_hosts -W %h:%p root@10.213.12.12"
bedplate_host: {os: debian-12}
bedplate_kubernetes: {endpoint: "10.213.12.11:6443"}
"""
#: As root in the container. The machine that the tests run on is the network's gateway.
PREPARE = """
useradd --create-home --shell /bin/bash ops
chpasswd
install -d -o ops -g ops -m 700 /home/ops/.ssh
install -o ops -g ops -m 600 /root/.ssh/authorized_keys /home/ops/.ssh/authorized_keys
echo 'ops ALL=(ALL) ALL' > /etc/sudoers.d/ops
ip route add unreachable 10.213.12.1
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The site of the two hosts, which are up and closed."""
    folder = tmp_path_factory.mktemp("reach") / "site"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text(
        "all: {children: {control_plane: {hosts: {node: {ansible_host: 10.213.12.11}}}}}\n"
    )
    (folder / "group_vars" / "control_plane.yml").write_text(SETTINGS)
    command = [sys.executable, "-m", "tests.substrate"]
    down = [*command, "down", str(DESCRIPTION), "--site", str(folder)]
    up = [*command, "up", str(DESCRIPTION), "--site", str(folder), "--no-mirror"]
    subprocess.run(down, cwd=ROOT, check=True)
    try:
        subprocess.run(up, cwd=ROOT, check=True)
        given = f"ops:{SECRET}\n".encode()
        containers.execute(node(), "sh", "-ec", PREPARE, stdin=given)
        yield folder
    finally:
        subprocess.run(down, cwd=ROOT, check=True)


def node() -> str:
    """Return the container of the host behind the bastion."""
    known = description.load(DESCRIPTION)
    return known.container(known.host("node"))


def give(site: Path, password: str | None) -> Connection:
    """Write sudo's password into the site and return how the host is reached."""
    file = site / "group_vars" / "all.yml"
    file.write_text(yaml.safe_dump({"ansible_become_password": password} if password else {}))
    return load_site(site).hosts["node"].connection


def by_ansible(site: Path) -> tuple[int, str]:
    """Ask the host by Ansible who runs its tasks."""
    settings = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_SSH_ARGS": "-F none"}
    command = [str(Path(sys.executable).parent / "ansible"), "node", "-i", str(site)]
    done = subprocess.run(
        [*command, "-m", "ansible.builtin.command", "-a", "id -un"],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def by_provider(site: Path, host: Connection) -> tuple[str, bool]:
    """Ask the host by the provider who it is, and whether it is in a cluster."""
    ssh = site / ".bedplate" / "ssh"

    async def ask() -> tuple[str, bool]:
        transport = SshTransport(ssh / "id_ed25519", ssh / "known_hosts", site)
        hosts, deadline = Hosts(transport), Deadline("the test", 300)
        try:
            name = await hosts.run(host, ["id", "-un"], deadline)
            found = await hosts.ask(host, {"action": "access"}, deadline)
        finally:
            await transport.close()
        return name.strip(), bool(found["member"])

    return asyncio.run(ask())


def test_the_host_has_one_way_in(site: Path) -> None:
    host = give(site, SECRET)
    assert host.jump == ("root@10.213.12.12",)
    with pytest.raises(UnreachableError) as caught:
        by_provider(site, host.model_copy(update={"jump": ()}))
    assert "node cannot be reached" in str(caught.value)


def test_both_come_through_the_bastion_and_are_root(site: Path) -> None:
    host = give(site, SECRET)
    code, said = by_ansible(site)
    assert code == 0, said
    assert "root" in said
    assert by_provider(site, host) == ("root", False)


def test_a_wrong_password_is_told_by_both(site: Path) -> None:
    host = give(site, "not-the-Secret-9")
    code, said = by_ansible(site)
    assert code != 0
    assert "Incorrect sudo password" in said
    with pytest.raises(ProviderError) as caught:
        by_provider(site, host)
    assert "sudo on node refuses the password — ops@10.213.12.11:22 through " in str(caught.value)
    assert "not-the-Secret-9" not in said + str(caught.value)


def test_no_password_is_told_by_both(site: Path) -> None:
    host = give(site, None)
    code, said = by_ansible(site)
    assert code != 0
    assert "Missing sudo password" in said
    with pytest.raises(ProviderError) as caught:
        by_provider(site, host)
    assert "sudo on node wants a password, and the site has none" in str(caught.value)


def test_the_key_of_a_bastion_is_checked(site: Path) -> None:
    host = give(site, SECRET)
    known = site / ".bedplate" / "ssh" / "known_hosts"
    text = known.read_text()
    known.write_text("".join(x for x in text.splitlines(True) if "10.213.12.12" not in x))
    try:
        with pytest.raises(UnreachableError) as caught:
            by_provider(site, host)
    finally:
        known.write_text(text)
    assert "host key of bastion 10.213.12.12 is not known — root@10.213.12.12" in str(caught.value)


def test_the_password_is_in_no_log_and_no_command(site: Path) -> None:
    """The host's journal has every command of sudo with its arguments."""
    host = give(site, SECRET)
    assert by_provider(site, host)[0] == "root"
    journal = containers.execute(node(), "journalctl", "--no-pager", "--output=cat")
    assert "COMMAND=" in journal
    assert SECRET.split()[0] not in journal
