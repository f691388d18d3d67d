"""A stack's own program, run in this process: what it registers is noted, and nothing is made.

Pulumi's public hooks for tests stand in for the engine. It is a preview: what only a provider can
answer stays unknown, so no program reads a pod's log or a certificate's key.
"""

from __future__ import annotations

import asyncio
import json
import runpy
from contextlib import chdir
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pulumi
import yaml
from pulumi.runtime import mocks, rpc, settings, stack
from pulumi.runtime.config import set_all_config
from pulumi.runtime.proto import resource_pb2

from bedplate.common import reading_yaml, shipped
from bedplate.components import later
from bedplate.components.cluster.manifest import FIRST
from bedplate.components.config import SECRETS

if TYPE_CHECKING:
    from pathlib import Path

OF_KUBERNETES: Final = "kubernetes:"
HIDDEN: Final = "<secret>"
LATER: Final = later.placeholder("by the cluster")


@dataclass(frozen=True)
class Registered:
    """What a program asked the engine for.

    Attributes:
        urn: its name in the stack's state.
        kind: its type token.
        inputs: plain data; a secret and what is not known yet have placeholders.
    """

    urn: str
    kind: str
    inputs: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the resource's name, by which `pulumi` lists it."""
        return self.urn.rsplit("::", 1)[1]


class _Monitor(mocks.MockMonitor):  # type: ignore[misc]
    """Notes every resource of Kubernetes, and answers with what is known of it before it exists."""

    def __init__(self) -> None:
        super().__init__(_Nothing())
        self.seen: list[Registered] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - gRPC's name
        """Note a resource; its answer is its inputs, but for the secret ones."""
        urn = self.make_urn(request.parent, request.type, request.name)
        given = rpc.deserialize_properties(request.object, keep_unknowns=True)
        if request.custom and request.type.startswith(OF_KUBERNETES):
            self.seen.append(Registered(urn, request.type, _plain(given)))
        answer = resource_pb2.RegisterResourceResponse(urn=urn)
        answer.object.CopyFrom(request.object)
        for key, value in given.items():
            if rpc.is_rpc_secret(value):
                del answer.object.fields[key]
        return answer

    def ReadResource(self, request: Any) -> Any:  # noqa: N802 - gRPC's name
        """Answer for another stack: there it is, and what it says is not known."""
        urn = self.make_urn(request.parent, request.type, request.name)
        return resource_pb2.ReadResourceResponse(urn=urn)


class _Nothing(mocks.Mocks):  # type: ignore[misc]
    """A provider that is never asked."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        """Refuse: the monitor answers."""
        raise AssertionError(args.typ)

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        """Refuse: no stack calls a function."""
        raise AssertionError(args.token)


def registered(name: str, site: Path, pulumi_stack: str | None = None) -> list[Registered]:
    """Return what a stack's program registers for Kubernetes, in a stable order.

    The program is that of `stacks/` beside the site or its folder, as `bedplate init` writes it,
    else the package's. Settings are those of its `Pulumi.STACK.yaml`, where there is one; its
    secrets are not read.

    Args:
        name: cluster, schedulers or frameworks.
        site: its directory.
        pulumi_stack: whose settings count; by default the site's name, else main.

    Raises:
        StackError: the program refuses the site.
        UnusableError: its settings cannot be read.
    """
    folder = project_of(name, site)
    names = (pulumi_stack,) if pulumi_stack else (site.resolve().name, "main")
    files = {one: folder / f"Pulumi.{one}.yaml" for one in names}
    known = {one: reading_yaml.value_at(path) for one, path in files.items() if path.is_file()}
    used = next((one for one in names if one in known), names[0])
    given = _settings(known.get(used)) | {"bedplate:site": str(site.resolve())}
    return registered_in(folder, used, given)


def project_of(name: str, site: Path) -> Path:
    """Return the folder of a stack's project: beside the site or its folder, else the package's."""
    beside = (above / "stacks" / name for above in site.resolve().parents[:2])
    return next((one for one in beside if (one / "__main__.py").is_file()), shipped.stacks() / name)


def registered_in(folder: Path, stack_name: str, given: dict[str, Any]) -> list[Registered]:
    """Return what a project's program registers for Kubernetes with these settings.

    Raises:
        StackError: the program refuses them.
    """
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text(encoding="utf-8"))["name"]
    monitor = _Monitor()

    async def whole() -> None:
        unknown = pulumi.Output.from_input(pulumi.output.UNKNOWN)
        set_all_config({**given, **{f"bedplate:{key}": unknown for key in SECRETS}})
        await stack.run_pulumi_func(lambda: _run(folder / "__main__.py"))

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        settings.set_root_resource(None)
        settings.SETTINGS.outputs.clear()  # of a program that was refused, on a loop that is closed
        mocks.set_mocks(_Nothing(), project, stack_name, preview=True, monitor=monitor)
        with later.shown(), chdir(folder):
            loop.run_until_complete(whole())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return sorted(monitor.seen, key=lambda one: (_rank(one), one.urn))


def _run(program: Path) -> None:
    runpy.run_path(str(program), run_name="__main__")


def _settings(content: Any) -> dict[str, str]:
    """Return the plain settings of a stack's file, as the engine hands them to a program."""
    found = content.get("config") if isinstance(content, dict) else None
    return {
        str(key): value if isinstance(value, str) else json.dumps(value)
        for key, value in (found or {}).items()
        if not (isinstance(value, dict) and "secure" in value)
    }


def _rank(one: Registered) -> int:
    """Put first what others lie in."""
    return 0 if one.kind.rpartition(":")[2] in FIRST else 1


def _plain(value: Any, *, secret: bool = False) -> Any:
    """Return data with its keys sorted, since a message of gRPC has none in order."""
    if rpc.is_rpc_secret(value):
        return _plain(rpc.unwrap_rpc_secret(value), secret=True)
    if isinstance(value, dict):
        return {key: _plain(value[key], secret=secret) for key in sorted(value)}
    if isinstance(value, list):
        return [_plain(one, secret=secret) for one in value]
    if isinstance(value, pulumi.output.Unknown):
        return LATER
    if isinstance(value, float) and value.is_integer():  # a message of gRPC has no other numbers
        value = int(value)
    return HIDDEN if secret else value
