"""Evidence of a host on which the work has not come to its end: see the module's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.bedplate.gpu.plugins.plugin_utils.action import ControlSideAction
from ansible_collections.bedplate.gpu.plugins.plugin_utils.evidence import (
    cleaned,
    now,
    place,
    read,
    write,
)
from ansible_collections.bedplate.gpu.plugins.plugin_utils.package import package

evidence = package("portable.evidence.checks")


class ActionModule(ControlSideAction):
    """Writes evidence; the host is not asked."""

    def answer(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Replace the host's evidence by one failed check that gives the reason."""
        wish = self._task.args
        playbook = wish.get("playbook") or "bedplate.gpu.site"
        check = evidence.failed(
            "site.finished",
            f"{playbook} came to its end on this host",
            wish["reason"],
            f"Fix what it says and run {playbook} for this host again.",
            "all roles and the verification",
        )
        document = evidence.document(
            kind="host",
            name=wish["name"],
            pool=wish.get("pool"),
            lock=wish.get("lock_digest") or "",
            checked=now(),
            content=cleaned(self, {"checks": [check]}, variables),
        )
        path = place(Path(wish["evidence_dir"]), "host", wish["name"])
        before = evidence.hardware(read(path))
        if before:
            document["facts"]["before"] = before
        return {} if self._task.check_mode else {"path": str(write(path, document))}
