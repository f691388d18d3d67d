"""The effective variables of each host: combined and looked at once for all that share them.

Ansible combines variables per host; hosts of the same groups differ only in their own. What groups
say is combined here with Ansible's own functions, in the configured order of precedence.
`tests/unit/test_site_canary.py` compares the outcome with Ansible's.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.helpers import get_group_vars, sort_groups
from ansible.template import Templar
from ansible.utils.vars import combine_vars, load_extra_vars
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

from bedplate.common.errors import Problem, SiteError
from bedplate.site import role_variables
from bedplate.site.model import BARE, OF_GPUS, PREFIX
from bedplate.site.places import KeyPath, Place, Places, spelt
from bedplate.site.positions import UNLOCKS, Positions, encrypted, is_constant, plain, unreadable
from bedplate.site.reach import Reach, Reaches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ansible.inventory.group import Group
    from ansible.inventory.host import Host
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

#: Variables of roles that the plan checks too.
OF_ROLES = ("kubernetes_node_kubelet",)
#: How alike the first word of a variable must be to be taken for a misspelt prefix.
ALIKE = 0.8
#: Ansible's name for when variables are asked for.
STAGE = "task"


@dataclass(frozen=True)
class RawHost:
    """One host as Ansible sees it: plain values, and where each was written.

    Hosts with the same wishes have the same object as `wishes`: it is looked at once. `connection`
    are the variables that decide how the host is reached, `reach` is what Ansible makes of them.
    `problems` are of variables of Bedplate's roles.
    """

    name: str
    groups: tuple[str, ...]
    wishes: Mapping[str, Any]
    connection: Mapping[str, Any]
    reach: Reach
    places: Places
    problems: tuple[Problem, ...] = ()


@cache
def is_wish(key: str) -> bool:
    """Tell whether a variable is a wish, or was meant as one: `bedplat_gpu` is misspelt."""
    if key.startswith(PREFIX[:-1]) or key in OF_ROLES:
        return True
    first, _, rest = key.replace("-", "_").lower().partition("_")
    likeness = difflib.SequenceMatcher(None, first, PREFIX[:-1]).ratio()
    return bool(rest) and likeness >= ALIKE


@dataclass(frozen=True)
class _Fragment:
    """One wish as it is written: its value where that is the same for all, its places."""

    raw: object
    value: Any
    constant: bool
    places: Mapping[KeyPath, Place]


@dataclass(frozen=True)
class _Wishes:
    """Wishes that hosts have in common, with their places."""

    values: Mapping[str, Any]
    places: Mapping[KeyPath, Place]


@dataclass(frozen=True)
class _Layer:
    """What the groups of a host say: the same for all hosts of these groups."""

    names: tuple[str, ...]
    variables: Mapping[str, Any]
    wishes: Mapping[str, _Fragment]
    #: The variables among them that decide how a host is reached.
    access: frozenset[str]
    #: What is wrong with those of Bedplate's roles.
    problems: tuple[Problem, ...]


class Reader:
    """Reads hosts, and what many of them share once."""

    def __init__(
        self,
        site: Path,
        loader: DataLoader,
        inventory: InventoryManager,
        positions: Positions,
        ranged: Mapping[str, Place],
        used: frozenset[str] = frozenset(),
    ) -> None:
        self._home = Place(str(site))
        self._ranged, self._used = ranged, used
        self._loader, self._inventory, self._positions = loader, inventory, positions
        #: Variables of the command line win over those of groups and hosts.
        self._extra: Mapping[str, Any] = load_extra_vars(loader)
        self._reaches = Reaches()
        self._layers: dict[tuple[str, ...], _Layer] = {}
        self._fragments: dict[tuple[str, int, Place | None], _Fragment] = {}
        self._known: dict[tuple[object, ...], _Wishes] = {}

    def host(self, host: Host) -> RawHost:
        """Read one host. Raises SiteError if a wish cannot be evaluated."""
        layer = self._layer(host)
        own = combine_vars(host.get_vars(), self._of_plugins([host]))
        variables: Mapping[str, Any] = layer.variables
        fragments = layer.wishes
        if any(is_wish(key) or key in BARE or key in OF_GPUS for key in own):
            variables = combine_vars(layer.variables, own)
            fragments = self._wishes_in(variables, host)
        templar = _Templates(lambda: self._magic, self._loader, layer.variables, own)
        wishes = self._evaluated(fragments, templar)
        names = sorted(layer.access | self._reaches.names.intersection(own))
        connection, places = self._variables(names, own, layer, templar)
        home = self._positions.place(host.name) or self._ranged.get(str(host.name), self._home)
        return RawHost(
            str(host.name),
            layer.names,
            wishes.values,
            connection,
            self._reaches.of(str(host.name), connection),
            Places(wishes.places, home, places),
            layer.problems + self._of_roles(own, host),
        )

    def password(self, host: Host, kind: str) -> str | None:
        """Return a host's password of a kind. Raises SiteError if it cannot be evaluated."""
        layer = self._layer(host)
        own = combine_vars(host.get_vars(), self._of_plugins([host]))
        templar = _Templates(lambda: self._magic, self._loader, layer.variables, own)
        values, _ = self._variables(self._reaches.passwords[kind], own, layer, templar)
        return self._reaches.password(values, kind)

    def _variables(
        self, names: Iterable[str], own: Mapping[str, Any], layer: _Layer, templar: _Templates
    ) -> tuple[dict[str, Any], dict[KeyPath, Place]]:
        """Return those of some variables that a host has, and where they are written."""
        values: dict[str, Any] = {}
        places: dict[KeyPath, Place] = {}
        for key in names:
            for source in (self._extra, own, layer.variables):
                if key in source:
                    fragment = self._fragment(key, source[key], keep=source is not own)
                    values[key] = self._value(key, fragment, templar)
                    places.update(fragment.places)
                    break
        return values, places

    @cached_property
    def _magic(self) -> Mapping[str, Any]:
        """Return Ansible's own and the command line's variables: only templates read them."""
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        manager = VariableManager(loader=self._loader, inventory=self._inventory)
        found: dict[str, Any] = manager.get_vars(include_hostvars=False)
        return {**found, "hostvars": HostVars(self._inventory, manager, self._loader)}

    def _layer(self, host: Host) -> _Layer:
        names = tuple(sorted(str(group.name) for group in host.get_groups()))
        if names not in self._layers:
            variables = self._of_groups(host)
            wishes = self._wishes_in(variables, host)
            access = self._reaches.names.intersection([*variables, *self._extra])
            problems = self._of_roles(variables, host)
            self._layers[names] = _Layer(names, variables, wishes, access, problems)
        return self._layers[names]

    def _of_groups(self, host: Host) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in self._parts_of_groups(host):
            found = combine_vars(found, part)
        return found

    def _parts_of_groups(self, host: Host) -> Iterator[dict[str, Any]]:
        """Yield the variables of a host's groups, in the configured order of precedence."""
        everyone = [self._inventory.groups["all"]]
        groups: list[Group] = sort_groups(
            [group for group in host.get_groups() if group.name != "all"]
        )
        parts: dict[str, Callable[[list[Group]], dict[str, Any]]] = {
            "inventory": get_group_vars,
            "plugins_inventory": self._beside_inventory,
            "plugins_play": self._beside_play,
        }
        for entry in constants.VARIABLE_PRECEDENCE:
            whose, _, part = entry.partition("_")
            for group in everyone if whose == "all" else groups:
                if part in parts:
                    yield parts[part]([group])

    def _beside_inventory(self, of: list[Group] | list[Host]) -> dict[str, Any]:
        sources = self._inventory._sources  # as VariableManager does
        found: dict[str, Any] = get_vars_from_inventory_sources(self._loader, sources, of, STAGE)
        return found

    def _beside_play(self, of: list[Group] | list[Host]) -> dict[str, Any]:
        basedir = self._loader.get_basedir()
        found: dict[str, Any] = get_vars_from_path(self._loader, basedir, of, STAGE)
        return found

    def _of_plugins(self, hosts: list[Host]) -> dict[str, Any]:
        found: dict[str, Any] = combine_vars(
            self._beside_inventory(hosts), self._beside_play(hosts)
        )
        return found

    def _wishes_in(self, variables: Mapping[str, Any], host: Host) -> dict[str, _Fragment]:
        everything = {**variables, **self._extra}
        found = {}
        for key, raw in everything.items():
            if is_wish(key) or self._is_bare(key, raw):
                # Nothing can be attached to true, false and null.
                bare = raw is None or isinstance(raw, bool)
                place = self._key_place(str(key), host) if bare else None
                found[str(key)] = self._fragment(str(key), raw, place)
        return found

    def _is_bare(self, key: str, raw: object) -> bool:
        """Tell whether a setting's prefix was left out, as far as its name says.

        What a template of the site names is a variable of whoever wrote that.
        """
        is_bare = key in BARE or key in OF_GPUS
        return is_bare and key not in self._used and is_constant(raw)

    def _of_roles(self, variables: Mapping[str, Any], host: Host) -> tuple[Problem, ...]:
        """Return what is wrong with variables of Bedplate's roles, each at its place."""
        found = []
        for key, value in variables.items():
            if role_variables.role_of(key) and key not in OF_ROLES:
                place = self._positions.place(value, str(key)) or self._key_place(str(key), host)
                found.append(role_variables.problem(str(key), value, place))
        return tuple(one for one in found if one is not None)

    def _key_place(self, name: str, host: Host) -> Place | None:
        """Return where the key that wins stands: a combined mapping keeps the first one."""
        place = None
        for part in [*self._parts_of_groups(host), host.get_vars(), self._of_plugins([host])]:
            for key in part:
                if key == name:
                    place = self._positions.place(key) or place
        return place

    def _fragment(
        self, name: str, raw: object, place: Place | None = None, *, keep: bool = True
    ) -> _Fragment:
        known = self._fragments.get((name, id(raw), place))
        if known is not None:
            return known
        path: KeyPath = (name,)
        places = dict(self._positions.below(raw, path))
        if place is not None:
            places[path] = place
        constant = is_constant(raw)
        value = plain(raw, self._positions) if constant else None
        fragment = _Fragment(raw, value, constant, places)
        if keep:  # by identity, so that what is kept also keeps the value alive
            self._fragments[name, id(raw), place] = fragment
        return fragment

    def _evaluated(self, fragments: Mapping[str, _Fragment], templar: _Templates) -> _Wishes:
        """Return the values of wishes: one object for all hosts that have the same."""
        values, problems = {}, []
        known: list[object] = []
        for name, fragment in fragments.items():
            try:
                values[name] = self._value(name, fragment, templar)
            except SiteError as error:
                problems += error.problems
                continue
            known.append((name, id(fragment)))
            if not fragment.constant:
                known.append(json.dumps(values[name], sort_keys=True, default=str))
        if problems:
            raise SiteError(problems)
        shared = tuple(known)
        if shared not in self._known:
            places = {path: at for part in fragments.values() for path, at in part.places.items()}
            self._known[shared] = _Wishes(values, places)
        return self._known[shared]

    def _value(self, name: str, fragment: _Fragment, templar: _Templates) -> Any:
        if fragment.constant:
            return fragment.value
        try:
            return plain(templar.template(fragment.raw), self._positions, fragment.raw)
        except AnsibleError as error:
            place = fragment.places.get((name,), self._home)
            what = ("setting" if is_wish(name) else "variable") + " cannot be evaluated"
            said = unreadable(error, self._positions, Path(place.file), what)
            if said.fix == UNLOCKS and (secret := next(encrypted(fragment.raw), None)) is not None:
                place = self._positions.place(secret) or place
            raise SiteError(
                [
                    Problem(
                        said.what,
                        place.file,
                        place.line,
                        place.column,
                        spelt((name,)),
                        said.got,
                        fix=said.fix,
                        rule=said.rule,
                    )
                ]
            ) from error


class _Templates:
    """Evaluates templates with one host's variables, put together when the first one is there."""

    def __init__(
        self,
        magic: Callable[[], Mapping[str, Any]],
        loader: DataLoader,
        *layers: Mapping[str, Any],
    ) -> None:
        self._magic, self._loader, self._layers = magic, loader, layers
        self._templar: Templar | None = None

    def template(self, value: object) -> object:
        """Return the value. Raises AnsibleError."""
        if self._templar is None:
            variables: dict[str, Any] = {}
            for layer in (*self._layers, self._magic()):
                variables = combine_vars(variables, layer)
            self._templar = Templar(loader=self._loader, variables=variables)
        found: object = self._templar.template(value)
        return found
