"""What a value of the wrong form was most likely meant to be, and how it is written here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bedplate.common.nearest import nearest, pasted
from bedplate.site import manual
from bedplate.site.places import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.site.places import Place

_PROFILE = re.compile(r"([1-7]g\.\d+gb(?:[+-][a-z.]+)?)(?:\s*[:=x*]\s*(\d+))?")
_EXACT = re.compile(r"[rR]?(\d{3})(\.\d+){2,}")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_PERCENT = re.compile(r"([0-9]{1,3})\s*%")
#: The whole of which an example takes a part.
_OF = 16
_BRANCH = re.compile(r"[rR]?(\d{3})([-_ ]open)?\b.*")
#: An amount with a unit in whatever letters: 10GB, 10 gib.
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtT])([iI]?)[bB]?")
_KEY = re.compile(r"([A-Za-z_][\w.-]*):")
#: An image by its tag, or without one.
_IMAGE = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?(/[\w.-]+)+(:[\w.-]+)?")
#: Files of a site that Ansible must not read.
FILES = ("ca", "certificate")
FOLDERS = ("etcd_data_dir",)
#: What people write for a value that is chosen for them.
WHATEVER = ("latest", "newest", "auto", "default", "any")


def fix(name: str, value: object, pattern: str | None) -> str | None:
    """Return what to write instead of a value, None where nothing is likely."""
    if name in {"profile", "profiles"}:
        return _profiles(value)
    if not isinstance(value, str):
        return None
    if name == "branch":
        return _branch(value)
    if name == "image" and _IMAGE.fullmatch(value):
        return f"read it: skopeo inspect --format '{{{{.Digest}}}}' docker://{value}"
    if pattern is None:
        return None
    form = re.compile(pattern)
    if name in FILES:
        hidden = f".{value}"
        begun = form.fullmatch(hidden) and "/" not in value
        return f"rename the file, and write {hidden}" if begun else None
    if name in FOLDERS:
        whole = f"/{value.strip('/')}"
        return f"write {whole}" if form.fullmatch(whole) else None
    return next((f"write {pasted(one)}" for one in _forms(value) if form.fullmatch(one)), None)


def number(value: object) -> str | None:
    """Return how a number is written that stands in quotes, or with a percent sign."""
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
        part = round(int(percent[1]) * _OF / 100)
        return f"write the number itself, such as {part} where the whole is {_OF}"
    quoted = isinstance(value, str) and _NUMBER.fullmatch(value)
    return f"write {value}, without quotes" if quoted else None


def like(key: str, known: Mapping[str, Any], value: object, allowed: str) -> str:
    """Return how a setting is written, by what the manual has of it, and that it may be left out.

    `allowed` may have an example already.
    """
    left_out = known.get("x-default", "").replace("`", "")
    if left_out and nearest(str(value).lower(), WHATEVER):
        return f"leave it out: {left_out}"
    fix = "correct it"
    if known.get("examples") and " like " not in allowed:
        written = {key: known["examples"][0]}
        fix = f"write it like this: {manual.flow(written)[1:-1]}"
    return fix + (f", or leave it out: {left_out}" if left_out else "")


def indented(name: str, place: Place) -> str | None:
    """Return what to do about a setting without a value whose lines were not indented."""
    at = place.line or 0
    key = next((line for line in lines_of(place.file)[at : at + 1] if _KEY.match(line)), None)
    found = _KEY.match(key) if key else None
    if found is None or found[1].startswith("bedplate_"):
        return None
    return (
        f"indent {found[1]}, on line {at + 1}, and what is below it, if that is what {name} has; "
        "or leave it out"
    )


def word(value: object, known: list[str]) -> str | None:
    """Return which of some words to write."""
    plain = str(value).lower().replace("_", "-")
    begun = [one for one in known if plain and one.startswith(plain)]
    close = begun[0] if len(begun) == 1 else nearest(plain, known)
    return f"write {close}" if close else None


def _forms(value: str) -> Iterator[str]:
    """Yield a text as it may be written here: without a scheme, a v or a B, with hyphens, small."""
    yield re.sub(r"^https?://", "", value).rstrip("/")
    bare = re.sub(r"\[.*\]", "", value.strip())
    for one in (bare, bare.lower()):
        yield one
        yield one.removeprefix("v")
        yield re.sub(r"(==|[:=@_\s])+", "-", one).strip("-")
        yield re.sub(r"[-\s]+", "_", one)
    yield re.sub(r"^[A-Za-z]+[-_\s]?", "", bare)
    if amount := _AMOUNT.fullmatch(bare):
        unit = amount[2].lower() if amount[2] in "kK" and not amount[3] else amount[2].upper()
        yield f"{amount[1]}{unit}{amount[3].lower()}"


def _branch(value: str) -> str | None:
    if exact := _EXACT.fullmatch(value):
        pin = value.lstrip("rR")
        return f'write branch: "{exact[1]}", and bedplate_pins: {{nvidia_driver: {pin}}}'
    if found := _BRANCH.fullmatch(value):
        return f'write "{found[1]}"' + (", and flavour: open" if found[2] else "")
    return None


def _profiles(value: object) -> str | None:
    """Return several profiles with their numbers, or the one that is in a text."""
    texts = value if isinstance(value, list) else [value]
    found = [one for text in texts if isinstance(text, str) for one in _PROFILE.findall(text)]
    if not found:
        return None
    if len(found) == 1 and not found[0][1] and not isinstance(value, list):
        return f"write {found[0][0]}"
    numbers: dict[str, int] = {}
    for profile, count in found:
        numbers[profile] = numbers.get(profile, 0) + int(count or 1)
    listed = ", ".join(f"{profile}: {count}" for profile, count in numbers.items())
    return f"write profiles: {{{listed}}}, the instances of each GPU"
