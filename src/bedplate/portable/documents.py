"""JSON that lies on a host: what is damaged counts as absent, and never ends a run in a defect."""

import json
from typing import Any, Dict, Optional


def parsed(text: str) -> Any:
    """What a JSON text says. Raises ValueError, also for values that lie too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("no JSON: values within values, too deep") from None


def table(text: Optional[str]) -> Dict[str, Any]:
    """The object in a text; empty where there is none."""
    try:
        found = parsed(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
