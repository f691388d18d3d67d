"""Commands as root by sudo, with or without a password, over an SSH connection.

The password goes to sudo's own standard input, and only after sudo has asked for it with a prompt
that nobody else knows. The command's input follows after the command has begun, as its first word
on standard output tells. So neither can be taken for the other, whatever sudo is configured to do,
and no password is in a command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    import asyncssh

#: As root: say that sudo is done, then be the command. The secure_path of sudo on RHEL and Rocky
#: has no /usr/local, where kubeadm and crictl are.
BEGUN = (
    'PATH="/usr/local/sbin:/usr/local/bin:$PATH" && export PATH && printf "%s\\n" "$0" && exec "$@"'
)


class SudoError(Exception):
    """sudo did not run the command. `said` are its own words, without prompts."""

    def __init__(self, said: str, *, asked: bool, given: bool) -> None:
        super().__init__(said)
        self.said, self.asked, self.given = said, asked, given


@dataclass
class _Heard:
    """What came over the two streams so far."""

    output: str = ""
    errors: str = ""
    ended: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self, reader: asyncssh.SSHReader[str], *, errors: bool) -> None:
        try:
            while text := await reader.read(1 << 16):
                if errors:
                    self.errors += text
                else:
                    self.output += text
                self.changed.set()
        finally:
            self.ended += 1
            self.changed.set()


async def run(
    connection: asyncssh.SSHClientConnection,
    argv: Sequence[str],
    stdin: str,
    password: Callable[[], Awaitable[str | None]],
    becoming: AbstractAsyncContextManager[None],
) -> tuple[int | None, str, str]:
    """Run a command as root: its exit status, its output, its errors.

    `password` is asked only if sudo asks; `becoming` is entered before sudo starts and left once
    the command is root, or with the SudoError. Raises SudoError if sudo does not run the command,
    asyncssh's errors if the connection breaks.
    """
    begun, prompt = secrets.token_hex(16), f"[{secrets.token_hex(16)}]"
    words = ["sudo", "-S", "-p", prompt, "--", "sh", "-c", BEGUN, begun, *argv]
    heard = _Heard()
    async with contextlib.AsyncExitStack() as last:
        async with becoming:
            process = await connection.create_process(shlex.join(words))
            listening = [
                asyncio.ensure_future(heard.listen(process.stdout, errors=False)),
                asyncio.ensure_future(heard.listen(process.stderr, errors=True)),
            ]
            last.push_async_callback(_end, process, listening)
            await _until_root(process, heard, f"{begun}\n", prompt, password)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.write_eof()
        await asyncio.gather(*listening)
        await process.wait(check=False)
    output = heard.output.partition(f"{begun}\n")[2]
    return process.exit_status, output, heard.errors.rpartition(prompt)[2]


async def _end(
    process: asyncssh.SSHClientProcess[str], listening: Sequence[asyncio.Future[None]]
) -> None:
    for one in listening:
        one.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    process.close()


async def _until_root(
    process: asyncssh.SSHClientProcess[str],
    heard: _Heard,
    begun: str,
    prompt: str,
    password: Callable[[], Awaitable[str | None]],
) -> None:
    answered = 0
    while begun not in heard.output:
        over, asked = heard.ended == 2, heard.errors.count(prompt)
        said = " ".join(heard.errors.replace(prompt, "").split())
        if asked > answered and not over:
            given = None if answered else await password()
            if given is None:
                # Once only: each wrong answer counts towards a locked account.
                raise SudoError(said, asked=True, given=answered > 0)
            process.stdin.write(f"{given}\n")
            answered += 1
            continue
        if over:
            raise SudoError(said, asked=asked > 0, given=answered > 0)
        heard.changed.clear()
        await heard.changed.wait()
