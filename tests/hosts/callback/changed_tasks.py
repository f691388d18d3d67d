"""Lists the tasks that changed a host, or in check mode would: to compare one run with another."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: changed_tasks
type: notification
short_description: List the tasks that changed something
description:
  - C(BEDPLATE_CHANGED) names the file that takes the host and the task's name, one line for each
    task that changed something, in the order of their ends.
"""


class CallbackModule(CallbackBase):
    """Writes as the run goes, so that a run that fails tells as well."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "changed_tasks"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._changed = Path(os.environ["BEDPLATE_CHANGED"])
        self._changed.write_text("", encoding="utf-8")

    def v2_runner_on_ok(self, result) -> None:
        if result.is_changed():
            with self._changed.open("a", encoding="utf-8") as stream:
                stream.write(f"{result.host.get_name()}: {result.task.get_name()}\n")
