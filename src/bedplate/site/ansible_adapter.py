"""An inventory as Ansible reads it; with `effective` and `positions`, all that knows its inside.

Values go through Ansible's own inventory, variable and template machinery, so that vault, group
inheritance, ranges, dynamic inventories and `{{ }}` work as users know them. Positions come from
the Origin tags of ansible-core, an internal API: `tests/unit/test_site_canary.py` says when it
moves.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory import manager
from ansible.inventory.host import Host
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultSecretsContext
from ansible.plugins.loader import init_plugin_loader, inventory_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

from bedplate.common import walking
from bedplate.common.errors import Problem, SiteError
from bedplate.common.lock_place import FACTS
from bedplate.common.nearest import nearest
from bedplate.site import files, unread, waiting
from bedplate.site.effective import RawHost, Reader, is_wish
from bedplate.site.inventory_file import Written
from bedplate.site.places import Place
from bedplate.site.positions import UNREAD, Positions, encrypted, unreadable
from bedplate.site.role_variables import role_of
from bedplate.site.site import POOL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ansible.parsing.vault import EncryptedString

#: What a file has that may name a plugin, or that only Ansible can look into.
NAMES_PLUGINS = re.compile(r"\{\{|\{%|\\[xuU]0*7[bB]|plugin|\$ANSIBLE_VAULT|!vault")
#: What is inside templates, and the names in that.
TEMPLATES, WORDS = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL), re.compile(r"\w+")
#: The source that Ansible's error names, and what a plugin says that needs a library.
SOURCE = re.compile(r"inventory source (\S+)$")
LACKS = re.compile(r"must be installed|required Python library|No module named")
#: How variables begin that decide how a host is reached.
ACCESS = "ansible_"


@dataclass(frozen=True)
class RawSite:
    """All hosts and groups of an inventory; each group with its children and its place.

    `problems` is what is wrong with files that could be read.
    """

    hosts: tuple[RawHost, ...]
    groups: Mapping[str, tuple[str, ...]]
    places: Mapping[str, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


class _Loader(DataLoader):  # type: ignore[misc]  # it has no types
    """Reads each file once: what was checked is what Ansible's plugins then get."""

    def __init__(self, site: Path) -> None:
        super().__init__()
        self.set_basedir(str(site))
        self.checked: dict[str, Any] = {}
        if constants.DEFAULT_VAULT_PASSWORD_FILE or constants.DEFAULT_VAULT_IDENTITY_LIST:
            self.set_vault_secrets(self._vault_secrets())

    def _vault_secrets(self) -> Any:
        """Return the passwords of vaults, which Ansible takes once per process."""
        known = VaultSecretsContext.current(optional=True)
        if known is not None:
            return known.secrets
        from ansible.cli import CLI

        identities = list(constants.DEFAULT_VAULT_IDENTITY_LIST)
        return CLI.setup_vault_secrets(self, vault_ids=identities, auto_prompt=False)

    def check(self, path: Path) -> Any:
        """Read a file of the site as the plugins will."""
        content = super().load_from_file(
            str(path), cache="none", unsafe=True, trusted_as_template=True
        )
        self.checked[str(path)] = content
        return content

    def load_from_file(self, file_name: str, *args: Any, **options: Any) -> Any:
        """Return what a file contains; as it was checked, if it was."""
        if file_name in self.checked:
            return self.checked[file_name]
        return super().load_from_file(file_name, *args, **options)


class _Inventory(InventoryManager):  # type: ignore[misc]  # it has no types
    """Leaves the site's facts out, whatever ansible.cfg says."""

    def parse_source(self, source: str, cache: bool = False) -> bool:
        """Read a source below the site."""
        if source in {f"{one}/{FACTS}" for one in self._sources} and Path(source).is_dir():
            return False
        return bool(super().parse_source(source, cache=cache))


def ignores_facts() -> bool:
    """Tell whether Ansible's own commands leave a site's facts out of the inventory."""
    return any(re.search(one, FACTS) for one in constants.INVENTORY_IGNORE_PATTERNS)


def _check_files(
    site: Path, loader: _Loader, positions: Positions
) -> tuple[Written, list[tuple[files.SiteFile, str]], frozenset[str]]:
    """Read every file.

    Returns the groups, the files of wishes with one wish of each, and the words in templates.

    Raises SiteError with what no inventory can be.
    """
    readable, problems = files.check(site)
    _collections(site, readable)
    written = Written(positions)
    wishes: list[tuple[files.SiteFile, str]] = []
    others: list[tuple[Path, str]] = []
    for file in readable:
        real = file.path.resolve() if not file.path.is_symlink() else file.path.absolute()
        try:
            content = loader.check(real)
        except AnsibleError as error:
            problems.append(unreadable(error, positions, file.path, UNREAD))
            continue
        if content is not None and not isinstance(content, dict):
            problems.append(
                Problem(
                    "file is not a mapping",
                    str(file.path),
                    1,
                    got=f"a {'list' if isinstance(content, list) else 'single value'}",
                    allowed="keys with values",
                    fix="write `key: value` lines",
                    rule="readable",
                )
            )
        elif not file.variables:
            written.add(content, str(file.path))
            problems += _no_plugin(content, file.path, positions)
        elif wish := next((key for key in content or () if is_wish(key) or role_of(key)), None):
            wishes.append((file, wish))
        elif access := next((key for key in content or () if str(key).startswith(ACCESS)), None):
            others.append((file.path, access))
    problems += written.problems or written.circle()
    wanted = [*((file.path, wish) for file, wish in wishes), *others]
    problems += unread.problems(site, wanted, positions)
    if problems:
        raise SiteError(walking.folded(site, problems))
    templates = (text for file in readable for text in TEMPLATES.findall(file.text))
    return written, wishes, frozenset(word for text in templates for word in WORDS.findall(text))


def _no_plugin(content: Any, path: Path, positions: Positions) -> list[Problem]:
    """Return that a source's inventory plugin isn't installed: Ansible's error doesn't name it."""
    name = content.get("plugin") if content else None
    if not isinstance(name, str) or inventory_loader.has_plugin(name):
        return []
    place = positions.place(name) or Place(str(path))
    collection = ".".join(name.split(".")[:2])
    fix = f"correct it, or run: ansible-galaxy collection install {collection}"
    return [
        Problem(
            "inventory plugin is not installed",
            place.file,
            place.line,
            place.column,
            "plugin",
            str(name),
            "a plugin that `ansible-doc -t inventory -l` lists",
            fix if name.count(".") > 1 else "correct it",
            rule="readable",
        )
    ]


def _of_nobody(
    wishes: list[tuple[files.SiteFile, str]], inventory: InventoryManager, positions: Positions
) -> list[Problem]:
    """Return the files of wishes that no group or host has: Ansible passes over them in silence."""
    problems = []
    for file, wish in wishes:
        kind, name = file.of
        known = inventory.groups if kind == "group_vars" else inventory.hosts
        if name in known:
            continue
        what = "group" if kind == "group_vars" else "host"
        close = nearest(name, [str(each) for each in known])
        if close is None and name.startswith(POOL_PREFIX):
            # It is most likely that of the one pool that has no file itself.
            lone = {str(one) for one in known if one.startswith(POOL_PREFIX)}
            lone -= {file.of[1] for file, _ in wishes}
            close = lone.pop() if len(lone) == 1 else None
        place = positions.place(wish, wish)
        problems.append(
            Problem(
                f"settings of an unknown {what}",
                str(file.path),
                place.line if place else 1,
                place.column if place else 1,
                str(wish),
                name,
                f"a {what} of the inventory",
                f"rename the file to {close}, or remove it"
                if close
                else f"name a {what} {name} in the inventory, or remove the file",
                rule="known-groups",
            )
        )
    return problems


@contextlib.contextmanager
def _strictly() -> Iterator[None]:
    """Let nothing be left out with a warning: no source that cannot be parsed, no key given twice.

    The hosts of such a source would be missing from the lock, and YAML keeps the last such key.
    """
    name = "ANSIBLE_DUPLICATE_YAML_DICT_KEY"
    unparsed, duplicate = constants.INVENTORY_ANY_UNPARSED_IS_FAILED, os.environ.get(name)
    constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
    os.environ[name] = "error"
    try:
        yield
    finally:
        constants.INVENTORY_ANY_UNPARSED_IS_FAILED = unparsed
        if duplicate is None:
            del os.environ[name]
        else:
            os.environ[name] = duplicate


class _Quiet:
    """Ansible's display, which keeps what plugins say of a source that none of them can parse."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self.causes: list[tuple[str, AnsibleError]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._display, name)

    def error_as_warning(self, msg: str, exception: AnsibleError) -> None:
        """Keep a plugin's error: it is the reason of the one that is then raised."""
        self.causes.append((msg, exception))

    def why(self, error: AnsibleError) -> AnsibleError:
        """Return the error of the plugin that a file names, or of the last that tried it."""
        named = [cause for msg, cause in self.causes if "'auto'" in msg]
        return (named or [cause for _, cause in self.causes][-1:] or [error])[0]


@contextlib.contextmanager
def _quietly() -> Iterator[_Quiet]:
    quiet = _Quiet(manager.display)
    manager.display = quiet
    try:
        yield quiet
    finally:
        manager.display = quiet._display


def _collections(site: Path, readable: Sequence[files.SiteFile]) -> None:
    """Set up full plugin names and collections' plugins, as Ansible's own commands do first.

    Once per process: within Ansible it is done already. Ansible then reads the table of everything
    that ever moved between collections, which takes longer than a site of a few hundred hosts: not
    done where no file can name a plugin.
    """
    if AnsibleCollectionConfig.collection_finder is not None:
        return
    enabled = (*constants.INVENTORY_ENABLED, *constants.VARIABLE_PLUGINS_ENABLED)
    known = {file.path for file in readable}
    if (
        any("." in name for name in enabled)
        or any(NAMES_PLUGINS.search(file.text) for file in readable)
        or any(path not in known and FACTS not in path.parts for path in files.files_of(site))
    ):
        init_plugin_loader()


@dataclass(frozen=True)
class _Opened:
    """An inventory whose files are read and checked."""

    positions: Positions
    inventory: InventoryManager
    reader: Reader
    written: Written
    wishes: list[tuple[files.SiteFile, str]]


def _open(site: Path) -> _Opened:
    """Open an inventory directory. Raises SiteError with everything that cannot be read."""
    positions = Positions(site)
    try:
        loader = _Loader(site)
    except AnsibleError as error:
        raise SiteError([unreadable(error, positions, site, "no vault password")]) from error
    try:
        with _quietly() as said, _strictly():
            written, wishes, used = _check_files(site, loader, positions)
            inventory = _Inventory(loader=loader, sources=[str(site.resolve())])
        reader = Reader(site, loader, inventory, positions, written.ranged, used)
    except AnsibleError as error:
        what = "inventory cannot be read"
        source = SOURCE.search(str(error))
        place = Path(positions.shown(source[1])) if source else site
        problem = unreadable(said.why(error), positions, place, what)
        if LACKS.search(problem.got or ""):
            problem = replace(problem, fix="install that library into the environment of bedplate")
        raise SiteError([problem]) from error
    return _Opened(positions, inventory, reader, written, wishes)


def _each[T](site: Path, opened: _Opened, read: Callable[[Host], T]) -> list[T]:
    """Read something of every host. Raises SiteError with everything that cannot be read."""
    problems: list[Problem] = []
    found = []
    for name in sorted(opened.inventory.hosts):
        try:
            found.append(read(opened.inventory.hosts[name]))
        except SiteError as error:
            problems += error.problems
        except AnsibleError as error:
            what = f"variables of host {name} cannot be read"
            problems.append(unreadable(error, opened.positions, site, what))
    if problems:
        raise SiteError(problems)
    return found


def read(site: Path) -> RawSite:
    """Read an inventory directory. Raises SiteError with everything that cannot be read."""
    with waiting.limited(site):
        opened = _open(site)
        hosts = _each(site, opened, opened.reader.host)
    groups = {
        str(name): tuple(sorted(str(child.name) for child in group.child_groups))
        for name, group in opened.inventory.groups.items()
    }
    nobodys = _of_nobody(opened.wishes, opened.inventory, opened.positions)
    return RawSite(tuple(hosts), groups, opened.written.groups, tuple(nobodys))


def contents(site: Path, paths: Iterable[Path]) -> Iterator[tuple[Path, Any, list[str]]]:
    """Yield files with what they contain, and the texts in it that are encrypted one by one.

    Raises SiteError for the first that cannot be read or decrypted.
    """
    positions, path = Positions(site), site
    text: EncryptedString | None = None
    try:
        loader = _Loader(site)
        for path in paths:
            text = None
            content = loader.check(path.absolute())  # of a relative one Ansible takes its own place
            yield path, content, [str(text := one) for one in encrypted(content)]
    except (AnsibleError, ReferenceError) as error:
        # The second is Ansible's where it has no password at all.
        known = error if isinstance(error, AnsibleError) else AnsibleError(str(error), obj=text)
        raise SiteError([unreadable(known, positions, path, UNREAD)]) from error


def passwords(site: Path, kind: str) -> tuple[dict[str, str], str | None]:
    """Return the password of each host that has one, and what any other host would have.

    `kind` is `sudo` or `login`. Raises SiteError if one cannot be evaluated.
    """
    with waiting.limited(site):
        opened = _open(site)
        names = sorted(opened.inventory.hosts)
        found = _each(site, opened, lambda host: opened.reader.password(host, kind))
        other = Host("no host of the site")
        other.add_group(opened.inventory.groups["all"])
        others = opened.reader.password(other, kind)
    known = {str(name): one for name, one in zip(names, found, strict=True) if one is not None}
    return known, others
