"""The provider's real server process, and a client that speaks to it as the engine does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf import empty_pb2
from grpc_status import rpc_status
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from bedplate.provider import wire
from tests.stacks.world import ENVIRONMENT, World

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]


class Engine:
    """The engine's side of the conversation."""

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = provider_pb2_grpc.ResourceProviderStub(self._channel)

    def configure(self, site: Path, **more: Any) -> Any:
        """Shake hands and configure."""
        self.stub.Handshake(provider_pb2.ProviderHandshakeRequest(program_directory="/nowhere/bin"))
        return self.stub.Configure(
            provider_pb2.ConfigureRequest(args=wire.write({"site": str(site), **more}))
        )

    @staticmethod
    def urn(kind: str) -> str:
        """Return a URN of a resource of a kind inside a component."""
        return f"urn:pulumi:demo::cluster::bedplate:cluster:Cluster$bedplate:index:{kind}::x"

    def check(self, kind: str, news: dict[str, Any]) -> dict[str, str]:
        """Return the failures by property path."""
        answer = self.stub.Check(
            provider_pb2.CheckRequest(urn=self.urn(kind), news=wire.write(news))
        )
        return {failure.property: failure.reason for failure in answer.failures}

    def create(
        self, kind: str, inputs: dict[str, Any], *, preview: bool = False, timeout: float = 300
    ) -> Any:
        """Create, or preview it; returns the future of the call."""
        return self.stub.Create.future(
            provider_pb2.CreateRequest(
                urn=self.urn(kind),
                properties=wire.write(inputs),
                preview=preview,
                timeout=timeout,
            )
        )

    def update(self, kind: str, state: Any, inputs: dict[str, Any], timeout: float = 300) -> Any:
        """Update and return the answer."""
        return self.stub.Update(
            provider_pb2.UpdateRequest(
                id="x",
                urn=self.urn(kind),
                olds=state,
                news=wire.write(inputs),
                timeout=timeout,
            )
        )

    def diff(self, kind: str, state: dict[str, Any], news: dict[str, Any]) -> Any:
        """Compare and return the answer."""
        return self.stub.Diff(
            provider_pb2.DiffRequest(
                id="x", urn=self.urn(kind), olds=wire.write(state), news=wire.write(news)
            )
        )

    def read(self, kind: str, state: dict[str, Any]) -> Any:
        """Refresh and return the answer."""
        return self.stub.Read(
            provider_pb2.ReadRequest(id="x", urn=self.urn(kind), properties=wire.write(state))
        )

    def delete(self, kind: str, state: dict[str, Any], timeout: float = 300) -> Any:
        """Delete."""
        return self.stub.Delete(
            provider_pb2.DeleteRequest(
                id="x", urn=self.urn(kind), properties=wire.write(state), timeout=timeout
            )
        )

    def cancel(self) -> None:
        """Cancel, as a user's Ctrl-C does."""
        self.stub.Cancel(empty_pb2.Empty())

    def close(self) -> None:
        """End the conversation."""
        self._channel.close()


def half_made(error: grpc.RpcError) -> provider_pb2.ErrorResourceInitFailed:
    """Return the detail by which a failed call leaves its resource in state."""
    status = rpc_status.from_call(error)
    assert status is not None, f"no detail in {error}"
    detail = provider_pb2.ErrorResourceInitFailed()
    assert status.details[0].Unpack(detail)
    return detail


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world of a control plane and a GPU host."""
    world = World(tmp_path / "world")
    world.add("cp1")
    world.add("gpu-a", gpus=8)
    return world


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site's directory."""
    site = tmp_path / "site"
    site.mkdir()
    return site


def start(world: World) -> Engine:
    """Start the provider's server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stacks.world.provider", "127.0.0.1:1"],
        cwd=REPOSITORY,
        env={**os.environ, ENVIRONMENT: str(world.directory)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return Engine(int(process.stdout.readline()), process)


@pytest.fixture
def engine(world: World, site: Path) -> Iterator[Engine]:
    """A configured conversation with a running provider."""
    engine = start(world)
    engine.configure(site)
    yield engine
    engine.close()
    engine.process.terminate()
    assert engine.process.wait(timeout=120) == 0


def machine(name: str) -> dict[str, Any]:
    """Return a host's connection data."""
    return {"name": name, "address": f"{name}.example", "port": 22, "user": "root"}


@pytest.fixture
def control_plane() -> dict[str, Any]:
    """Inputs of the first control plane."""
    return {
        "host": machine("cp1"),
        "version": "1.36.3",
        "endpoint": "192.0.2.1:6443",
        "podSubnet": "10.244.0.0/16",
        "serviceSubnet": "10.96.0.0/12",
        "etcdImageTag": "3.6.8-0",
        "dnsImageTag": "v1.14.2",
        "ignorePreflight": ["SystemVerification"],
    }


@pytest.fixture
def node() -> dict[str, Any]:
    """Inputs of a worker."""
    return {
        "host": machine("gpu-a"),
        "controlPlane": machine("cp1"),
        "version": "1.36.3",
        "endpoint": "192.0.2.1:6443",
    }


@pytest.fixture
def gpus() -> dict[str, Any]:
    """Inputs of the wait for a worker's GPUs."""
    return {
        "host": machine("gpu-a"),
        "controlPlane": machine("cp1"),
        "resource": "nvidia.com/gpu",
        "count": 8,
    }
