"""The callback of `bedplate init`'s sites: a failure that explains itself is one line, once."""

from __future__ import annotations

from typing import Any

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = r"""
name: brief
type: stdout
short_description: Print each reason of a host once, as one line
description:
  - Prints a failed host's message as one line where the message says what, where and what to do.
    The same message of the same host is printed once, although a play may fail with it again.
  - A host that cannot be reached is one line too. Where a task goes on without the host, nothing is
    printed - the task that reports the host follows.
  - Everything else, and every verbosity from C(-v) on, is printed by the default callback.
author: [The Bedplate authors]
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

#: What is between the parts of a message of ours.
PARTS = " — "


class CallbackModule(Default):  # type: ignore[misc]
    """Ansible's own output, with failures as lines."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "bedplate.gpu.brief"

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[tuple[str, str]] = set()

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        message = str(result.result.get("msg", ""))
        ours = PARTS in message and not ignore_errors and not result.task.loop
        if self._display.verbosity or not ours:
            super().v2_runner_on_failed(result, ignore_errors=ignore_errors)
        else:
            self._line(result, "failed", message)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        if self._display.verbosity:
            super().v2_runner_on_unreachable(result)
        elif not result.task.ignore_unreachable:
            self._line(result, "unreachable", str(result.result.get("msg", "")))

    def _line(self, result: Any, state: str, message: str) -> None:
        host = self.host_label(result)
        lines = [" ".join(line.split()) for line in message.splitlines() if line.strip()]
        text = "\n  ".join(lines)
        if (host, text) in self._printed:
            return
        self._printed.add((host, text))
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        stderr = self.get_option("display_failed_stderr")
        said = f"{state}: [{host}]: {text}"
        self._display.display(said, color=constants.COLOR_ERROR, stderr=stderr)
