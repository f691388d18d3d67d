"""Variables of Bedplate's roles in an inventory: refused where no role would take them as written.

The roles' `meta/argument_specs.yml` is the one list of them, for the plan and for the play. A name
belongs to the role whose name it begins with; others are of roles that are not Bedplate's.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from bedplate.common import reading_yaml, shipped
from bedplate.common.errors import Problem, in_order
from bedplate.common.nearest import nearest
from bedplate.common.parts import BY_ROLE
from bedplate.site.positions import Positions, is_constant
from bedplate.site.values import HIDDEN, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bedplate.site.places import Place

#: What gives roles those variables that the plan decides.
OWNERS = ("from_lock.yml", "access.yml")
TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "list": "a list",
    "dict": "a mapping",
    "str": "text",
    "path": "a path",
}
#: Python's types of those that hold others: what is wrong may be inside.
OUTER = {"list": list, "dict": dict}


@cache
def _roles() -> tuple[str, ...]:
    """Return the roles, long names first: `rdma` is not the role of `rdma_device_plugin_x`."""
    found = (path.parents[1].name for path in _specs("*"))
    return tuple(sorted(found, key=len, reverse=True))


def _specs(role: str) -> Any:
    return (shipped.collection() / "roles").glob(f"{role}/meta/argument_specs.yml")


@cache
def role_of(name: object) -> str | None:
    """Return the role that a variable's name begins with, None for what is not Bedplate's."""
    return next((role for role in _roles() if str(name).startswith(f"{role}_")), None)


@cache
def options(role: str) -> Mapping[str, Mapping[str, Any]]:
    """Return a role's variables and what they may be, of all its entry points together."""
    (path,) = _specs(role)
    specs = reading_yaml.parsed(path.read_text(encoding="utf-8"))["argument_specs"]
    return {
        name: option
        for entry in specs.values()
        for name, option in entry.get("options", {}).items()
    }


@cache
def decided() -> frozenset[str]:
    """Return the roles' variables that follow from the lock and the settings."""
    folder = shipped.collection() / "playbooks" / "vars"
    texts = [(folder / name).read_text(encoding="utf-8") for name in OWNERS]
    names = (str(name) for text in texts for name in reading_yaml.parsed(text))
    return frozenset(name for name in names if not name.startswith("__"))


def problems_of(hosts: Iterable[Mapping[str, Any]], site: Path) -> list[Problem]:
    """Return what is wrong with the variables of a play's hosts, each once, in order."""
    positions = Positions(site)
    found = (
        problem(name, value, positions.place(value, name) or positions.place(name))
        for variables in hosts
        for name, value in variables.items()
        if role_of(name)
    )
    return in_order([one for one in found if one])


def problem(name: str, value: object, place: Place | None) -> Problem | None:
    """Return what is wrong with a variable of the inventory; None for those of other roles.

    A value with a template is known on its host alone: the role itself checks it there.
    """
    role = role_of(name)
    if role is None:
        return None
    file, line, column = (place.file, place.line, place.column) if place else (None, None, None)

    def wrong(what: str, got: str, allowed: str | None, fix: str) -> Problem:
        rule = "role-variables"
        return Problem(what, file, line, column, name, got, allowed, fix, rule)

    mine = options(role)
    if name in decided():
        return wrong("variable is decided by the plan", "set in the inventory", None, _remove(role))
    if name not in mine:
        bare = {one.removeprefix(f"{role}_"): one for one in mine}
        close = nearest(name.removeprefix(f"{role}_"), bare)
        free = ", ".join(sorted(set(mine) - decided())) or None
        fix = "remove it" if close is None else f"write {bare[close]}"
        fix = _remove(role) if close and bare[close] in decided() else fix
        return wrong(f"role {role} has no such variable", name, free, fix)
    if not is_constant(value):
        return None
    spec = {key: part for key, part in mine[name].items() if key not in {"default", "required"}}
    found = ArgumentSpecValidator({name: spec}).validate({name: value}).error_messages
    if not found:
        return None
    got, said = shown(value), str(found[0]).rstrip(".")
    if spec.get("no_log"):
        got = said = HIDDEN
    return wrong("wrong value", *_value(spec, value, got, said))


def _remove(role: str) -> str:
    setting = BY_ROLE[role].setting or "none: it follows from the other settings"
    return f"remove it; the setting for it is {setting}"


def _value(
    spec: Mapping[str, Any], value: object, got: str, said: str
) -> tuple[str, str | None, str]:
    """Return what was found in a wrong value, what is allowed and the fix."""
    kind = spec.get("type", "str")
    if choices := spec.get("choices"):
        close = nearest(str(value).lower(), choices)
        return got, ", ".join(choices), f"write {close}" if close else "write one of these"
    if isinstance(value, OUTER.get(kind, ())):
        return said, None, "correct it"
    return got, TYPES[kind], "correct it"
