"""What the hub waits for before it starts."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from bedplate.components.frameworks import hub_objects

if TYPE_CHECKING:
    import pytest

STATE = hub_objects.State("bedplate-hub-state", "State.", {"local": {"path": "/x"}}, ("cp1",))


def test_the_hub_starts_when_its_proxy_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """JupyterHub would end, and start again some ten seconds later."""
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], _timeout: float) -> socket.socket:
        asked.append(address)
        if len(asked) < 3:
            raise (socket.gaierror, ConnectionRefusedError)[len(asked) - 1]("not yet")
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    hub = hub_objects.hub_deployment("i", "m", STATE)
    waits = hub["spec"]["template"]["spec"]["initContainers"][1]["command"]
    assert waits[:2] == ["python3", "-c"]
    exec(waits[2], {})  # noqa: S102 - our own text, as the pod runs it
    (service,) = [one for one in hub_objects.services() if one["metadata"]["name"] == asked[0][0]]
    assert asked == [(service["metadata"]["name"], service["spec"]["ports"][0]["port"])] * 3
