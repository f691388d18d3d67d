"""How hosts are reached, as Ansible resolves it: what the lock has of it, and what is refused.

Each case is a plan in a process of its own: Ansible reads its settings when it is imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.common.connection import Connection
from bedplate.common.errors import SiteError
from bedplate.lock import load_lock
from bedplate.site import load_site
from tests.unit.test_site_broken import broken, plan

if TYPE_CHECKING:
    from pathlib import Path

OLD = "gpu-b: {ansible_host: 10.213.0.22}"
DIRECT: dict[str, Any] = {"address": "10.213.0.22", "port": 22, "user": "root"}


@pytest.fixture(autouse=True)
def ansible_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of whoever runs the tests take part."""
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)


def site(folder: Path, host: str = OLD, variables: str = "", cfg: str = "") -> Path:
    """Make the demo's site with its last host so, variables of all hosts, and an ansible.cfg."""
    made = broken(folder, {"replace": {"hosts.yml": [OLD, host]}})
    for group in ("gpu_pools", "control_plane"):
        (made / "group_vars" / f"{group}.yml").write_text(variables)
    (folder / "ansible.cfg").write_text(cfg)
    return made


def reached(folder: Path, name: str = "gpu-b") -> dict[str, Any]:
    """Plan the site in *folder* and return how a host is reached: what the lock says of it."""
    done = plan(folder)
    assert done.returncode == 0, done.stderr
    connection = load_lock(folder / "site").hosts[name].connection(name)
    kept = {"address", "port", "user"}
    found = connection.model_dump(exclude={"name"})
    default = Connection(name=name, address="x").model_dump()
    return {key: value for key, value in found.items() if key in kept or value != default[key]}


@pytest.mark.parametrize(
    ("host", "variables", "cfg", "environment", "wanted"),
    [
        pytest.param(OLD, "", "", {}, {}, id="plain"),
        pytest.param(
            "gpu-b: {ansible_ssh_host: 10.0.0.1, ansible_ssh_user: ubuntu, ansible_ssh_port: 2222}",
            "ansible_become: true\n",
            "",
            {},
            {"address": "10.0.0.1", "port": 2222, "user": "ubuntu"},
            id="older-names",
        ),
        pytest.param(
            "gpu-b: {ansible_host: 10.0.0.1, ansible_ssh_host: 10.0.0.2}",
            "",
            "",
            {},
            {"address": "10.0.0.2"},
            id="both-names",
        ),
        pytest.param(
            OLD,
            "ansible_become: true\n",
            "[defaults]\nremote_user = ubuntu\nremote_port = 2200\n",
            {},
            {"user": "ubuntu", "port": 2200},
            id="ansible.cfg",
        ),
        pytest.param(
            OLD,
            "ansible_become: true\n",
            "[defaults]\nremote_user = ubuntu\nremote_port = 2200\n",
            {"ANSIBLE_REMOTE_USER": "admin", "ANSIBLE_REMOTE_PORT": "2201"},
            {"user": "admin", "port": 2201},
            id="environment-wins",
        ),
        pytest.param(
            "gpu-b: {ansible_host: 10.213.0.22, ansible_user: ops}",
            "ansible_port: 2202\nansible_become: true\n",
            "[defaults]\nremote_user = ubuntu\nremote_port = 2200\n",
            {"ANSIBLE_REMOTE_USER": "admin"},
            {"user": "ops", "port": 2202},
            id="variables-win",
        ),
        pytest.param(
            OLD,
            "ansible_ssh_common_args: -o ProxyJump=bastion.example\n",
            "",
            {},
            {"jump": ("bastion.example",)},
            id="proxy-jump",
        ),
        pytest.param(
            OLD,
            "ansible_ssh_extra_args: -J ops@bastion.example:2222,[fd00::1]\n",
            "",
            {},
            {"jump": ("ops@bastion.example:2222", "[fd00::1]")},
            id="two-hops",
        ),
        pytest.param(
            OLD,
            "",
            "[ssh_connection]\nssh_args = -C -o ControlMaster=auto -J bastion.example\n",
            {},
            {"jump": ("bastion.example",)},
            id="ansible.cfg",
        ),
        pytest.param(
            OLD,
            "bastion: 192.0.2.9\n"
            "ansible_ssh_common_args: >-\n"
            '  -o ProxyCommand="ssh -W %h:%p -q -i {{ inventory_dir }}/keys/bastion'
            ' ops@{{ bastion }}"\n',
            "",
            {},
            {"jump": ("ops@192.0.2.9",), "keys": ("keys/bastion",)},
            id="proxy-command",
        ),
        pytest.param(
            OLD,
            "ansible_ssh_common_args: -J {{ hostvars['cp1'].ansible_host }}\n",
            "",
            {},
            {"jump": ("10.213.0.11",)},
            id="another-hosts-variable",
        ),
        pytest.param(
            "gpu-b: {ansible_host: 10.213.0.22, ansible_ssh_common_args: -o ProxyJump=none}",
            "ansible_ssh_common_args: -J bastion.example\n",
            "",
            {},
            {},
            id="none-for-one-host",
        ),
        pytest.param(
            OLD,
            "ansible_ssh_private_key_file: ~/.ssh/lab\n",
            "",
            {},
            {"keys": ("~/.ssh/lab",)},
            id="key-of-the-home",
        ),
        pytest.param(
            OLD,
            'ansible_ssh_private_key_file: "{{ inventory_dir }}/.bedplate/ssh/id_ed25519"\n',
            "",
            {},
            {},
            id="the-sites-own-key",
        ),
        pytest.param(
            OLD,
            "",
            "[defaults]\nprivate_key_file = keys/lab\n[ssh_connection]\nssh_args = -F ssh.cfg\n",
            {"ANSIBLE_SSH_EXTRA_ARGS": "-i /etc/keys/other"},
            {"keys": ("../keys/lab", "/etc/keys/other"), "config": "../ssh.cfg"},
            id="files-beside-ansible.cfg",
        ),
        pytest.param(
            OLD,
            "",
            "",
            {"ANSIBLE_PRIVATE_KEY_FILE": "~/.ssh/mine"},
            {},
            id="the-planners-own-key",
        ),
        pytest.param(
            "gpu-b: {ansible_host: 'fd00:0:0::22', ansible_connection: ansible.builtin.ssh}",
            "",
            "",
            {},
            {"address": "fd00:0:0::22"},
            id="IPv6",
        ),
        pytest.param(
            OLD,
            "ansible_ssh_common_args: -o UserKnownHostsFile=./known_hosts -o HostKeyAlias=gpu\n",
            "",
            {},
            {"options": ("HostKeyAlias gpu", "UserKnownHostsFile ../known_hosts")},
            id="known-by-another-name",
        ),
        pytest.param(
            OLD,
            "ansible_ssh_common_args: >-\n  -o UserKnownHostsFile={{ inventory_dir }}/a -c "
            "aes256-ctr -o CertificateFile=~/.ssh/lab-cert.pub -o 'MACs +hmac-sha1' -o Ciphers=x\n",
            "[ssh_connection]\nssh_args = -C -o ControlMaster=auto -o ServerAliveInterval=30\n",
            {"ANSIBLE_SSH_EXTRA_ARGS": "-4 -o StrictHostKeyChecking=accept-new"},
            {
                "options": (
                    "AddressFamily inet",
                    "CertificateFile '~/.ssh/lab-cert.pub'",
                    "Ciphers aes256-ctr",
                    "MACs +hmac-sha1",
                    "UserKnownHostsFile a",
                )
            },
            id="options-of-each-source",
        ),
        pytest.param(
            OLD,
            "ansible_ssh_common_args: >-\n"
            "  -o UserKnownHostsFile={{ inventory_dir }}/.bedplate/ssh/known_hosts\n",
            "",
            {},
            {},
            id="the-sites-own-known-hosts",
        ),
        pytest.param(
            OLD,
            "ansible_port: 2201\nansible_user: ops\nansible_become: true\n"
            "ansible_ssh_args: -p 2202 -l root\nansible_ssh_extra_args: -p 2203\n",
            "",
            {},
            {"port": 2202},
            id="ansible-writes-ssh_args-first",
        ),
        pytest.param(
            OLD,
            'ansible_user: ops\nansible_become: true\nansible_ssh_pass: "{{ nowhere }}"\n',
            "",
            {},
            {"user": "ops"},
            id="nor-is-that-of-ssh",
        ),
        pytest.param(
            OLD,
            "ansible_user: ops\nansible_become: true\nansible_become_method: sudo\n"
            "ansible_become_password: \"{{ lookup('file', '/nowhere/secret') }}\"\n",
            "",
            {},
            {"user": "ops"},
            id="a-password-is-not-looked-at",
        ),
    ],
)
def test_hosts_are_reached_as_ansible_reaches_them(
    host: str,
    variables: str,
    cfg: str,
    environment: dict[str, str],
    wanted: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site(tmp_path, host, variables, cfg)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert reached(tmp_path) == DIRECT | wanted


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (
            "gpu-b: {ansible_host: '[fd00::1]'}",
            (
                "{}: no address — ansible_host — got '[fd00::1]' / allowed an IP "
                "address or a host's name, without brackets, port or blanks — write ansible_host: "
                "fd00::1"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_host: '10.0.0.1:2222'}",
            (
                "{}: no address — ansible_ssh_host — got '10.0.0.1:2222' / allowed an "
                "IP address or a host's name, without brackets, port or blanks — write "
                "ansible_ssh_host: 10.0.0.1 and ansible_port: 2222"
            ),
        ),
        (
            "gpu-b: {ansible_host: ' 10.0.0.1 '}",
            (
                "{}: no address — ansible_host — got ' 10.0.0.1 ' / allowed an IP "
                "address or a host's name, without brackets, port or blanks — write ansible_host: "
                "10.0.0.1"
            ),
        ),
        (
            "gpu-b: {ansible_host: ops@10.0.0.1}",
            (
                "{}: no address — ansible_host — got 'ops@10.0.0.1' / allowed an IP "
                "address or a host's name, without brackets, port or blanks — write ansible_host: "
                "10.0.0.1 and ansible_user: ops"
            ),
        ),
        (
            "gpu-b: {ansible_host: 10.0.0.256}",
            (
                "{}: no address — ansible_host — got '10.0.0.256' / allowed an IP "
                "address or a host's name, without brackets, port or blanks — write the address "
                "alone, as ansible_host: 192.0.2.10"
            ),
        ),
        (
            "gpu-b: {ansible_connection: docker}",
            (
                "{}: connection is not SSH — ansible_connection — got docker / "
                "allowed ssh: Pulumi connects to the host too — remove ansible_connection, or set "
                "it to ssh"
            ),
        ),
        (
            "gpu-b: {ansible_become_method: su, ansible_user: ops, ansible_become: true}",
            (
                "{}: root by another way than sudo — ansible_become_method — got su / "
                "allowed sudo, which Pulumi uses too — set ansible_become_method: sudo, or "
                "ansible_become: false with ansible_user: root"
            ),
        ),
        (
            "gpu-b: {ansible_become_user: ops, ansible_become: true}",
            (
                "{}: tasks run as a user other than root — ansible_become_user — got "
                "ops / allowed root — remove it: Bedplate's tasks need root"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_common_args: -o ProxyCommand='nc -X 5 -x p:1080 %h %p'}",
            (
                "{}: connection goes through a command — ansible_ssh_common_args — "
                "got nc -X 5 -x p:1080 %h %p / allowed a way through other hosts by SSH: -J, "
                "ProxyJump, or ssh -W %h:%p — write -o ProxyJump=USER@BASTION, or put the command "
                "into ~/.ssh/config: both Ansible and Pulumi read it"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_common_args: -J a:b:c}",
            (
                "{}: arguments cannot be read — ansible_ssh_common_args — got a:b:c "
                "is not user@host:port / allowed arguments of ssh — correct them"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_common_args: -o StrictHostKeyChecking=no}",
            (
                "{}: host keys are not checked — ansible_ssh_common_args — got "
                "StrictHostKeyChecking no / allowed yes, ask or accept-new: Pulumi checks host "
                "keys — write accept-new, or remove it and have the hosts' keys in known_hosts"
            ),
        ),
        (
            "gpu-b: {ansible_host_key_checking: false}",
            (
                "site/hosts.yml:14:13: host keys are not checked — ansible_host_key_checking — "
                "got False / allowed true: Pulumi checks host keys — remove it and have the "
                "hosts' keys in known_hosts, or take those of the first connection: "
                "ansible_ssh_common_args: -o StrictHostKeyChecking=accept-new"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_args: -o HostName=192.0.2.7}",
            (
                "{}: address in an option of ssh — ansible_ssh_args — got HostName 192.0.2.7 / "
                "allowed ansible_host, which Pulumi reads too — write ansible_host: 192.0.2.7, "
                "and remove it"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_extra_args: -o UserKnownHostsFile=/dev/null}",
            (
                "{}: host keys are not kept — ansible_ssh_extra_args — got UserKnownHostsFile "
                "/dev/null / allowed a file of known hosts: Pulumi checks host keys — remove it, "
                "and have the hosts' keys in known_hosts"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_extra_args: -o KnownHostsCommand=/bin/keys}",
            (
                "{}: option of ssh that Pulumi cannot follow — ansible_ssh_extra_args — got "
                "KnownHostsCommand /bin/keys / allowed options that both Ansible and Pulumi "
                "follow — remove it"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_extra_args: -o Ciphers=rot13}",
            (
                "{}: value that Pulumi cannot use — ansible_ssh_extra_args — got Ciphers rot13: "
                "asyncssh has none of them / allowed a value that both OpenSSH and asyncssh have "
                "— correct Ciphers"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_extra_args: -o UserKnownHostsFile=keys/%h}",
            (
                "{}: value that ssh would fill in — ansible_ssh_extra_args — got "
                "UserKnownHostsFile keys/%h / allowed a value without % and $ — write it in full:"
                " Ansible fills in {{ inventory_hostname }}"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_args: \"-o ProxyCommand='ssh -o HostKeyAlias=b -W %h:%p b'\"}",
            (
                "{}: option of ssh for a bastion that Pulumi cannot follow — "
                "ansible_ssh_args — got HostKeyAlias b / allowed the same option for the "
                "host itself, or SSH's configuration — put it into ~/.ssh/config, or the file of "
                "-F, under the bastion's name"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_common_args: 10.0.0.9}",
            (
                "{}: arguments cannot be read — ansible_ssh_common_args — got 10.0.0.9 stands "
                "where ssh has its host / allowed arguments of ssh — correct them"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_executable: /usr/local/bin/ssh-wrapper}",
            (
                "{}: option of Ansible's connection that Pulumi cannot follow — "
                "ansible_ssh_executable — got /usr/local/bin/ssh-wrapper / allowed ssh itself: "
                "Pulumi runs no program to connect — remove it; what it adds to ssh belongs into "
                "ansible_ssh_common_args or ~/.ssh/config"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_private_key: SECRET}",
            (
                "{}: option of Ansible's connection that Pulumi cannot follow — "
                "ansible_ssh_private_key — got a private key / allowed "
                "ansible_ssh_private_key_file, or a key in SSH's agent — write the key to a file,"
                " and set ansible_ssh_private_key_file"
            ),
        ),
        (
            "gpu_B2: {ansible_host: 10.0.0.1}",
            (
                "site/hosts.yml:14:13: no name for a node — got gpu_B2 / allowed a node name of "
                "up to 63 lower-case letters, digits, '-' and '.' — rename the host, to gpu-b2 "
                "for example; "
                "ansible_host keeps its address"
            ),
        ),
        (
            "gpu-b: {ansible_ssh_host: 10.213.0.21}",
            (
                "{}: hosts gpu-a and gpu-b have the same address — ansible_ssh_host — "
                "got 10.213.0.21, also at site/hosts.yml:11:21 / allowed one address per host — "
                "correct one of them, or remove gpu-b"
            ),
        ),
    ],
)
def test_what_ansible_and_pulumi_cannot_both_do_is_refused(
    host: str, message: str, tmp_path: Path
) -> None:
    made = site(tmp_path, host)
    with pytest.raises(SiteError) as caught:
        load_site(made)
    found = str(caught.value).replace(str(made), "site")
    assert found == message.replace("{}", "site/hosts.yml:14:21")


def test_a_setting_is_named_where_it_stands(tmp_path: Path) -> None:
    made = site(tmp_path, cfg="[defaults]\ntransport = local\nremote_port = 70000\n")
    (made / "group_vars" / "control_plane.yml").write_text("ansible_port: 22\n")
    done = plan(tmp_path)
    assert done.returncode == 3
    for line in (
        "no port — ansible.cfg remote_port — got 70000 / allowed 1 to 65535 — correct it, or ",
        "connection is not SSH — ansible.cfg transport — got local / allowed ssh: Pulumi ",
    ):
        assert line in done.stderr


def test_the_same_private_address_behind_two_bastions_is_two_hosts(tmp_path: Path) -> None:
    made = site(tmp_path, "gpu-b: {ansible_host: 10.213.0.21, ansible_ssh_common_args: -J b.lab}")
    assert load_site(made).hosts["gpu-b"].connection.jump == ("b.lab",)


def test_hosts_that_are_no_nodes_are_ansibles_alone(tmp_path: Path) -> None:
    """Pulumi does not connect to hosts of Slurm: their names and connections may be any."""
    made = site(tmp_path)
    with (made / "hosts.yml").open("a") as out:
        out.write("    slurm: {children: {pool_s: {hosts: {Batch_1: {ansible_host: 10.9.9.9}}}}}\n")
    (made / "group_vars" / "slurm.yml").write_text(
        "ansible_connection: community.docker.docker\nbedplate_gpu: {model: t4-16gb, count: 1}\n"
    )
    assert load_site(made).hosts["Batch_1"].connection.address == "10.9.9.9"


def test_a_user_who_does_not_become_root_is_warned_of(tmp_path: Path) -> None:
    site(tmp_path, "gpu-b: {ansible_host: 10.213.0.22, ansible_user: ops}")
    done = plan(tmp_path)
    assert done.returncode == 0
    said = "ansible_user is not root and ansible_become is not set: gpu-b"
    assert said in done.stdout + done.stderr
