"""How a module ends where it refuses to go on, and what it cannot do."""

import os
from typing import Dict, List, NoReturn, Optional, Protocol

from .host import Host, Result
from .message import problem


class ImpossibleError(Exception):
    """It cannot be done: ``got`` says why, ``allowed`` what it takes, ``fix`` what to do."""

    def __init__(self, got: str, allowed: str, fix: str) -> None:
        super().__init__(got)
        self.got, self.allowed, self.fix = got, allowed, fix


def must(
    host: Host,
    argv: List[str],
    timeout: float = 120,
    environment: Optional[Dict[str, str]] = None,
) -> Result:
    """Run a command that has to end well.

    Raises:
        ImpossibleError: it did not.
    """
    answer = host.run(argv, timeout=timeout, environment=environment)
    if answer.code != 0:
        options = [one for one in argv[1:] if not one.startswith("-")]
        words = " ".join([os.path.basename(argv[0]), *options[:2]])
        raise ImpossibleError(
            f"{words}: {answer.said}", f"'{words}' ends well", "Fix that, and run the play again."
        )
    return answer


class Module(Protocol):
    """What is needed of Ansible's module, which is not imported here."""

    def fail_json(self, msg: str, **more: object) -> NoReturn:
        """End the task as failed; ``more`` is returned with the message."""


def refuse(
    module: Module, what: str, got: Optional[str], allowed: str, fix: str, **more: object
) -> NoReturn:
    """Fail the task with a problem of this host."""
    module.fail_json(msg=problem(what, os.uname().nodename, got, allowed, fix), **more)
