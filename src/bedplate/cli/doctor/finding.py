"""What a check has found, and many checks at once without waiting for any forever."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

#: How many questions are asked at once: most of them wait for an answer.
THREADS = 64
#: How long all questions of one kind are waited for, in seconds.
SECONDS = 60.0
ANSIBLE, PULUMI = "ansible-playbook", "pulumi up"
BOTH = f"{ANSIBLE} and {PULUMI}"


@dataclass(frozen=True)
class Finding:
    """What was checked, what was found, what needs it, and the command that fixes it."""

    check: str
    state: Literal["OK", "LACKING", "not checked"]
    found: str
    needed_by: str = ""
    fix: str = ""


def each[Item: Hashable, Answer](
    items: Iterable[Item], ask: Callable[[Item], Answer]
) -> dict[Item, Answer]:
    """Ask about each item, many at once; those without an answer in time are left out.

    The threads are daemons: nothing ends a question to the system's resolver, and the command must
    not wait for it at its own end.
    """
    futures: dict[Item, Future[Answer]] = {item: Future() for item in items}
    waiting = deque(futures.items())

    def work() -> None:
        with suppress(IndexError):  # none is waiting
            while True:
                item, future = waiting.popleft()
                try:
                    future.set_result(ask(item))
                except BaseException as error:  # raised where the answer is read
                    future.set_exception(error)

    for _ in range(min(THREADS, len(futures))):
        threading.Thread(target=work, daemon=True).start()
    wait(futures.values(), SECONDS)
    waiting.clear()
    return {item: future.result() for item, future in futures.items() if future.done()}
