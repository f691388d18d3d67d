"""What a run of `bedplate mirror resolve` has found so far, for the next one to go on from."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.common import reading
from bedplate.lock.file import write_text

if TYPE_CHECKING:
    from pydantic import BaseModel

PLACE = Path(".bedplate", "resolve.json")
#: Older answers are asked for again: a tag or an index may have moved on since.
SECONDS = 24 * 3600.0


class Partial:
    """Finished answers by name, on disk after each one. `asked` is what they depend on."""

    def __init__(self, site: Path, asked: dict[str, Any]) -> None:
        self._path = site / PLACE
        self._asked = json.loads(json.dumps(asked))
        self._lock = threading.Lock()
        self._found: dict[str, Any] = self._kept()

    def _kept(self) -> dict[str, Any]:
        try:
            content = reading.document(self._path)
            if content["asked"] != self._asked:
                return {}
            oldest = time.time() - SECONDS
            return {name: one for name, one in content["found"].items() if one["at"] > oldest}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # nothing that can be used: everything is asked

    def get(self, name: str) -> Any:
        """Return an answer of a run that did not end; None without one."""
        return self._found.get(name)

    def keep(self, name: str, answer: BaseModel, extra: dict[str, Any] | None = None) -> None:
        """Keep an answer, with what else of it the run needs."""
        content = answer.model_dump(mode="json", exclude_defaults=True)
        with self._lock:
            self._found[name] = {"answer": content, "at": time.time(), **(extra or {})}
            self._path.parent.mkdir(mode=0o755, exist_ok=True)
            write_text(self._path, json.dumps({"asked": self._asked, "found": self._found}))

    def done(self) -> None:
        """Remove what the bill has now."""
        self._path.unlink(missing_ok=True)
