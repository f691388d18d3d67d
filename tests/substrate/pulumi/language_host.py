"""A language host for Pulumi programs in Python, for machines without the official one.

The official host comes only with Pulumi's own bundle. This one answers the calls that the engine
needs to run a program, by the SDK's own service classes, and starts the SDK's own
`pulumi-language-python-exec`. It belongs on PATH only where the official one is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
from pathlib import Path

import grpc.aio
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

EXECUTOR = "pulumi-language-python-exec"
SHOWN_ALREADY = 32  # the executor's exit status after an error that the user has seen
WATCH_SECONDS = 1.0
MESSAGE_BYTES = 400 << 20


def executor() -> str:
    """Return the SDK's executor: on PATH, or kept beside a built Pulumi."""
    found = shutil.which(EXECUTOR)
    if found:
        return found
    pulumi = shutil.which("pulumi")
    if pulumi:
        share = Path(pulumi).resolve().parents[1] / "share"
        for path in sorted(share.rglob(EXECUTOR)):
            return str(path)
    raise FileNotFoundError(
        f"{EXECUTOR} not found — looked on PATH and in share/ beside {pulumi or 'pulumi'} — build "
        "it with tests/substrate/tools/build.py pulumi"
    )


def interpreter(info: language_pb2.ProgramInfo) -> Path:
    """Return the Python of the project's virtual environment, else the one on PATH."""
    wished = json_format.MessageToDict(info.options).get("virtualenv")
    if not wished:
        found = shutil.which("python3") or shutil.which("python")
        return Path(found or sys.executable)
    return Path(os.path.normpath(Path(info.root_directory) / wished)) / "bin/python"


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Answers the engine's calls."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._programs: set[asyncio.subprocess.Process] = set()

    async def GetPluginInfo(self, request, context):  # noqa: ARG002, N802
        return plugin_pb2.PluginInfo(version="0.0.0-bedplate")

    async def GetRequiredPackages(self, request, context):  # noqa: ARG002, N802
        return language_pb2.GetRequiredPackagesResponse()

    async def GetRequiredPlugins(self, request, context):  # noqa: ARG002, N802
        return language_pb2.GetRequiredPluginsResponse()

    async def About(self, request, context):  # noqa: ARG002, N802
        return language_pb2.AboutResponse(
            executable=str(interpreter(request.info)), version=platform.python_version()
        )

    async def Run(self, request, context):  # noqa: ARG002, N802
        python = interpreter(request.info)
        program = Path(request.info.program_directory) / request.info.entry_point
        options = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
            "organization": request.organization,
        }
        words = [word for key, value in options.items() for word in (f"--{key}", value) if value]
        process = await asyncio.create_subprocess_exec(
            python,
            "-u",
            executor(),
            *words,
            str(program),
            *request.args,
            env={
                **os.environ,
                "PATH": f"{python.parent}:{os.environ['PATH']}",
                "VIRTUAL_ENV": str(python.parent.parent),
                "PULUMI_CONFIG": json.dumps(dict(request.config)),
                "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
            },
        )
        self._programs.add(process)
        try:
            status = await process.wait()
        finally:
            self._programs.discard(process)
        if status == SHOWN_ALREADY:
            return language_pb2.RunResponse(bail=True)
        if status:
            return language_pb2.RunResponse(
                error=f"Program exited with non-zero exit code: {status}"
            )
        return language_pb2.RunResponse()

    async def Cancel(self, request, context):  # noqa: ARG002, N802
        self.end()
        return empty_pb2.Empty()

    def end(self) -> None:
        """End the programs that still run."""
        for process in self._programs:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()


async def main() -> None:
    """Serve until the engine ends this process, or is gone itself."""
    parent = os.getppid()
    addresses = [word for word in sys.argv[1:] if not word.startswith("-")]
    host = LanguageHost(addresses[0] if addresses else "")
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
        ]
    )
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await server.start()
    print(port, flush=True)
    while os.getppid() == parent and not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), WATCH_SECONDS)
    host.end()
    await server.stop(grace=None)


if __name__ == "__main__":
    asyncio.run(main())
