"""Text that came from elsewhere, made harmless: for a terminal, and without passwords."""

from __future__ import annotations

import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What steers a terminal or turns the direction of a line, and what is no character at all. Line
#: feed and tab stay; a carriage return would write over what stands there already.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: User and password of an address, up to the last @, since a password may have `/` and `#` in it.
#: The @ before an image's digest is none of them.
_USER: Final = r"(?<=://)[^\s\"'<>]{1,1000}(?=@(?!sha256:))"
_WORD: Final = r"(?:token|passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key)"
#: What stands before a secret and names it: in a query or an assignment, in JSON or a dictionary,
#: in a line of a log, an option, a header, and for programs that take user and password in one.
#: Names have an end, so that no text of a host takes longer than its length is worth.
_BEFORE: Final = (
    rf"(?<![\w-])[\w-]{{0,99}}{_WORD}[\w-]{{0,99}}(?:=(?!=)| = )",
    rf"[\"'][\w-]{{0,99}}{_WORD}[\"'] ?: ?(?!null)",
    r"(?<!\w)(?:passw(?:or)?d|passphrase): ?",
    r"[?&](?:sig|signature|key|auth)=",
    r"(?<![\w-])--[\w-]{0,99}(?:token|passw(?:or)?d|passphrase|api-key) (?!-)",
    r"(?<![\w-])(?:[\w-]{1,99}-token|x-api-key|(?:set-)?cookie): ?(?=\S*[=\d])",
    r"(?<!\w)sshpass -p ?",
    r"(?<!\w)curl [^\n]{0,200}?(?<=\s)(?:-u|--user) ?[^\s:]+:",
)
_NAMED: Final = (
    rf"(?i)({'|'.join(_BEFORE)})"
    r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s&\"',;}]+)"
)
_HEADER: Final = r"(?i)(authorization: ?[a-z]+ |bearer (?=\S{20}))\S+"
_KEY: Final = r"(?s)-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)"
#: Shorter ones would be found in words that have nothing to do with them.
_SHORTEST: Final = 4


def printable(text: str) -> str:
    """Return a text in which nothing steers a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """Return a text without passwords, tokens and private keys.

    `known` are secrets of the site, which are found wherever they stand. All others are found by
    what is around them: in an address, after a name that says so, in a header.
    """
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "…")
    # Compiled when they are first needed: most commands need none.
    text = re.sub(_KEY, "…", text)
    text = re.sub(_USER, "…", text)
    text = re.sub(_NAMED, r"\1…", text)
    return re.sub(_HEADER, r"\1…", text)


def secrets_of(address: str) -> set[str]:
    """Return what an address has in front of its @ that must not be shown, as written and decoded.

    A user without a password may be a token.
    """
    found = re.search(_USER, address)
    if found is None:
        return set()
    user, colon, password = found.group().partition(":")
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
