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


#: How much a command may print, in letters: a list of some thousand nodes has a tenth of it.
LARGEST = 128 << 20


class OutputError(Exception):
    """A command that printed more than `LARGEST`."""


@dataclass
class Heard:
    """What came over the two streams so far."""

    said: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    size: int = 0
    ended: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def output(self) -> str:
        """Return what came over standard output."""
        return "".join(self.said[0])

    @property
    def errors(self) -> str:
        """Return what came over standard error."""
        return "".join(self.said[1])

    def both(self, process: asyncssh.SSHClientProcess[str]) -> list[asyncio.Future[None]]:
        """Begin to listen to both streams of a command."""
        return [
            asyncio.ensure_future(self.listen(process.stdout, errors=False)),
            asyncio.ensure_future(self.listen(process.stderr, errors=True)),
        ]

    async def listen(self, reader: asyncssh.SSHReader[str], *, errors: bool) -> None:
        """Keep what comes over a stream until its end. Raises OutputError if that is too much."""
        try:
            while text := await reader.read(1 << 16):
                self.size += len(text)
                if self.size > LARGEST:
                    raise OutputError
                self.said[errors].append(text)
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
    heard = Heard()
    async with contextlib.AsyncExitStack() as last:
        async with becoming:
            process = await connection.create_process(shlex.join(words), errors="replace")
            listening = heard.both(process)
            last.push_async_callback(end, process, listening)
            await _until_root(process, heard, f"{begun}\n", prompt, password)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.write_eof()
        await asyncio.gather(*listening)
        await process.wait(check=False)
    output = heard.output.partition(f"{begun}\n")[2]
    return process.exit_status, output, heard.errors.rpartition(prompt)[2]


async def end(
    process: asyncssh.SSHClientProcess[str], listening: Sequence[asyncio.Future[None]]
) -> None:
    """Stop listening to a command, and close its session."""
    for one in listening:
        one.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    process.close()


async def _until_root(
    process: asyncssh.SSHClientProcess[str],
    heard: Heard,
    begun: str,
    prompt: str,
    password: Callable[[], Awaitable[str | None]],
) -> None:
    answered = 0
    while begun not in heard.output:
        if heard.size > LARGEST:
            raise OutputError
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
