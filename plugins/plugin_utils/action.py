"""What the actions of the control side have in common."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class Action(ActionBase):
    """Answers a task; it changes nothing on a host, so that check mode is no other."""

    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return Ansible's own part of the result, and the answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        return result | {"changed": False} | self.answer(task_vars or {})

    def answer(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return what the task adds to the result; ``variables`` are those of the host."""
        raise NotImplementedError


class ControlSideAction(Action):
    """Runs on the control side only; no host is contacted."""

    _requires_connection = False
