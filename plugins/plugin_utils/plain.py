"""Values as everything outside of Ansible knows them."""

from __future__ import annotations

from typing import Any


def plain(value: object) -> Any:
    """Return a value without Ansible's tags and lazy containers: what JSON and Pydantic take."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return str(value)
