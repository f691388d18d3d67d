"""What changes from one lock to the next, key by key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bedplate.lock.file import content_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.lock.model import Lock

ABSENT = object()


def differences(old: Lock, new: Lock) -> list[str]:
    """Return one line per key that differs, by key."""
    found = leaves("", content_of(old), content_of(new))
    return [f"{path}: {_shown(before)} → {_shown(after)}" for path, before, after in found]


def leaves(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key that differs with both values, as `a.b`; `ABSENT` where there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else key
            yield from leaves(inner, old.get(key, ABSENT), new.get(key, ABSENT))
    elif old != new:
        yield path, old, new


def _shown(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
