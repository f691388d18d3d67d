"""What kubelet and kube-proxy refuse of the values of their settings, by the catalogue's rules."""

from __future__ import annotations

import re
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, NamedTuple

from bedplate.catalogue.kubernetes_facts import Limit
from bedplate.common.nearest import SAME, nearest
from bedplate.common.versions import minor, number, parts
from bedplate.resolver.configuration_forms import percentage, quantity, said, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.kubernetes_facts import Asked, ConfigurationRule, FeatureGates

type Path = tuple[str | int, ...]
GATES = "featureGates"
#: The gates that stand for all others of a stage.
OF_STAGE = {"AllAlpha": ("alpha",), "AllBeta": ("beta_on", "beta_off")}
UNSET: tuple[object, ...] = (None, "", [], {})
BOUNDS: dict[str, tuple[str, Callable[[Decimal, Decimal], bool]]] = {
    "least": ("{} or more", ge),
    "most": ("{} or less", le),
    "over": ("more than {}", gt),
    "under": ("less than {}", lt),
}


class Refused(NamedTuple):
    """A value that a program refuses: where it is in its document, and the parts of a message."""

    path: Path
    got: str
    allowed: str
    fix: str
    source: str


class Document(NamedTuple):
    """A document as its program has it, defaults and gates with it; `own` are the user's paths."""

    name: str
    kubernetes: str
    values: Mapping[str, object]
    gates: Mapping[str, object]
    own: frozenset[Path]


def refusals(document: Document, catalogue: Catalogue) -> Iterator[Refused]:
    """Yield what the program of a document refuses, each at a setting that the user wrote."""
    gates = catalogue.feature_gates.get(minor(document.kubernetes))
    if gates is not None:
        yield from _unknown_gates(document, gates.value, catalogue)
        for refused in _gates_of_gates(document, gates.value):
            yield refused._replace(source=gates.source.url)
    release = number(minor(document.kubernetes))
    for fact in catalogue.configuration_rules.values():
        rule = fact.value
        since, upto = rule.kubernetes_from, rule.kubernetes_upto
        in_range = not (since and release < number(since)) and not (upto and release > number(upto))
        if rule.document == document.name and in_range:
            for refused in _by_rule(rule, document):
                yield refused._replace(source=fact.source.url)


def gates_of(kubernetes: str, given: object, catalogue: Catalogue) -> dict[str, object]:
    """Return all feature gates of a release with their values, where some are given."""
    own: dict[str, object] = dict(given) if isinstance(given, dict) else {}
    fact = catalogue.feature_gates.get(minor(kubernetes))
    if fact is None:
        return own
    on = {*fact.value.beta_on, *fact.value.default_on, *fact.value.locked_on}
    found: dict[str, object] = {name: name in on for name in _names(fact.value)}
    for every, groups in OF_STAGE.items():
        if every in own:
            names = (name for group in groups for name in getattr(fact.value, group))
            found |= dict.fromkeys(names, own[every])
    return found | own


def _names(gates: FeatureGates) -> set[str]:
    groups = type(gates).model_fields.keys() - {"kubernetes", "needs"}
    return {name for group in groups for name in getattr(gates, group)}


def _own_gates(document: Document) -> list[str]:
    return sorted(str(path[1]) for path in document.own if path[0] == GATES and len(path) == 2)


def _unknown_gates(
    document: Document, gates: FeatureGates, catalogue: Catalogue
) -> Iterator[Refused]:
    release, known = gates.kubernetes, _names(gates)
    source = catalogue.feature_gates[release].source.url
    for name in _own_gates(document):
        if name not in known:
            having = [
                v for v, fact in catalogue.feature_gates.items() if name in _names(fact.value)
            ]
            fix = "remove it"
            if having and number(max(having, key=number)) < number(release):
                fix += f": {max(having, key=number)} is the last release that has it"
            elif not having and (close := nearest(name, known, at_least=SAME)):
                fix = f"write {close}"
            allowed = f"a feature gate of Kubernetes {release}"
            yield Refused((GATES, name), name, allowed, fix, source)


def _gates_of_gates(document: Document, gates: FeatureGates) -> Iterator[Refused]:
    """Yield gates that are locked to their default, and those without what they need."""
    on, own = document.gates, _own_gates(document)
    for name in own:
        for locked, value in ((gates.locked_on, True), (gates.locked_off, False)):
            if name in locked and on[name] != value:
                allowed = f"{said(value)}, to which Kubernetes {gates.kubernetes} locks it"
                yield Refused((GATES, name), said(on[name]), allowed, "remove it", "")
    for name, needed in gates.needs.items():
        off = [one for one in needed if not on.get(one)]
        mine = next((one for one in (*off, name, *OF_STAGE) if one in own), None)
        if on.get(name) and off and mine:
            got = f"{said(on[mine])}, with {name} true and {', '.join(off)} false"
            fix = f"turn {' and '.join(off)} on, or {name} off"
            yield Refused((GATES, mine), got, f"{name} with {' and '.join(needed)}", fix, "")


def _by_rule(rule: ConfigurationRule, document: Document) -> Iterator[Refused]:
    for path, asked in rule.when.items():
        here = [value for _, value in lying(document.values, path)]
        if not any(_holds(asked, value, document) for value in here or [None]):
            return
    needed = bool(rule.any)
    choices = [list(_wrong(one, document, needed=needed)) for one in rule.any or [rule.allow]]
    if not all(choices):
        return
    instead = [(path, asked) for allow in rule.any for path, asked in allow.items()]
    for where, value, asked in choices[0][: 1 if instead else None]:
        others = [*rule.when, *(path for path, _ in instead), *_named(asked)]
        concerned = [where, *(at for path in others for at, _ in lying(document.values, path))]
        mine = next((one for one in concerned if one in document.own), None)
        if mine is None:
            continue
        own, me, there = mine == where, dotted(mine), dotted(where)
        around = dict.fromkeys([there, *others])
        shown = [f"{one} {said(_first(document, one))}" for one in around if one not in (me, there)]
        shown = shown if own or instead else [f"{there} {said(value)}", *shown]
        got = said(value if own else _first(document, me))
        got += f", with {' and '.join(shown)}" if shown else ""
        if instead:
            ways = " or ".join(f"{path} {words(one)}" for path, one in instead)
            got, allowed = said(_first(document, me)), f"it with {ways}"
            fix = f"set one of these, or remove {me}"
        elif own:
            allowed, fix = words(asked), _fix(asked, value)
        else:
            allowed = f"{there} {words(asked)}"
            fix = f"correct {there}" if value is not None else f"set {there}"
            fix += f", or remove {_cause(rule, me)}"
        yield Refused(mine, got, allowed, fix, "")


def _wrong(
    allow: Mapping[str, Asked], document: Document, *, needed: bool
) -> Iterator[tuple[Path, object, Asked]]:
    for path, asked in allow.items():
        at = list(lying(document.values, path))
        at = at or ([] if "*" in path or "/" in path else [(tuple(path.split(".")), None)])
        for where, value in at:
            # An unset field is its program's default, which it takes.
            asks = asked == "set" or (isinstance(asked, Limit) and asked.memory_of)
            if (needed or asks or path.endswith("*") or value not in UNSET) and not _holds(
                asked, value, document
            ):
                yield where, value, asked


def _holds(asked: Asked, value: object, document: Document) -> bool:
    if isinstance(asked, Limit):
        return _keeps(asked, value, document)
    if isinstance(asked, bool):
        return value is asked
    if isinstance(asked, list):
        return value in asked
    if asked in ("set", "unset"):
        return (value in UNSET) == (asked == "unset")
    if asked == "release-before":
        major, of_major = parts(document.kubernetes)[:2]
        return value == f"{major}.{of_major - 1}"
    entries = value if isinstance(value, list) else []
    return len(entries) == (1 if asked == "single" else len({str(one) for one in entries}))


def _keeps(limit: Limit, value: object, document: Document) -> bool:
    if limit.memory_of:
        return _reserved(limit.memory_of, value, document)
    if limit.has is not None or limit.lacks is not None:
        inside = isinstance(value, list) and (limit.has or limit.lacks) in value
        return inside == (limit.has is not None)
    if limit.in_ is not None:
        keys = _first(document, limit.in_)
        return isinstance(keys, dict) and value in keys
    if limit.matches is not None and not re.fullmatch(limit.matches, str(value)):
        return False
    amount = size(value)
    if amount is None:  # The form is wrong, which is said elsewhere, or there is no value.
        return value not in UNSET
    bounds = {name: _bound(getattr(limit, name), document) for name in BOUNDS}
    kept = (BOUNDS[name][1](amount, bound) for name, bound in bounds.items() if bound is not None)
    return all(kept) and not (limit.multiple and amount % limit.multiple)


def _bound(given: float | str | None, document: Document) -> Decimal | None:
    found = size(given)
    return size(_first(document, given)) if found is None and isinstance(given, str) else found


def _reserved(paths: Iterable[str], value: object, document: Document) -> bool:
    """Tell whether reservations of NUMA nodes have as much memory as is reserved in all."""
    taken = [_first(document, path) for path in paths]
    if any(percentage(str(one)) is not None for one in taken):
        return value not in UNSET
    amounts = [quantity(one) for one in taken if one is not None]
    if None in amounts:  # Each node works it out of its size.
        return False
    limits = (one for _, one in lying({"all": value}, "all.*.limits.memory"))
    return sum((one or 0 for one in amounts), Decimal(0)) == sum(
        (quantity(one) or 0 for one in limits), Decimal(0)
    )


def lying(values: Mapping[str, object], path: str) -> Iterator[tuple[Path, object]]:
    """Yield what lies at a path, with where: `a.b`, `a.*` each value of a, `a/keys` each key."""
    place, _, keys = path.partition("/")
    for where, value in _below(values, place, ()):
        if not keys:
            yield where, value
        elif isinstance(value, dict):
            yield from (((*where, key), key) for key in value)


def _below(value: object, path: str, at: Path) -> Iterator[tuple[Path, object]]:
    head, _, rest = path.partition(".")
    if not path:
        yield at, value
    elif head == "*" and isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in entries:
            yield from _below(one, rest, (*at, key))
    elif isinstance(value, dict):
        # A key may have dots itself, as memory.available.
        head, rest = (path, "") if path in value else (head, rest)
        if head in value or not rest:
            yield from _below(value.get(head), rest, (*at, head))


def _first(document: Document, path: str) -> object:
    return next((value for _, value in lying(document.values, path)), None)


def _named(asked: Asked) -> list[str]:
    """Return the paths of other fields that a limit speaks of."""
    if not isinstance(asked, Limit):
        return []
    bounds = (getattr(asked, name) for name in BOUNDS)
    others = [one for one in bounds if isinstance(one, str) and size(one) is None]
    return [*others, *([asked.in_] if asked.in_ else []), *asked.memory_of]


def dotted(path: Iterable[str | int]) -> str:
    """Return a path as text: `a.b`."""
    return ".".join(map(str, path))


def words(asked: Asked) -> str:
    """Return the words for what a value has to be."""
    if isinstance(asked, bool):
        return said(asked)
    if isinstance(asked, list):
        return " or ".join(part for part in (", ".join(asked[:-1]), asked[-1]) if part)
    if not isinstance(asked, Limit):
        return {
            "distinct": "each entry once",
            "single": "that entry alone",
            "release-before": "the minor release before",
        }.get(asked, asked)
    if asked.memory_of:
        return f"as much memory in all as {' and '.join(asked.memory_of)}"
    if asked.matches is not None and asked.least is None:
        return f"text like {asked.matches}"
    for name, text in (("has", "with {}"), ("lacks", "without {}"), ("in_", "a key of {} too")):
        if given := getattr(asked, name):
            return text.format(given)
    if asked.least is not None and asked.most is not None:
        found = f"{asked.least} to {asked.most}"
    else:
        bounds = ((BOUNDS[name][0], getattr(asked, name)) for name in BOUNDS)
        found = " and ".join(text.format(bound) for text, bound in bounds if bound is not None)
    return found + (f", in steps of {asked.multiple}" if asked.multiple else "")


def _fix(asked: Asked, value: object) -> str:
    if isinstance(asked, bool):
        return f"write {said(asked)}, or remove it"
    if isinstance(asked, list):
        close = nearest(str(value), asked)
        return f"write {close}" if close else "write one of these, or remove it"
    return "remove it" if asked == "unset" else "correct it, or remove it for its default"


def _cause(rule: ConfigurationRule, path: str) -> str:
    """Return what to remove: the entry of a list that asks for another field, or the field."""
    asked = rule.when.get(path)
    return asked.has if isinstance(asked, Limit) and asked.has else path
