"""firewalld and ufw on a host that only answers, in words written after their manuals."""

from __future__ import annotations

import pytest

from bedplate.portable import firewall
from bedplate.portable.host import Host, Result

UFW = """Status: active

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW       Anywhere
6443/tcp                   ALLOW       Anywhere
2379:2380/tcp              ALLOW       Anywhere
10250/tcp                  DENY        Anywhere
6443/tcp (v6)              ALLOW       Anywhere (v6)
"""
PORTS = ["10250/tcp", "8472/udp", "6443/tcp", "2379/tcp", "2380/tcp"]
NONE = Result(127, "", "command not found")


def host(answers: dict[str, Result]) -> Host:
    """A host with canned answers, by the whole command."""
    return Host(
        "/nonexistent", lambda argv, _timeout, _environment=None: answers.get(" ".join(argv), NONE)
    )


def firewalld(ports: str, state: str = "running") -> Host:
    """A host with firewalld."""
    return host(
        {
            "firewall-cmd --state": Result(0 if state == "running" else 252, f"{state}\n", ""),
            "firewall-cmd --list-ports": Result(0, f"{ports}\n", ""),
        }
    )


def test_without_an_active_firewall_nothing_is_refused() -> None:
    for one in (
        host({}),
        firewalld("", "not running"),
        host({"ufw status": Result(0, "Status: inactive\n", "")}),
    ):
        assert firewall.check(one, PORTS, "a1") == []


def test_ufw_is_refused_with_the_commands_that_open_what_is_closed() -> None:
    (told,) = firewall.check(host({"ufw status": Result(0, UFW, "")}), PORTS, "a1")
    assert told.startswith(
        "a firewall keeps out what nodes of the cluster send each other — a1:ufw — got active, "
        "and closed: 10250/tcp, 8472/udp / allowed no firewall of the host, or "
    )
    assert "Run there: ufw allow 10250/tcp; ufw allow 8472/udp; let the pods'" in told


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("10250/tcp 8472/udp 6443/tcp 2379-2380/tcp", ""),
        ("10250/tcp 8472/udp 2379-2380/tcp", "--add-port=6443/tcp "),
        ("10250/tcp 8472/tcp 6443/tcp 2379-2380/tcp", "--add-port=8472/udp "),
    ],
)
def test_firewalld_is_refused_where_a_port_is_closed(opened: str, closed: str) -> None:
    told = firewall.check(firewalld(opened), PORTS, "a1")
    assert len(told) == bool(closed)
    for one in told:
        assert f"Run there: firewall-cmd --permanent {closed}&& firewall-cmd --reload" in one


def test_who_asks_for_no_port_asks_no_firewall() -> None:
    assert firewall.check(firewalld(""), [], "a1") == []
