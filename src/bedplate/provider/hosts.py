"""What the provider asks of hosts: the actions of `on_host`, and plain commands."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from bedplate.provider.errors import CommandFailedError, ProviderError, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.provider.deadline import Deadline
    from bedplate.provider.model import Machine
    from bedplate.provider.ssh import Completed, Transport

# What the host's part may need to end by itself, and say so, before the connection is given up.
GRACE_SECONDS = 5.0


class Hosts:
    """Runs things on hosts through a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._program = resources.files("bedplate.provider").joinpath("on_host.py").read_text()

    async def ask(
        self, host: Machine, request: dict[str, Any], deadline: Deadline
    ) -> dict[str, Any]:
        """Carry out one action of `on_host` on a host and return its answer.

        Raises ProviderError with the host's own reason when it refuses or fails.
        """
        action = request["action"]
        budget = deadline.left() - GRACE_SECONDS
        text = json.dumps({**request, "budget": max(budget, 1.0)})
        program = f"{self._program}\n\nsys.exit(main({text!r}))\n"
        done = await self._run(host, ["python3", "-I", "-"], program, deadline)
        try:
            answer: dict[str, Any] = json.loads(done.output.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise ProviderError(
                message(
                    f"`{action}` gave no answer",
                    host.name,
                    (done.errors or done.output).strip()[-600:] or f"status {done.status}",
                    "one line of JSON from the host's python3",
                    "see that python3 (3.9 or newer) is installed on the host",
                )
            ) from None
        if not answer.pop("ok"):
            raise ProviderError(f"{host.name}: {answer['reason']}")
        return answer

    async def run(
        self, host: Machine, argv: Sequence[str], deadline: Deadline, stdin: str = ""
    ) -> str:
        """Run a command on a host and return its standard output.

        Raises CommandFailedError, with the command's last words, if its status is not 0.
        """
        done = await self._run(host, argv, stdin, deadline)
        if done.status:
            said = (done.errors or done.output).strip()
            raise CommandFailedError(
                f"{host.name}: `{' '.join(argv[:4])}` ended with status {done.status}: "
                f"{said[-800:]}",
                said,
            )
        return done.output

    async def _run(
        self, host: Machine, argv: Sequence[str], stdin: str, deadline: Deadline
    ) -> Completed:
        try:
            return await self._transport.run(host, argv, stdin=stdin, seconds=deadline.left())
        except TimeoutError as error:
            raise ProviderError(
                f"{host.name}: {deadline.what} did not end within {deadline.seconds:.0f} s; a "
                "later pulumi up looks at the host and goes on (custom_timeouts gives it more time)"
            ) from error
