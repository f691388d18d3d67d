"""Text that came from elsewhere, made harmless: for a terminal, and without passwords."""

from __future__ import annotations

import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from bedplate.common.concealing import concealed, user_of

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What steers a terminal or turns the direction of a line, and what is no character at all. Line
#: feed and tab stay; a carriage return would write over what stands there already.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Shorter ones would be found in words that have nothing to do with them.
_SHORTEST: Final = 4


def printable(text: str) -> str:
    """Return a text in which nothing steers a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """Return a text without passwords, tokens and private keys.

    `known` are secrets of the site, which are found wherever they stand. All others are found by
    what is around them, or by their own form.
    """
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "…")
    return concealed(text)


def secrets_of(address: str) -> set[str]:
    """Return what an address has in front of its @ that must not be shown, as written and decoded.

    A user without a password may be a token.
    """
    found = user_of(address)
    if found is None:
        return set()
    user, colon, password = found.partition(":")
    secret = password if colon else user
    return {secret, urllib.parse.unquote(secret)}


def cleaned(value: Any, known: Iterable[str] = ()) -> Any:
    """Return a value of JSON whose texts, keys among them, are printable and without secrets."""
    if isinstance(value, str):
        return printable(without_secrets(value, known))
    if isinstance(value, dict):
        return {cleaned(key, known): cleaned(one, known) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(one, known) for one in value]
    return value
