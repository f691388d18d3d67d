"""How a module ends where it refuses to go on."""

import os
from typing import NoReturn, Optional, Protocol

from .message import problem


class Module(Protocol):
    """What is needed of Ansible's module, which is not imported here."""

    def fail_json(self, msg: str, **more: object) -> NoReturn:
        """End the task as failed; ``more`` is returned with the message."""


def refuse(
    module: Module, what: str, got: Optional[str], allowed: str, fix: str, **more: object
) -> NoReturn:
    """Fail the task with a problem of this host."""
    module.fail_json(msg=problem(what, os.uname().nodename, got, allowed, fix), **more)
