"""The only module that touches Ansible's inner workings: hosts, effective variables, positions.

Values go through Ansible's own inventory, variable and template machinery, so that vault, group
inheritance, ranges, dynamic inventories and `{{ }}` work as users know them. Positions come from
the Origin tags of ansible-core, an internal API:
`tests/unit/test_site_canary.py` says when it moves.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible.template import Templar
from ansible.vars.manager import VariableManager

from bedplate.errors import Problem, SiteError
from bedplate.site.aliases import unfolds
from bedplate.site.places import KeyPath, Place, Places, key_before, lines_of, spelt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX = "bedplate_"
CONNECTION = ("ansible_host", "ansible_port", "ansible_user")
#: Directories beside the inventory's own files.
VARIABLES = {"group_vars", "host_vars"}
LARGEST = 10 * 1024 * 1024
IGNORED = re.compile(r"^\.|~$|\.(orig|bak|ini|cfg|retry|pyc|pyo)$")


@dataclass(frozen=True)
class RawHost:
    """One host as Ansible sees it: plain values, and where each was written."""

    name: str
    groups: tuple[str, ...]
    values: Mapping[str, Any]
    places: Places


@dataclass(frozen=True)
class RawSite:
    """All hosts and groups of an inventory; each group with its children."""

    hosts: tuple[RawHost, ...]
    groups: Mapping[str, tuple[str, ...]]


class Positions:
    """Turns Origin tags into places, with files shown as the user would name them."""

    def __init__(self, site: Path) -> None:
        self._site = site
        self._root = site.resolve()
        self._lines: dict[str, list[str]] = {}

    def shown(self, path: str) -> str:
        """Return a file's name below the site's, as the user gave it."""
        try:
            return str(self._site / Path(path).resolve().relative_to(self._root))
        except ValueError:
            return path

    def place(self, value: object, key: str | None = None) -> Place | None:
        """Return where a tagged value stands; for a named wish, where its key stands."""
        origin = Origin.get_tag(value)
        if origin is None or origin.path is None:
            return None
        line, column = origin.line_num, origin.col_num
        if key is not None and line is not None:
            if origin.path not in self._lines:
                self._lines[origin.path] = lines_of(origin.path)
            line, column = key_before(self._lines[origin.path], key, line) or (line, column)
        return Place(self.shown(origin.path), line, column)

    def written(self, value: object) -> str | None:
        """Return how a scalar is written in its file: YAML forgets that 1.30 was not 1.3."""
        origin = Origin.get_tag(value)
        if origin is None or not (origin.path and origin.line_num and origin.col_num):
            return None
        lines = lines_of(origin.path)
        if origin.line_num > len(lines):
            return None
        found = re.match(r"[\w.+-]+", lines[origin.line_num - 1][origin.col_num - 1 :])
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


class UnquotedNumber(float):
    """A number together with how it was written."""

    text: str


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
        return int(value)
    if isinstance(value, float):
        number = UnquotedNumber(value)
        number.text = positions.written(raw) or positions.written(value) or str(float(value))
        return number
    return str(value)


def files_of(site: Path) -> list[Path]:
    """Return the files that Ansible would read, by name; dot files are never inventory."""
    found = []
    for path in sorted(site.rglob("*")):
        parts = path.relative_to(site).parts
        if path.is_file() and not any(IGNORED.search(part) for part in parts):
            found.append(path)
    return found


def _unreadable(error: AnsibleError, positions: Positions, fallback: Path, what: str) -> Problem:
    origin = error.obj if isinstance(error.obj, Origin) else Origin.get_tag(error.obj)
    text = " ".join(str(getattr(error, "message", error)).split())
    if origin is not None and origin.path:
        place = Place(positions.shown(origin.path), origin.line_num, origin.col_num)
    else:
        place = Place(str(fallback))
    fix = "correct it; `ansible-inventory --list` shows what Ansible makes of it"
    if "VaultSecretsContext" in text:
        text = "an encrypted value, and no vault password"
    if "vault" in text.lower():
        fix = "set ANSIBLE_VAULT_PASSWORD_FILE, or vault_password_file in ansible.cfg"
    return Problem(what, place.file, place.line, place.column, got=text, fix=fix, rule="readable")


def _check_files(site: Path, loader: DataLoader, positions: Positions) -> list[Problem]:
    problems = []
    groups = InventoryData()
    for path in files_of(site):
        if path.stat().st_mode & 0o111:
            continue  # a dynamic inventory: a program in whatever language
        if path.stat().st_size > LARGEST:
            size = f"{path.stat().st_size} bytes"
            fix = "keep data that is no inventory out of the site"
            problems.append(
                Problem(
                    "file is too large for an inventory",
                    str(path),
                    got=size,
                    allowed=f"{LARGEST} bytes",
                    fix=fix,
                    rule="readable",
                )
            )
            continue
        content = path.read_bytes()
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            problems.append(
                Problem(
                    "file is not UTF-8 text",
                    str(path),
                    content.count(b"\n", 0, error.start) + 1,
                    got=f"byte 0x{content[error.start]:02x}",
                    allowed="UTF-8",
                    fix="save it as UTF-8, or remove it from the site",
                    rule="readable",
                )
            )
            continue
        # A file of variables may be YAML without saying so in its name.
        if path.suffix in {".yml", ".yaml", ".json", ""} and (found := unfolds(text)):
            line, got, allowed = found
            what, fix = "YAML unfolds too far", "write out what is meant"
            problems.append(
                Problem(what, str(path), line, got=got, allowed=allowed, fix=fix, rule="readable")
            )
        elif path.suffix in {".yml", ".yaml"}:
            problems += _check_yaml(path, text, loader, positions)
            if not problems and not VARIABLES & set(path.relative_to(site).parts):
                problems += _check_groups(path, loader, positions, groups)
    return problems


def _check_groups(
    path: Path, loader: DataLoader, positions: Positions, groups: InventoryData
) -> list[Problem]:
    """Add one file to *groups* by Ansible's yaml plugin: Ansible itself only warns, and goes on.

    Groups that contain each other are found here, where the file can be named.
    """
    content = loader.load_from_file(str(path.resolve()), cache="none")
    if not content or "plugin" in content:
        return []  # the configuration of another inventory plugin
    try:
        inventory_loader.get("yaml").parse(groups, loader, str(path.resolve()))
    except AnsibleError as error:
        return [_unreadable(error, positions, path, "file cannot be read as an inventory")]
    return []


def _check_yaml(path: Path, text: str, loader: DataLoader, positions: Positions) -> list[Problem]:
    if "\0" in text:
        fix = "remove it from the site"
        return [Problem("file is binary", str(path), allowed="YAML", fix=fix, rule="readable")]
    try:
        content = loader.load_from_file(str(path.resolve()), cache="none")
    except AnsibleError as error:
        what = "file cannot be read as YAML"
        return [_unreadable(error, positions, path, what)]
    if content is not None and not isinstance(content, dict):
        return [
            Problem(
                "file is not a mapping",
                str(path),
                1,
                got=f"a {'list' if isinstance(content, list) else 'single value'}",
                allowed="keys with values",
                fix="write `key: value` lines",
                rule="readable",
            )
        ]
    return []


def _loader(site: Path) -> DataLoader:
    from ansible import constants

    loader = DataLoader()
    loader.set_basedir(str(site))
    if constants.DEFAULT_VAULT_PASSWORD_FILE or constants.DEFAULT_VAULT_IDENTITY_LIST:
        from ansible.cli import CLI

        secrets = CLI.setup_vault_secrets(
            loader, vault_ids=list(constants.DEFAULT_VAULT_IDENTITY_LIST), auto_prompt=False
        )
        loader.set_vault_secrets(secrets)
    return loader


@contextlib.contextmanager
def _unparsed_is_failed() -> Iterator[None]:
    """Let no source be left out with a warning: its hosts would be missing from the lock."""
    from ansible import constants

    before = constants.INVENTORY_ANY_UNPARSED_IS_FAILED
    constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
    try:
        yield
    finally:
        constants.INVENTORY_ANY_UNPARSED_IS_FAILED = before


def read(site: Path) -> RawSite:
    """Read an inventory directory. Raises SiteError with everything that cannot be read."""
    positions = Positions(site)
    try:
        loader = _loader(site)
    except AnsibleError as error:
        raise SiteError([_unreadable(error, positions, site, "no vault password")]) from error
    if problems := _check_files(site, loader, positions):
        raise SiteError(problems)
    try:
        with _unparsed_is_failed():
            inventory = InventoryManager(loader=loader, sources=[str(site.resolve())])
        manager = VariableManager(loader=loader, inventory=inventory)
    except AnsibleError as error:
        what = "inventory cannot be read"
        raise SiteError([_unreadable(error, positions, site, what)]) from error
    hosts = []
    for name in sorted(inventory.hosts):
        try:
            hosts.append(_host(name, inventory, manager, loader, positions))
        except SiteError as error:
            problems += error.problems
        except AnsibleError as error:
            what = f"variables of host {name} cannot be read"
            problems.append(_unreadable(error, positions, site, what))
    if problems:
        raise SiteError(problems)
    groups = {
        str(name): tuple(sorted(str(child.name) for child in group.child_groups))
        for name, group in inventory.groups.items()
    }
    return RawSite(tuple(hosts), groups)


def _host(
    name: str,
    inventory: InventoryManager,
    manager: VariableManager,
    loader: DataLoader,
    positions: Positions,
) -> RawHost:
    host = inventory.hosts[name]
    variables = manager.get_vars(host=host, include_hostvars=False)
    templar = Templar(loader=loader, variables=variables)
    values: dict[str, Any] = {}
    places: dict[KeyPath, Place] = {}
    problems: list[Problem] = []
    for key, raw in variables.items():
        if not key.startswith(PREFIX) and key not in CONNECTION:
            continue
        path: KeyPath = (str(key),)
        places.update(positions.below(raw, path))
        if path not in places and (place := positions.place(key)):
            places[path] = place
        try:
            values[str(key)] = plain(templar.template(raw), positions, raw)
        except AnsibleError as error:
            place = places.get(path, Place(positions.shown(str(loader.get_basedir()))))
            said = _unreadable(error, positions, Path(place.file), "wish cannot be evaluated")
            problems.append(
                Problem(
                    said.what,
                    place.file,
                    place.line,
                    place.column,
                    spelt(path),
                    said.got,
                    fix=said.fix,
                    rule=said.rule,
                )
            )
    if problems:
        raise SiteError(problems)
    home = positions.place(host.name) or Place(positions.shown(str(loader.get_basedir())))
    groups = tuple(sorted(str(group.name) for group in host.get_groups()))
    return RawHost(str(name), groups, values, Places(places, home))
