"""From Ansible's tagged values to plain ones, and to the places where they were written."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible._internal._datatag._tags import Origin
from ansible.parsing.vault import EncryptedString

from bedplate.common.errors import Problem
from bedplate.site import indentation
from bedplate.site.places import KeyPath, Place, key_before, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible.errors import AnsibleError

#: What is wrong with a file that no YAML can be read from.
UNREAD = "file cannot be read as YAML"
#: How the password of a vault is given.
UNLOCKS = (
    "write the password into a file, and the file's name into ANSIBLE_VAULT_PASSWORD_FILE, or as "
    "vault_password_file into ansible.cfg"
)
#: What Ansible's templating looks for: without any of these, text stays as it is.
TEMPLATE = re.compile(r"\{\{|\{%|\{#|^#jinja2:")


class Positions:
    """Turns Origin tags into places, with files shown as the user would name them."""

    def __init__(self, site: Path) -> None:
        self._site = site
        self._root = site.resolve()
        self._lines: dict[str, list[str]] = {}
        self._shown: dict[str, str] = {}

    def shown(self, path: str) -> str:
        """Return a file's name below the site's, as the user gave it."""
        if path not in self._shown:
            try:
                below = Path(path).resolve().relative_to(self._root)
                self._shown[path] = str(self._site / below)
            except ValueError:
                self._shown[path] = path
        return self._shown[path]

    def _lines_of(self, path: str) -> list[str]:
        if path not in self._lines:
            self._lines[path] = lines_of(path)
        return self._lines[path]

    def place(self, value: object, key: str | None = None) -> Place | None:
        """Return where a tagged value stands; for a named wish, where its key stands."""
        origin = Origin.get_tag(value)
        if origin is None or origin.path is None:
            return None
        line, column = origin.line_num, origin.col_num
        if key is not None and line is not None:
            line, column = key_before(self._lines_of(origin.path), key, line) or (line, column)
        return Place(self.shown(origin.path), line, column)

    def written(self, value: object) -> str | None:
        """Return how a scalar is written in its file: YAML forgets that 1.30 was not 1.3."""
        origin = Origin.get_tag(value)
        if origin is None or not (origin.path and origin.line_num and origin.col_num):
            return None
        lines = self._lines_of(origin.path)
        if origin.line_num > len(lines):
            return None
        found = re.match(r"[\w.:+-]+", lines[origin.line_num - 1][origin.col_num - 1 :])
        return found.group() if found else None

    def below(self, value: object, path: KeyPath) -> Iterator[tuple[KeyPath, Place]]:
        """Yield the place of a value and of everything inside it."""
        if len(path) == 1 and (place := self.place(value, str(path[0]))):
            yield path, place
        if isinstance(value, dict):
            for key, item in value.items():
                inner = (*path, str(key))
                if place := self.place(key) or self.place(item):
                    yield inner, place
                yield from self.below(item, inner)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if place := self.place(item):
                    yield (*path, index), place
                yield from self.below(item, (*path, index))


class Number(float):
    """A number together with how it was written."""

    text: str


class WholeNumber(int):
    """A whole number that was written otherwise: 10:30 is 630, 0x10 is 16."""

    text: str


def is_constant(value: object) -> bool:
    """Tell whether a value is the same for every host: nothing in it is a template or encrypted."""
    if isinstance(value, dict):
        return all(is_constant(k) and is_constant(v) for k, v in value.items())
    if isinstance(value, list):
        return all(is_constant(item) for item in value)
    if isinstance(value, str):
        return not TEMPLATE.search(value)
    return not isinstance(value, EncryptedString)


def encrypted(value: object) -> Iterator[EncryptedString]:
    """Yield the texts in a value that are encrypted one by one."""
    if isinstance(value, EncryptedString):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from encrypted(one)


def plain(value: object, positions: Positions, raw: object = None) -> Any:
    """Return a value without Ansible's tags and lazy containers."""
    if isinstance(value, dict):
        other = raw if isinstance(raw, dict) else {}
        return {str(k): plain(v, positions, other.get(k, v)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        same = raw if isinstance(raw, list) and len(raw) == len(value) else value
        return [plain(v, positions, r) for v, r in zip(value, same, strict=True)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        text = positions.written(raw) or positions.written(value)
        if text is None or text == str(int(value)) or not text[0].isdigit():
            return int(value)
        whole = WholeNumber(value)
        whole.text = text
        return whole
    if isinstance(value, float):
        number = Number(value)
        number.text = positions.written(raw) or positions.written(value) or str(float(value))
        return number
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    return str(value)


def unreadable(error: AnsibleError, positions: Positions, fallback: Path, what: str) -> Problem:
    """Return what Ansible could not read, at its place as far as Ansible says it."""
    origin = error.obj if isinstance(error.obj, Origin) else Origin.get_tag(error.obj)
    text = " ".join(str(getattr(error, "message", error)).split())
    if origin is not None and origin.path:
        place = Place(positions.shown(origin.path), origin.line_num, origin.col_num)
    else:
        place = Place(str(fallback))
    fix = "correct it; `ansible-inventory --list` shows what Ansible makes of it"
    key = None
    lines = lines_of(place.file) if indentation.SAYS.search(text) else []
    if place.line and (fault := indentation.too_far(lines, place.line)):
        what, text, fix = "line is indented too far", fault.found, fault.fix
        place = Place(place.file, fault.line, fault.column)
    if "Tabs are" in text:
        what, text, fix = "line begins with a tab", "a tab", "replace the tab with spaces"
    if "duplicate mapping key" in text:
        what, fix = "key is there twice", "remove one: YAML would silently take the last"
        key = text = text.rsplit("duplicate mapping key ", 1)[-1].rstrip(".").strip("'")
    if "VaultSecretsContext" in text:
        text = "an encrypted value, and no vault password"
    if "vault" in text.lower():
        what = "file cannot be decrypted" if what == UNREAD else what
        fix = UNLOCKS
    return Problem(what, place.file, place.line, place.column, key, text, fix=fix, rule="readable")
