"""The service for shares and requests that no client of ours sends."""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from bedplate.accounting.share import command
from bedplate.pods.hub import shares
from bedplate.pods.hub.courses import LESSON
from bedplate.pods.hub.share_service import NotAllowedError, Service, User, server
from bedplate.pods.hub.share_ssh import with_login

if TYPE_CHECKING:
    from collections.abc import Iterator


class Echo:
    def answer(self, *_: object) -> dict[str, Any]:
        return {"reached": True}


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with server(cast("Service", Echo()), ("127.0.0.1", 0), "/services/shares/") as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running.server_address[:2]  # type: ignore[misc]
        running.shutdown()
        thread.join()


DEEP = b"[" * 50_000


@pytest.mark.parametrize(
    ("length", "body"),
    [
        (b"-5", b""),
        (b"many", b""),
        ("٣".encode(), b"{}"),
        (b"1_0", b'{"a": 1.0}'),
        (b"+2", b"{}"),
        (str(len(DEEP)).encode(), DEEP),
        (b"1", b"["),
        (b"2", b"[]"),
    ],
)
def test_a_body_that_is_none_is_refused_at_once(
    length: bytes, body: bytes, address: tuple[str, int]
) -> None:
    with socket.create_connection(address, timeout=60) as client:
        head = b"POST /services/shares/x HTTP/1.1\r\nHost: h\r\nContent-Length: "
        client.sendall(head + length + b"\r\n\r\n" + body)
        assert client.recv(65536).split(b"\r\n")[0] in {
            b"HTTP/1.1 400 Bad Request",
            b"HTTP/1.1 413 Request Entity Too Large",
        }


def test_a_body_in_chunks_is_refused_and_ends_the_connection(address: tuple[str, int]) -> None:
    """What its chunks are is not read as further requests."""
    head = b"POST /services/shares/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    second = b"GET /services/shares/y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(head + second)
        said = b"".join(iter(lambda: client.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


def test_hours_and_spans_are_of_plain_digits() -> None:
    assert LESSON.fullmatch("Mon 10:00-12:00")
    assert LESSON.fullmatch("Mon 1\u0660:00-12:00") is None
    assert shares.SPAN.fullmatch("2h")
    assert shares.SPAN.fullmatch("\u0662h") is None


def test_a_share_has_its_part_of_the_node() -> None:
    """Requested and limited, /dev/shm as half of it: what takes more ends this pod alone."""
    asked = shares.Request("2", 600, "x/y:1")
    offer = shares.Offer("gpu", 1, 16384, 4, node_memory_mib=2048, node_cpu_milli=500)
    spec = shares.job(asked, "team", offer, 2)["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == {
        "requests": {"gpu": "2", "memory": "4096Mi", "cpu": "1000m"},
        "limits": {"gpu": "2", "memory": "4096Mi"},
    }
    assert pod["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2048Mi"}}
    ]
    assert container["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
    smaller = shares.job(asked, "course", replace(offer, node_shm_mib=256), 2)["spec"]
    (volume,) = smaller["template"]["spec"]["volumes"]
    assert volume["emptyDir"]["sizeLimit"] == "512Mi", "as the course says it"
    bare = shares.job(asked, "team", shares.Offer("gpu", 1, 16384, 4), 2)["spec"]["template"][
        "spec"
    ]
    assert bare["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}], "not 64 MiB"
    assert "memory" not in str(bare["containers"][0]["resources"])


def test_a_share_with_a_login_keeps_its_shared_memory() -> None:
    offer = shares.Offer("gpu", 1, 16384, 1, node_memory_mib=2048)
    made = shares.job(shares.Request("1", 600, "x/y:1"), "team", offer, 1)
    pod = with_login(made, "ssh-ed25519 AAAA ada")["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["volumes"]] == ["shm", "home", "accounts"]
    mounted = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounted["/dev/shm"] == "shm"


@pytest.mark.parametrize(
    ("reason", "memory", "told"),
    [
        ("PodFailurePolicy", 2048, "did it use more than its 2048Mi of memory?"),
        ("PodFailurePolicy", None, "its program was killed"),
        ("DeadlineExceeded", 2048, "its time was up"),
        ("BackoffLimitExceeded", 2048, "too bad"),
    ],
)
def test_a_share_that_was_killed_says_so(reason: str, memory: int | None, told: str) -> None:
    offer = shares.Offer("gpu", 1, 16384, 1, node_memory_mib=memory)
    made = shares.job(shares.Request("1", 600, "x/y:1"), "team", offer, 1)
    made["metadata"] |= {"uid": "1", "creationTimestamp": "2026-11-27T10:00:00Z"}
    failed = {"type": "Failed", "status": "True", "reason": reason, "message": "too bad"}
    made["status"] = {"conditions": [failed]}

    def call(method: str, path: str, body: Any) -> dict[str, Any]:
        assert (method, body) == ("GET", None)
        return {"items": [made] if path.partition("?")[0].endswith("/jobs") else []}

    (found,) = shares.shares(call, "team")
    assert found.state == "ended"
    assert found.reason.endswith(told)


def test_the_hub_is_asked_once_for_who_looks_often_and_always_for_who_changes() -> None:
    """All who wait ask every two seconds or more often, and the hub answers one at a time."""
    asked: list[str] = []

    def who(token: str) -> User:
        asked.append(token)
        if len(asked) > 3:
            raise NotAllowedError(HTTPStatus.FORBIDDEN, "the hub does not know the token")
        return User("ann", frozenset())

    def answer(method: str, *parts: str) -> None:
        with pytest.raises(NotAllowedError):  # she has no course
            service.answer(method, ["intro", *parts], "token t", {})

    service = Service(lambda *_: {}, lambda _: "", who, lambda *_: None)
    for _ in range(5):
        answer("GET")
    assert asked == ["t"]
    answer("POST")
    answer("DELETE", "share-1")
    assert asked == ["t"] * 3
    answer("POST")
    service.known["t"] = 0.0, service.known["t"][1]
    with pytest.raises(NotAllowedError, match="does not know the token"):
        service.answer("GET", ["intro"], "token t", {})
    assert len(asked) == 5


def test_a_share_of_a_team_asks_for_no_more_than_its_pods_may_have() -> None:
    limits = [{"type": "Container", "max": {"memory": "1Gi"}}, {"type": "Pod", "max": {}}]
    asked: list[str] = []

    def call(method: str, path: str, _body: object) -> dict[str, Any]:
        asked.append(f"{method} {path}")
        return {"items": [{"spec": {"limits": limits}}]}

    offer = shares.Offer("x/gpu", 1, None, 8, node_memory_mib=131072, node_cpu_milli=24000)
    assert shares._bounded(call, "lab", offer, 1) == offer
    limits[1]["max"] = {"memory": "64Gi", "cpu": "16"}
    two = shares._bounded(call, "lab", offer, 2)
    assert (two.node_memory_mib, two.node_cpu_milli) == (32768, 8000)
    assert set(asked) == {"GET /api/v1/namespaces/lab/limitranges"}


def test_shares_are_a_table_or_data(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        shares.Share("a", "0.1", "ada", "running", until="2026-11-29T10:00:00Z"),
        shares.Share("b", "2Gi", "", "waiting", (1, 12), "no room"),
    ]
    command._list(found, "table")
    assert [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "STATE", "PLACE", "UNTIL", "ASKED", "USER", "REASON"],
        ["a", "running", "-", "2026-11-29T10:00:00Z", "0.1", "ada"],
        ["b", "waiting", "1 of 12", "-", "2Gi", "user unknown", "no room"],
    ]
    for form in ("json", "yaml"):
        command._list(found, form)
        first, second = yaml.safe_load(capsys.readouterr().out)
        assert (first["place"], first["places"], first["until"]) == (None, None, found[0].until)
        assert (second["place"], second["places"], second["user"]) == (1, 12, "")
        command._list([], form)
        assert yaml.safe_load(capsys.readouterr().out) == []
