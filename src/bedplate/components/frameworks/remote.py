"""GPUs of other nodes: claims, their controller, and what keeps teams apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

import pulumi

from bedplate.common.errors import BedplateError
from bedplate.components.cluster.manifest import token
from bedplate.components.config import StackError
from bedplate.components.frameworks import remote_install as install
from bedplate.lock.offers import resources_of
from bedplate.pods.remote.objects import PORT, Settings
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.lock import Lock
    from bedplate.lock.model import Team

BY_DIGEST: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
PORTS: Final = 2**16


class RemoteGpusArgs(TypedDict):
    """Inputs of a RemoteGpus."""

    teams: Mapping[str, Team]
    """Who may ask, by name; each has a ClusterQueue of its name and its namespaces."""
    resources: list[str]
    """What may be asked for: the resources that the queues count."""
    engine: str
    """The engine's image, by digest. None is delivered or proved here."""
    command: NotRequired[list[str]]
    """What starts the engine on loopback; empty: the image's own."""
    engine_port: NotRequired[int]
    """Where the engine listens."""
    python: str
    """An image with Python 3.10 or newer and the package cryptography."""


class RemoteGpus(pulumi.ComponentResource):  # type: ignore[misc]
    """The kind RemoteClaim and its controller; a claim is a share on a GPU node, for a time.

    Raises:
        StackError: a team's name or namespace is none that remote GPUs can have.
    """

    def __init__(
        self, name: str, args: RemoteGpusArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:frameworks:RemoteGpus", name, None, opts)
        try:
            settings = install.settings(
                args["teams"],
                args["resources"],
                args["engine"],
                args["python"],
                command=tuple(args.get("command", ())),
                engine_port=args.get("engine_port", Settings.engine_port),
            )
        except BedplateError as error:
            raise StackError(str(error)) from error
        before: list[pulumi.Resource] = []
        for found in install.objects(args["teams"], settings):
            meta = found["metadata"]
            called = "-".join(
                filter(None, (found["kind"].lower(), meta.get("namespace"), meta["name"]))
            )
            made = pulumi.CustomResource(
                token(found),
                f"{name}-{called}",
                found,
                pulumi.ResourceOptions(parent=self, depends_on=list(before)),
            )
            if found["kind"] in {"CustomResourceDefinition", "Namespace"}:
                before.append(made)
        self.register_outputs({})


def remote_args(lock: Lock) -> RemoteGpusArgs | None:
    """Return what the stack's configuration asks for; None where it names no engine.

    Raises StackError for images without a digest and for what is not a command or a port.
    """
    config = pulumi.Config("bedplate")
    engine = config.get("remoteEngine")
    if engine is None:
        return None
    python = config.get("remoteImage") or ""
    for key, image in (("remoteEngine", engine), ("remoteImage", python)):
        if not BY_DIGEST.fullmatch(image):
            raise StackError(
                problem(
                    "an image without a digest",
                    f"bedplate:{key}",
                    image or "nothing",
                    "NAME@sha256:…",
                    f"`pulumi config set bedplate:{key} NAME@sha256:…`",
                )
            )
    command = config.get_object("remoteEngineCommand") or []
    if not isinstance(command, list) or not all(isinstance(one, str) for one in command):
        raise StackError(
            problem(
                "not a command",
                "bedplate:remoteEngineCommand",
                str(command),
                "a list of words in JSON",
                'write it as \'["engine", "--host", "127.0.0.1"]\'',
            )
        )
    port = config.get_int("remoteEnginePort") or Settings.engine_port
    if not 0 < port < PORTS or port == PORT:
        raise StackError(
            problem(
                "not a port of an engine",
                "bedplate:remoteEnginePort",
                str(port),
                f"1 to {PORTS - 1} without {PORT}, the front's",
                "name the port on which it listens",
            )
        )
    return {
        "teams": lock.teams,
        "resources": resources_of(lock),
        "engine": engine,
        "command": command,
        "engine_port": port,
        "python": python,
    }
