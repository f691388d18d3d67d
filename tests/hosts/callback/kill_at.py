"""Lists the tasks of a run as they start, and has the run or its host killed at one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: kill_at
type: notification
short_description: Kill a run, or its host, when one of its tasks starts
description:
  - C(BEDPLATE_TASKS) names the file that takes the tasks' names, one line each.
  - C(BEDPLATE_KILL) is a JSON object with C(task) (its number, from 1), C(delay) (seconds after its
    start) and C(host) (a container's name, or empty to kill the run itself).
"""


class CallbackModule(CallbackBase):
    """Counts tasks as they start; nothing of the run is finished in order after the blow."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "kill_at"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._tasks = Path(os.environ["BEDPLATE_TASKS"])
        self._kill = json.loads(os.environ.get("BEDPLATE_KILL", "null"))

    def v2_playbook_on_task_start(self, task, is_conditional) -> None:  # noqa: ARG002 as called
        self._count += 1
        with self._tasks.open("a", encoding="utf-8") as stream:
            stream.write(f"{task.get_name()}\n")
        if self._kill is None or self._count != self._kill["task"]:
            return
        if self._kill["delay"]:
            threading.Timer(self._kill["delay"], self._blow).start()
        else:
            self._blow()

    def _blow(self) -> None:
        if self._kill["host"]:
            subprocess.run(["podman", "kill", "--signal", "KILL", self._kill["host"]], check=True)
        os.killpg(0, signal.SIGKILL)
