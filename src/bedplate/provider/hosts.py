"""What the provider asks of hosts: the actions of `on_host`, and plain commands."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from bedplate.common.harmless import printable
from bedplate.provider.errors import CommandFailedError, ProviderError, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.provider.deadline import Deadline
    from bedplate.provider.model import Machine
    from bedplate.provider.ssh import Completed, Transport

# What the host's part may need to end by itself, and say so, before the connection is given up.
GRACE_SECONDS = 5.0


_MEMBERSHIP = {
    **dict.fromkeys(("kubeconfig", "authority", "phase", "endpoint", "name"), str),
    "member": bool,
}
#: What the answers to the actions of `on_host` have, if all is well.
ANSWERS: dict[str, dict[str, type]] = {
    "access": _MEMBERSHIP,
    "init": {**_MEMBERSHIP, "adopted": bool},
    "join": {**_MEMBERSHIP, "adopted": bool},
    "reset": {"changed": bool},
    "serve-endpoint": {"changed": bool},
    "leave-etcd": {"changed": bool, "refused": str},
    "container-log": {"found": bool, "log": str, "state": str, "attempts": int},
}


def _answer(output: str, action: str) -> dict[str, Any] | None:
    """Return the last line as the answer to an action; None where it is none."""
    try:
        found = json.loads(output.strip().splitlines()[-1])
    except (IndexError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("ok"), bool):
        return None
    wanted = ANSWERS[action] if found["ok"] else {"reason": str}
    whole = all(isinstance(found.get(key), kind) for key, kind in wanted.items())
    return found if whole else None


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
        answer = _answer(done.output, action)
        if answer is None:
            said = (done.errors or done.output).strip()[-600:] or f"status {done.status}"
            raise ProviderError(
                message(
                    f"`{action}` gave no answer",
                    host.name,
                    printable(said),
                    "one line of JSON from the host's python3",
                    "see that python3 (3.9 or newer) is installed on the host",
                )
            )
        if not answer.pop("ok"):
            raise ProviderError(f"{host.name}: {printable(answer['reason'])}")
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
                f"{printable(said[-800:])}",
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
