"""Secrets in a text, found by what is around them or by their own form, each replaced by `…`.

The text is a host's, so that it may be of any length and written to be slow: no pattern here goes
back over what it has read, or looks further than a number of characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: In quotes, in quotes within quotes, in quotes that are never closed, a block of YAML, or a word.
_VALUE: Final = (
    r"(?P<value>'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|\\[\"'][^\"'\\]*+|[\"'][^\n]++"
    r"|[|>][-+0-9]{0,2}[ \t]*+\n(?:[ \t]++[^\n]*+\n?)++|[^\s&\"',;}]++)"
)
#: A name before its value: in a query, an environment, YAML, JSON, a log's line, a header.
_ASSIGNED: Final = r"(?<![\w-])(?P<name>[\w-]++)(?P<sign>(?:\\?[\"'])?(?:=(?!=)| = | ?:[ \t]{0,8}))"
_OPTION: Final = r"(?<![\w-])--(?P<name>[\w-]++) (?!-)"
_ELEMENT: Final = r"<(?P<name>[\w:-]++)>(?P<value>[^<\n]++)"
_OF_CURL: Final = (
    r"(?<=\s)(?:-[uU]|--(?:proxy-)?user)[ =]?(?:(?P<q>[\"'])[^:\"'\n]++|[^\s:\"']++):"
    r"(?P<value>(?(q)[^\"'\n]|\S)++)"
)
#: Options that are secrets of some programs alone, looked for in lines that have these.
_PROGRAMS: Final = (
    (
        r"(?<![\w-])curl ",
        _OF_CURL,
    ),
    (
        r"(?<![\w-])(?:docker|podman|nerdctl|registry|skopeo|buildah|oras|crane) +login ",
        rf"(?<=\s)-p[ =]?{_VALUE}",
    ),
    (r"(?<![\w-])ipmitool ", rf"(?<=\s)-P[ =]?{_VALUE}"),
    (r"(?<![\w-])sshpass ", rf"(?<=\s)-p[ =]?{_VALUE}"),
    (r"(?<![\w-])mysql\w{0,20} ", rf"(?<=\s)-p(?=\S){_VALUE}"),
)
#: What is piped into a program that reads a password.
_PIPED: Final = (
    rf"(?<![\w-])echo (?:-n )?{_VALUE}"
    r"(?=[ \t]{0,3}\|[^\n|]{0,200}(?:--password-stdin|sudo -S|chpasswd))"
)
_HEADER: Final = (
    r"(?i)authorization(?:\\?[\"'])?[:=] ?(?:\\?[\"'])?"
    r"(?:basic|bearer|digest|token|negotiate) (?P<value>[^\s\"'\\]++)"
)
_BEARER: Final = r"(?i)(?<!\w)bearer (?=\S{20})(?P<value>[^\s\"']++)"
_COOKIE: Final = r"(?i)(?<![\w-])(?:set-)?cookie: ?(?=[^\n]{0,200}[=\d])(?P<value>[^\n\"']++)"
#: What is a secret wherever it stands: keys of NVIDIA, clouds and forges, tokens that are signed or
#: kubeadm's, and private keys in base64.
_FORMS: Final = (
    r"(?<![\w.-])(?:nvapi-[\w-]{20,200}+|(?:AKIA|ASIA)[0-9A-Z]{16}|gh[opsur]_\w{20,200}+"
    r"|github_pat_\w{20,200}+|glpat-[\w-]{20,200}+|hf_[A-Za-z0-9]{20,200}+"
    r"|eyJ[\w-]{10,4000}+\.[\w-]{10,4000}+(?:\.[\w-]{0,4000}+)?"
    r"|(?=[a-z.]{0,22}\d)[a-z0-9]{6}\.[a-z0-9]{16}(?![\w-]|\.\w)"
    r"|LS0tLS1CRUdJTi(?:BQUklW|BSU0EgUFJJV|BFQyBQUklW|BPUEVOU1NI)[\w+/=]*+)"
)
_KEY: Final = (
    r"(?s)-----BEGIN (?P<of>[A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?)-----.*?"
    r"(?:-----END (?P=of)-----|\Z)"
)
#: An address, from its user on. The last @ ends that, since a password may have `/` and `#`; the
#: one before an image's digest does not.
_ADDRESS: Final = r"(?<=://)[^\s\"'<>]++"
_AT: Final = r"@(?!sha256:)"

#: What names of secrets have in them or end with, in small letters and without signs.
_WORDS: Final = ("token", "password", "passwd", "passphrase", "secret", "apikey", "accesskey")
_ENDS: Final = (
    *("password", "passwd", "passphrase", "apikey", "accesskey", "secretkey", "clientsecret"),
    *("certificatekey", "privatekey", "clientkeydata"),
)
_OPTIONS: Final = ("token", "password", "passwd", "passphrase", "apikey", "certificatekey")
_QUERY: Final = ("sig", "signature", "key", "auth", "xamzsignature", "xamzcredential")
_SHORT: Final = r"(?:^|[_-])pw$|_pass$"
#: Names of what is about a secret, and none.
_ABOUT: Final = ("file", "path", "dir", "name", "ttl", "count", "type", "length", "tokens")
_NOTHING: Final = ("null", "true", "false", "~")
#: A token in prose, as in `token: expired`, is shorter, or has no digit.
_LONG: Final = 12


def concealed(text: str) -> str:
    """Return a text without what is a secret by its surroundings or its form."""
    # Compiled when they are first needed: most commands need none.
    text = re.sub(_KEY, "…", text)
    text = re.sub(_ADDRESS, _without_user, text)
    for program, option in _PROGRAMS:
        if re.search(program, text):
            lines = text.splitlines(keepends=True)
            text = "".join(
                re.sub(option, _replaced, one) if re.search(program, one) else one for one in lines
            )
    for pattern in (_PIPED, _HEADER, _BEARER, _COOKIE):
        text = re.sub(pattern, _replaced, text)
    text = _named(text, _ASSIGNED, _is_assigned)
    text = _named(text, _OPTION, lambda found, _: _plain(found).endswith(_OPTIONS))
    text = re.sub(_ELEMENT, _element, text)
    return re.sub(_FORMS, "…", text)


def user_of(address: str) -> str | None:
    """Return what an address has in front of its @."""
    found = re.search(_ADDRESS, address)
    return (found.group()[: _end_of_user(found.group())] or None) if found else None


def _named(text: str, name: str, secret: Callable[[re.Match[str], str], bool]) -> str:
    """Replace values by their names. A value that is none may have a name of one in it."""
    parts, end, value = [], 0, re.compile(_VALUE)
    for found in re.finditer(name, text):
        if found.start() < end or not _may_be(found):
            continue
        given = value.match(text, found.end())
        if given is not None and secret(found, given.group()):
            parts += [text[end : given.start()], "…"]
            end = given.end()
    return "".join([*parts, text[end:]])


def _may_be(found: re.Match[str]) -> bool:
    """Say whether a name may be one of a secret, before its value is looked at."""
    plain = _plain(found)
    return not plain.endswith(_ABOUT) and (
        any(word in plain for word in (*_WORDS, *_ENDS))
        or plain in _QUERY
        or bool(re.search(_SHORT, found["name"].lower()))
    )


def _is_assigned(found: re.Match[str], value: str) -> bool:
    sign, plain = found["sign"], _plain(found)
    if value in _NOTHING:
        return False
    if re.search(_SHORT, found["name"].lower()):
        return True
    if "=" in sign:
        before = found.string[max(0, found.start() - 1) : found.start()]
        return any(word in plain for word in _WORDS) or (plain in _QUERY and before in ("?", "&"))
    if sign[0] in "\\\"'":
        return plain.endswith((*_WORDS, *_ENDS))
    quoted, digit = value[0] in "\"'", any(one.isdigit() for one in value)
    if plain.endswith("token"):
        header = "-" in found["name"] and (digit or "=" in value)
        return quoted or header or (digit and len(value) >= _LONG)
    # YAML has the name of a Secret without quotes.
    return plain.endswith(_ENDS) or (plain == "secret" and quoted)


def _element(found: re.Match[str]) -> str:
    return _replaced(found) if _plain(found).endswith((*_ENDS, "token")) else found.group()


def _plain(found: re.Match[str]) -> str:
    return found["name"].lower().replace("_", "").replace("-", "")


def _end_of_user(address: str) -> int:
    return max((one.start() for one in re.finditer(_AT, address)), default=0)


def _without_user(found: re.Match[str]) -> str:
    address = found.group()
    end = _end_of_user(address)
    return f"…{address[end:]}" if end else address


def _replaced(found: re.Match[str]) -> str:
    start, end = (place - found.start() for place in found.span("value"))
    return f"{found.group()[:start]}…{found.group()[end:]}"
