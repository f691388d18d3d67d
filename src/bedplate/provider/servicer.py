"""The provider's gRPC service: the engine's calls on one side, typed resources on the other."""

from __future__ import annotations

import asyncio
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import any_pb2, empty_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from bedplate.provider import schema, wire
from bedplate.provider.control_plane import ControlPlane
from bedplate.provider.deadline import Deadline
from bedplate.provider.deletion_guard import DeletionGuard
from bedplate.provider.errors import HalfMade, ProviderError, message
from bedplate.provider.gpu_ready import GpuReady
from bedplate.provider.hosts import Hosts
from bedplate.provider.model import ProviderInputs, failures
from bedplate.provider.node import Node
from bedplate.provider.resource import Context, Resource
from bedplate.provider.ssh import SshTransport, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from bedplate.provider.cluster_api import Tell

RESOURCES: tuple[type[Resource], ...] = (ControlPlane, Node, GpuReady, DeletionGuard)
READ_SECONDS = 120.0
# How long what was cancelled may take to return a host to service, its address and its node, where
# no engine is left. One that ends its plugins itself may wait less.
END_SECONDS = 90.0


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Answers the engine. One instance serves one engine, and all its calls at the same time."""

    def __init__(
        self,
        transport: Callable[[Path | None, Path | None, Path], Transport] = SshTransport,
        *,
        version: str = "",
        tell: Tell | None = None,
    ) -> None:
        self._make_transport = transport
        self._version = version
        self._tell = tell
        self._transport: Transport | None = None
        self._context: Context | None = None
        self._directory = Path.cwd()
        self._running: set[asyncio.Task[Any]] = set()

    async def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Accept secrets. What it calls the program's directory is where the provider lies.

        The site's path is relative to the project's, which is where the engine starts providers.
        """
        del request, context
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    async def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the version of the package."""
        del request, context
        return plugin_pb2.PluginInfo(version=self._version)

    async def GetSchema(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the package's schema."""
        del request, context
        return provider_pb2.GetSchemaResponse(schema=schema.document(self._version, RESOURCES))

    async def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Check the provider's own configuration."""
        del context
        found = failures(ProviderInputs, _configuration(request.news))
        return _checked(request.news, found)

    async def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say that other configuration never replaces what the provider made."""
        del context
        same = wire.read(request.olds) == wire.read(request.news)
        kinds = provider_pb2.DiffResponse
        return kinds(changes=kinds.DIFF_NONE if same else kinds.DIFF_SOME)

    async def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Open the way to the hosts (nothing is contacted yet)."""
        values = _configuration(request.args)
        wished = ProviderInputs.model_validate(values)
        site = (self._directory / wished.site).resolve()
        key = site / wished.private_key if wished.private_key else None
        known = site / wished.known_hosts if wished.known_hosts else None
        for option, path in (("privateKey", key), ("knownHosts", known)):
            if path is not None and not path.is_file():
                await context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    message(
                        "file not found",
                        f"bedplate:{option} of the stack",
                        str(path),
                        "a file; a relative path starts at the site's directory",
                        f"correct it with `pulumi config set bedplate:{option} PATH`",
                    ),
                )
        self._transport = self._make_transport(key, known, site)
        force = wished.force or os.environ.get("BEDPLATE_FORCE", "").lower() in {"1", "true"}
        self._context = Context(Hosts(self._transport), site, force, self._tell)
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return every failure of the inputs, each with its property path."""
        kind = await self._kind(request.urn, context)
        return _checked(request.news, failures(kind.inputs, wire.read(request.news)))

    async def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Compare state and inputs."""
        resource = await self._resource(request.urn, context)
        old = request.old_inputs if len(request.old_inputs.fields) else request.olds
        try:
            found = await resource.compare(
                wire.read(request.olds), wire.read(old), wire.read(request.news)
            )
        except ProviderError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        answer = provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME
            if found.updates or found.replaces
            else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=sorted({path.split(".", 1)[0] for path in found.updates + found.replaces}),
            replaces=sorted({path.split(".", 1)[0] for path in found.replaces}),
            deleteBeforeReplace=True,  # a host cannot be in the cluster twice
            hasDetailedDiff=True,
        )
        kinds = provider_pb2.PropertyDiff
        for path in found.updates:
            answer.detailedDiff[path].kind = kinds.UPDATE
        for path in found.replaces:
            answer.detailedDiff[path].kind = kinds.UPDATE_REPLACE
        return answer

    async def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Bring a resource about; a preview contacts nothing."""
        resource = await self._resource(request.urn, context)
        values, secrets = wire.read(request.properties), _secrets(resource, request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(
                properties=wire.write(resource.planned(values), secrets)
            )
        deadline = Deadline("the creation", request.timeout or resource.create_seconds)
        outputs = await self._carry_out(
            resource.ensure(values, deadline), request.properties, secrets, context
        )
        return provider_pb2.CreateResponse(
            id=resource.identity(values), properties=wire.write(outputs, secrets)
        )

    async def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Bring a resource about that is in state already, whole or half made."""
        resource = await self._resource(request.urn, context)
        values, secrets = wire.read(request.news), _secrets(resource, request.news)
        if request.preview:
            return provider_pb2.UpdateResponse(
                properties=wire.write(resource.planned(values), secrets)
            )
        deadline = Deadline("the update", request.timeout or resource.create_seconds)
        outputs = await self._carry_out(
            resource.ensure(values, deadline), request.news, secrets, context
        )
        return provider_pb2.UpdateResponse(properties=wire.write(outputs, secrets))

    async def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Look at the real thing; an empty id says that it is gone."""
        resource = await self._resource(request.urn, context)
        if not len(request.properties.fields):
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED,
                message(
                    "import is not needed",
                    f"{resource.token} {request.id}",
                    "an import",
                    "pulumi up",
                    "put the host into the inventory: pulumi up takes what is there already",
                ),
            )
        state, secrets = wire.read(request.properties), _secrets(resource, request.properties)
        deadline = Deadline("the look at the host", READ_SECONDS)
        found = await self._carry_out(
            resource.read(state, deadline), request.inputs, secrets, context
        )
        if found is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=request.id, properties=wire.write(found, secrets), inputs=request.inputs
        )

    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Remove a resource, from its state alone."""
        resource = await self._resource(request.urn, context)
        state = wire.read(request.properties)
        deadline = Deadline("the removal", request.timeout or resource.delete_seconds)
        await self._carry_out(
            resource.delete(state, deadline), request.properties, frozenset(), context
        )
        return empty_pb2.Empty()

    async def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Stop waiting, at once. What runs on a host ends there by itself, under its lock."""
        del request, context
        self.cancel_all()
        return empty_pb2.Empty()

    def cancel_all(self) -> None:
        """Cancel what is running; each call answers with what it leaves behind."""
        for task in self._running:
            task.cancel()

    async def close(self) -> None:
        """Close the connections to the hosts, once all that runs has ended.

        What is cancelled may still return a host to service.
        """
        if self._running:
            await asyncio.wait(set(self._running), timeout=END_SECONDS)
        if self._transport is not None:
            await self._transport.close()

    async def _carry_out(
        self,
        work: Coroutine[Any, Any, Any],
        inputs: Any,
        secrets: frozenset[str],
        context: Any,
    ) -> Any:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        try:
            return await task
        except HalfMade as half:
            await _abort_half_made(half, inputs, secrets, context)
        except ProviderError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except asyncio.CancelledError:
            if not task.done():  # the engine itself is gone
                task.cancel()
                raise
            await context.abort(
                grpc.StatusCode.CANCELLED, "cancelled; a later pulumi up looks and goes on"
            )
        except Exception as error:
            # Anything else is a defect of ours: the engine shows what it is and where it arose.
            await context.abort(
                grpc.StatusCode.INTERNAL,
                f"defect in the bedplate provider: {error!r}\n{traceback.format_exc()}",
            )
        finally:
            self._running.discard(task)

    async def _resource(self, urn: str, context: Any) -> Resource:
        kind = await self._kind(urn, context)
        if self._context is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "the bedplate provider is not configured"
            )
        return kind(self._context)  # type: ignore[arg-type]

    async def _kind(self, urn: str, context: Any) -> type[Resource]:
        # urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME
        token = urn.split("::")[2].rsplit("$", 1)[-1]
        for kind in RESOURCES:
            if kind.token == token:
                return kind
        known = ", ".join(kind.token for kind in RESOURCES)
        return await _refuse(context, f"unknown resource type {token}; there are {known}")


async def _refuse(context: Any, text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
    raise AssertionError(text)


def _configuration(struct: Any) -> dict[str, Any]:
    """Return the provider's configuration; the wire carries all but strings as JSON text."""
    values = wire.read(struct)
    values.pop("__internal", None)
    if values.get("force") in {"true", "false"}:
        values["force"] = values["force"] == "true"
    return values


def _checked(news: Any, found: list[tuple[str, str]]) -> Any:
    return provider_pb2.CheckResponse(
        inputs=news,
        failures=[provider_pb2.CheckFailure(property=path, reason=why) for path, why in found],
    )


def _secrets(resource: Resource, properties: Any) -> frozenset[str]:
    return wire.secret_keys(properties) | frozenset(resource.secret)


async def _abort_half_made(
    half: HalfMade, inputs: Any, secrets: frozenset[str], context: Any
) -> NoReturn:
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=half.identity,
            properties=wire.write(half.outputs, secrets),
            reasons=half.reasons,
            inputs=inputs,
        )
    )
    status = status_pb2.Status(
        code=grpc.StatusCode.UNKNOWN.value[0], message=str(half), details=[detail]
    )
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError(str(half))
