"""Arguments of ssh as inventories have them, hops on the way, and names of nodes."""

from __future__ import annotations

import shlex

import pytest

from bedplate.common.connection import NODE_NAME, Hop
from bedplate.site import ssh_arguments
from bedplate.site.ssh_arguments import Arguments, UnsupportedProxyError


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("-C -o ControlMaster=auto -o ControlPersist=60s", Arguments()),
        ("-l me -p 33 -ia -i b -o Port=44", Arguments("me", "33", keys=("a", "b"))),
        ("-o 'ProxyJump b' -J other", Arguments(jump=(Hop("b"),))),
        (
            "-4tJ ssh://u@b:22/",
            Arguments(jump=(Hop("b", "u", 22),), options=(("AddressFamily", "inet"),)),
        ),
        ("-o ProxyCommand=none -J b", Arguments(jump=())),
        (
            "-o ProxyCommand='exec ssh -q -p 2222 -l u -F cfg bastion nc %h %p'",
            Arguments(jump=(Hop("bastion", "u", 2222),), config="cfg"),
        ),
        (
            "-o ProxyCommand='/usr/bin/ssh -W [%h]:%p -J first fd00::2'",
            Arguments(jump=(Hop("first"), Hop("fd00::2"))),
        ),
    ],
)
def test_arguments_of_ssh(words: str, wanted: Arguments) -> None:
    assert ssh_arguments.read(shlex.split(words)) == wanted


@pytest.mark.parametrize(
    "command",
    ["nc %h %p", "ssh bastion", "ssh -W %h:22 bastion", "ssh bastion socat - %h:%p", "'ssh"],
)
def test_other_proxy_commands(command: str) -> None:
    with pytest.raises(UnsupportedProxyError):
        ssh_arguments.read(["-o", f"ProxyCommand={command}"])


@pytest.mark.parametrize("text", ["b", "u@b", "u@b:2", "[fd00::1]:2", "u@[fe80::1%eth0]"])
def test_hops_are_read_as_they_are_written(text: str) -> None:
    assert str(Hop.parse(text)) == text


@pytest.mark.parametrize("text", ["", "u@", "a b", "b:0", "b:65536", "a@b@c", "fd00::1"])
def test_what_is_no_hop(text: str) -> None:
    with pytest.raises(ValueError, match="is not user@host:port"):
        Hop.parse(text)


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("gpu-1.rack2.example", True),
        ("1", True),
        ("GPU-1", False),
        ("gpu_1", False),
        ("gpü2", False),
        ("a..b", False),
        ("a-.b", False),
        ("-a", False),
        ("a" * 63, True),
        ("a" * 64, False),
        ("gpu-1." + "a" * 57, True),
        ("gpu-1." + "a" * 58, False),
    ],
)
def test_names_of_nodes(name: str, *, fits: bool) -> None:
    assert bool(NODE_NAME.fullmatch(name)) is fits
