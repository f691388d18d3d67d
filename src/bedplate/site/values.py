"""How a value of a site is shown in a message."""

from __future__ import annotations

import re
from datetime import date

from bedplate.common.harmless import without_secrets

HIDDEN = "a value that is not shown, since it may be a password"
#: An address with a password in it, however torn; `pytorch@2.8` is none.
_USER = re.compile(r".*:.*@", re.DOTALL)
#: What follows a path may be a token, whatever it is called.
_QUERY = re.compile(r"(?<=://)([^\s?#\"']*[?#])[^\s\"']+")


def shown(value: object) -> str:
    """Return a value in one short line, without what may be a password."""
    if isinstance(value, bool):
        return str(value).lower()
    # Before the last @ of an address is a password, which the rest of it may have torn apart.
    text = (
        value if isinstance(value, str) else str(value) if isinstance(value, date) else repr(value)
    )
    text = without_secrets(_QUERY.sub(r"\1…", _USER.sub("…@", text)))
    text = f'"{text}"' if isinstance(value, str | date) else text
    return text if len(text) <= 80 else f"{text[:77]}…"
