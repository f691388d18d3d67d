"""What Pydantic found, in our words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import ValidationError

from bedplate.common.errors import Problem
from bedplate.common.nearest import nearest, pasted
from bedplate.site import manual, marks, remaining, sought, suggestions
from bedplate.site.model import PREFIX, SHARED, Wishes
from bedplate.site.patterns import BY_GPUS, BY_MEMORY, BY_PART, MEMORY
from bedplate.site.places import spelt
from bedplate.site.sameness import NO_DOCKER, of_a_group_alone
from bedplate.site.values import HIDDEN, shown

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from bedplate.site.effective import RawHost

TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
#: What is allowed, by the name of a setting, or by its whole path where the name says too little.
PATTERNS = {
    "bedplate_sources.url": "the mirror's http:// or https:// address, without user, password and "
    "query",
    "bedplate_proxy.url": "the outbound proxy's address, like http://proxy.example:3128, without a "
    "path; a user and a password may be in it",
    "bedplate_hub.url": "the http:// or https:// address at which users reach the hub, without a "
    "user and a password",
    "version": "a version like 1.36 or 1.36.3",
    "endpoint": "host:port",
    "url": "the http:// or https:// address of the data, without user and password",
    "issuer": "the learning platform's http:// or https:// address, as it names itself",
    "authorize_url": "the identity provider's http:// or https:// address, as it names it",
    "token_url": "the identity provider's http:// or https:// address, as it names it",
    "userdata_url": "the identity provider's http:// or https:// address, as it names it",
    "keys_url": "the identity provider's http:// or https:// address, as it names it",
    "files": "the file server's http:// or https:// address, without user, password and query",
    "registry": "HOST or HOST/NAME in lower case, without https:// and a tag",
    "ca": "a path in the site that begins with a dot, like .ca.pem",
    "user": "a name without spaces, colons, quotes, # and backslashes",
    "password": "a text without spaces, quotes, # and backslashes",
    "pip": "the package index's http:// or https:// address, without user, password and query",
    "conda": "the channels' http:// or https:// address, without user, password and query",
    "pci": "an identifier like 10de:2331",
    "subsystem": "an identifier like 10de:1249",
    "devices": "an address like 0000:3b:00.0",
    "iommu_groups": "an address like 0000:3b:00.0",
    "certificate": "a path in the site that begins with a dot, like .tls/hub.pem",
    "profile": "a MIG profile like 1g.10gb",
    "cards": "numbers of GPUs, as nvidia-smi counts them, like [0, 1]",
    "profiles": "MIG profiles with their numbers, like {3g.40gb: 1, 1g.10gb: 4}",
    "etcd_data_dir": "a folder like /srv/etcd",
    "kernel": "a release like 6.1.0-32-amd64, as uname -r prints it",
    "bedplate_cuda": "a version like 12.9 or 12.9.1",
    "bedplate_pins": "an exact version like 580.95.05",
    "bedplate_schedulers": "a name like kueue, or with its version",
    "bedplate_operators": "a name like gpu-operator, or with its version",
    "bedplate_frameworks": "a name like pytorch, or with its version: pytorch-2.8",
    "operator": "a name like network-operator, or with its version",
    "branch": "a branch of three digits like 580",
    "pod_subnet": "a subnet like 10.244.0.0/16",
    "service_subnet": "a subnet like 10.96.0.0/12",
    "model": "a model like h100-pcie-80gb",
    "os": "a name like debian-12",
    "image": "an image with its digest, like registry.example/lab/own@sha256:0a1b…",
    "hours": "a day and hours like Mon 10:00-12:00, on one day",
    "idle_timeout": "a time like 30m, 2h or 90s",
    "time": "a time like 30m, 2h or 90s",
    "frameworks": "a name like pytorch, or with its version: pytorch-2.8",
    "teachers": "a user's name, or group: and a group's",
    "members": "a user's name, or group: and a group's",
}


_CARDS = "write a list: an entry for the GPUs `cards: [0, 1]`, another for the others"
#: What some GPUs of a host are called elsewhere.
OF_CARDS = {f"bedplate_sharing.{name}": _CARDS for name in ("devices", "cards", "gpus", "indices")}
#: What is a key, and no value in the place of one.
_KEY = re.compile(r"[a-z_]{1,20}")


def problems_of(error: ValidationError, host: RawHost) -> list[Problem]:
    """Return one problem per mistake, each at the place of its wish."""
    # A number that quotes alone do not make right is refused as what it is in quotes.
    details = error.errors(include_url=False)
    again = remaining.errors_of(remaining.quoted(host.wishes, details))
    found = [_problem(again.get(detail["loc"], detail), host) for detail in details]
    # What is missing comes with the unknown key that stands for it: misspelt, or another's.
    missing = {one.key: one for one in found if one.what == remaining.MISSING}
    for number, one in enumerate(found):
        if not one.what.startswith("unknown key"):
            continue
        around = (one.key or "").rpartition(".")[0]
        missing.pop(f"{around}.{one.fix.removeprefix('write ')}", None)
        lacks = [key for key in missing if (key or "").rpartition(".")[0] == around]
        lacks = [key for key in lacks if ": " in missing[key].fix]  # it says what may be written
        if one.fix == "remove it" and lacks:
            more = ", ".join(missing.pop(key).fix for key in lacks)
            found[number] = replace(one, fix=f"{one.fix}, and {more}")
    left = set(missing)
    found = [one for one in found if one.what != remaining.MISSING or one.key in left]
    return [_for_all(one, host) for one in found]


def _for_all(problem: Problem, host: RawHost) -> Problem:
    """Add where a setting belongs that all hosts share, where a group of them alone has it."""
    setting = re.split(r"[.[]", problem.key or "")[0]
    alone = of_a_group_alone(host.places.of((setting,)))
    fix = problem.fix
    if problem.key == "bedplate_container_runtime" and problem.got == '"docker"':
        fix = NO_DOCKER if host.wishes.get("bedplate_kubernetes") else fix
    if alone and setting in SHARED and fix != NO_DOCKER:
        fix += f"; {setting} belongs in group_vars/all: {alone}"
    return replace(problem, fix=fix)


def _problem(detail: ErrorDetails, host: RawHost) -> Problem:
    path = tuple(detail["loc"])
    # Pydantic's word for a name that is a key, and not of the form that names have.
    as_key = path[-1:] == ("[key]",)
    path = _as_written(path[:-1] if as_key else path, host)
    kind, value, place = detail["type"], detail["input"], host.places.of(path)
    # The form of a list's items and of a mapping's values is named by what they are in.
    form = next((str(part) for part in reversed(path) if str(part) in PATTERNS), str(path[-1]))
    setting, known = manual.of_key(path)
    whole = ".".join(map(str, path))
    allowed = _allowed(detail, whole if whole in PATTERNS else form, known.get("x-unit", ""))
    if as_key and form == "bedplate_pins":
        allowed = "a component's name like nvidia_driver"
    got = HIDDEN if _is_secret(path) else shown(value)
    at = (place.file, place.line, place.column, spelt(path))
    said = Problem("wrong value", *at, got, allowed, "correct it", rule="setting-form")
    if kind in OF_KIND and (other := OF_KIND[kind](said, path, value)):
        return other
    if value is None and kind.endswith("_type"):
        fix = len(path) == 1 and suggestions.indented(str(path[-1]), place)
        return replace(said, got="nothing", fix=fix or "give it a value, or leave it out")
    fix = _fix(detail, path, form, allowed)
    # Of a list or a mapping of the right form, a part is wrong: the whole is no example of it.
    of_part = isinstance(value, dict | list) and not kind.endswith("_type")
    if not (fix or of_part or _is_secret(path[:-1])):
        fix = suggestions.like(setting, known, value, allowed)
    return replace(said, fix=fix or said.fix)


def _missing(said: Problem, path: tuple[str | int, ...], _: Any) -> Problem:
    name = str(path[-1])
    if len(path) == 1:
        allowed, fix = "what only you can know", f"set {said.key} in group_vars"
    elif words := _words(path):
        allowed, fix = ", ".join(words), f"add {name}: {' or '.join(words)}"
    else:
        like = f"a value like {manual.flow(manual.of_key(path)[1]['examples'][0])}"
        named = PATTERNS.get(name, like)
        allowed, fix = PATTERNS.get(".".join(map(str, path)), named), f"add {name}"
    said = replace(said, what=remaining.MISSING, got="nothing")
    return replace(said, allowed=allowed, fix=fix)


def _unknown(said: Problem, path: tuple[str | int, ...], value: Any) -> Problem:
    key, name, names = spelt(path), str(path[-1]), manual.fields(path)
    if _is_secret(path[:-1]) and not _KEY.fullmatch(name):
        key, name = spelt(path[:-1]), HIDDEN
    longer = (one for one in names if one.startswith(f"{name}_"))
    close = nearest(name, names) or next(longer, None)
    what, fix = "unknown key", f"write {close}" if close else OF_CARDS.get(key, "remove it")
    if close is None and (holder := _holds(path)):
        fix = f"write {holder}: {{{name}: {_taken((*path[:-1], holder), name, value)}}}"
    elsewhere = None if close else sought.elsewhere(name)
    # Below a setting a word means another setting only where it is about a cluster.
    apart = path[0] == "bedplate_kubernetes" and "bedplate_kubernetes" not in str(elsewhere)
    if elsewhere and (elsewhere[1] is None or apart):
        what, fix = what + elsewhere[0], elsewhere[2]
    if fix == "remove it" and has_form(f"{PREFIX}{name}", value):
        fix = f"write {PREFIX}{name} as far left as {path[0]}"
    return replace(said, what=what, key=key, got=name, allowed=", ".join(names), fix=fix)


def _unquoted(said: Problem, path: tuple[str | int, ...], value: Any) -> Problem | None:
    if not isinstance(value, int | float | date):
        return None
    read, fix = "a number", f'quote it: "{getattr(value, "text", str(value))}"'
    if isinstance(value, bool):
        read = "true or false"
        fix = "quote it as it is written: YAML takes yes, no, on and off for true and false"
    elif isinstance(value, date):
        read = "a date"
    what = f"{'version' if _is_version(path) else 'text'} reads as {read}"
    return replace(said, what=what, allowed="text", fix=fix)


def _two_subnets(said: Problem, path: tuple[str | int, ...], value: Any) -> Problem | None:
    first, comma, _ = str(value).partition(",")
    if not (comma and str(path[-1]).endswith("_subnet")):
        return None
    what, allowed = "dual stack is not supported", "one subnet, of IPv4 or of IPv6"
    return replace(said, what=what, allowed=allowed, fix=f"write {first.strip()}")


#: What is not told by the value and what is allowed alone, by Pydantic's word for it.
OF_KIND = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "string_type": _unquoted,
    "string_pattern_mismatch": _two_subnets,
}


def _fix(detail: ErrorDetails, path: tuple[str | int, ...], form: str, allowed: str) -> str | None:
    kind, value, name = detail["type"], detail["input"], path[-1]
    if name == "vendor" and str(value).lower() == "nvidia":
        return "set NVIDIA's GPUs by bedplate_gpu, without a vendor"
    if kind == "literal_error":
        return suggestions.word(value, allowed.split(", ")) or "write one of these"
    if kind in {"int_type", "float_type"} and isinstance(value, str):
        return suggestions.number(value)
    if value is None or _is_secret(path):
        return None
    if kind in {"model_type", "list_type"} and (inside := _inside(path, value)):
        return f"write {name}: {inside}"
    return suggestions.fix(form, value, detail.get("ctx", {}).get("pattern"))


def _words(path: tuple[str | int, ...]) -> list[str]:
    """Return the words that a setting may have, where it has some."""
    return _literals(manual.models(path[:-1])[-1].model_fields.get(str(path[-1])))


def _literals(field: FieldInfo | None) -> list[str]:
    annotation = field.annotation if field else None
    is_one = get_origin(annotation) is Literal
    return [str(word) for word in get_args(annotation)] if is_one else []


def _inside(path: tuple[str | int, ...], value: object) -> str | None:
    """Return a list or a mapping with the value that was written in its place."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    model, around = manual.models(path)[-1], manual.models(path[:-1])[-1]
    if model is around:
        field = model.model_fields.get(str(path[-1]))
        return f"[{pasted(str(value))}]" if field and get_origin(field.annotation) is list else None
    known = model.model_fields
    takes = next((key for key, one in known.items() if value in _literals(one)), None)
    takes = takes or ("model" if "model" in known else None)
    more = [f", {key}: …" for key, one in known.items() if one.is_required() and key != takes]
    return f"{{{takes}: {value}{''.join(more)}}}" if takes else None


def _holds(path: tuple[str | int, ...]) -> str | None:
    """Return which key next to an unknown one is a mapping that has it."""
    known = manual.models(path[:-1])[-1].model_fields
    models = {name: manual.model_in(field.annotation) for name, field in known.items()}
    return next(
        (k for k, model in models.items() if model and path[-1] in model.model_fields), None
    )


def _taken(path: tuple[str | int, ...], name: str, value: object) -> str:
    """Return a value as the mapping at *path* takes it by a name: as it is, or as it was meant."""
    if not isinstance(value, str | int) or _is_secret(path):
        return "…"
    try:
        manual.models(path)[-1].model_validate({name: value})
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["loc"][:1] == (name,):
                meant = suggestions.fix(name, value, detail.get("ctx", {}).get("pattern")) or ""
                return meant.removeprefix("write ") if meant.startswith("write ") else "…"
    return pasted(value) if isinstance(value, str) else json.dumps(value)


def _is_version(path: tuple[str | int, ...]) -> bool:
    return path[-1] in {"version", "branch"} or path[0] in {"bedplate_pins", "bedplate_cuda"}


def _as_written(path: tuple[str | int, ...], host: RawHost) -> tuple[str | int, ...]:
    """Leave out what we added: the index of a single GPU, the name of sharing's parts."""
    if path[:1] == ("bedplate_gpu",) and isinstance(host.wishes.get("bedplate_gpu"), dict):
        return (path[0], *path[2:])
    if path[:2] == ("bedplate_sharing", "parts"):
        return (path[0], *path[2:])
    return tuple(part for part in path if part not in {BY_PART, BY_MEMORY, BY_GPUS})


def _allowed(detail: ErrorDetails, name: str, unit: str) -> str:
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "string_pattern_mismatch" if context["pattern"] == MEMORY:
            return "an amount like 8Gi, 512Mi or 2G"
        case "literal_error":
            return str(context["expected"]).replace("'", "").replace(" or ", ", ")
        case "string_pattern_mismatch":
            pattern = context["pattern"]
            known = marks.VALUE_IS if pattern == marks.VALUE else f"text of the form {pattern}"
            return PATTERNS.get(name, known)
        case "greater_than":
            return f"more than {context['gt']:,.10g} {unit}".strip()
        case "too_short":
            return f"{context['min_length']} or more of them"
        case "greater_than_equal":
            return f"{context['ge']:,.10g} or more {unit}".strip()
        case "less_than_equal":
            return f"at most {context['le']:,.10g} {unit}".strip()
        case kind:
            return TYPES.get(kind, detail["msg"])


def has_form(setting: str, value: object) -> bool:
    """Tell whether a value is a setting's by keys of its own, be it that some are missing."""
    if not value or manual.models((setting,))[-1] is Wishes:
        return False
    try:
        Wishes.model_validate({setting: value})
    except ValidationError as error:
        found = error.errors(include_url=False)
        return all(one["loc"][0] != setting or one["type"] == "missing" for one in found)
    return True


def _is_secret(path: tuple[str | int, ...]) -> bool:
    """Tell whether a value is of a type that may hold a password, whatever its form is."""
    return any(getattr(model, "secret", False) for model in manual.models(path))
