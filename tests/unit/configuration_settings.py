"""Settings of kubelet and kube-proxy made from the catalogue's facts: for and against each one."""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Any

from bedplate.catalogue import load_catalogue
from bedplate.catalogue.kubernetes_facts import Limit
from bedplate.resolver.configuration import fields_of
from bedplate.resolver.configuration_forms import duration, size
from bedplate.resolver.configuration_rules import GATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue.kubernetes_facts import Asked, ConfigurationRule

#: Values of each form: the first goes with most rules, the others are odd or wrong.
OF_FORM: dict[str, list[Any]] = {
    "text": ["word", "", 7, True, ["word"]],
    "path": ["/var/log/other", "var/log", "/var//log", "/var/lög"],
    "cpus": ["0", "0-1", "1-0", "0,", "a", "0-1,", " 0"],
    "address": ["192.0.2.1", "::", "192.0.2", "node", "192.0.2.1:1"],
    "listener": ["192.0.2.1:10000", "192.0.2.1", "[::]:1", "::", "192.0.2.1:0", "192.0.2.1:65536",
                 ":10000", "node:10000", "[::1]", "192.0.2.1:x"],
    "cidr": ["192.0.2.0/24", "192.0.2.7/24", "fd00::/64", "192.0.2.0", "192.0.2.0/33", "x/8"],
    "subnet": ["192.0.2.0/24", "primary", "192.0.2.0/33", "all"],
    "duration": ["90s", "1h30m", "1.5s", "0s", "-5s", "0", "5", "5 minutes", "1d", 5, "1m0"],
    "period": ["5s", 5000000000, "5", "5x"],
    "quantity": ["10Mi", "1e3", "10", "10MB", "ten", "10 Mi", 10],
    "size": ["1Mi", 1024, "x", "1KB"],
    "number": [0.5, 1, "0.5"],
    "whole": [7, 7.5, "7", True, 2**31, -(2**31) - 1],
    "long": [7, 7.5, "7", 2**63],
    "truth": [True, False, "true", 1],
    "list": [[], {}, "a"],
    "mapping": [{}, [], "a", {"nothing": 1}],
    "texts": [{}, {"nothing": "1"}, {"nothing": 1}, []],
    "lists": [{}, {"a": ["b"]}, {"a": "b"}],
    "quantities": [{}, {"cpu": "1"}, {"memory": "1Gi", "pid": "100"}, {"cpu": 1}, {"cpu": "-1"},
                   {"cpu": "x"}, {"gpu": "1"}, {"ephemeral-storage": "1GB"}],
    "percentages": [{}, {"memory": "50%"}, {"memory": "50"}, {"memory": "101%"}, {"cpu": "5%"}],
    "amounts": [{}, {"memory.available": "200Mi"}, {"nodefs.available": "5%"},
                {"pid.available": "0"}, {"memory.available": "101%"}, {"memory": "1Gi"},
                {"memory.available": "-1Mi"},
                {"memory.available": "0%"}, {"memory.available": "1GB"}, {"memory.available": 5}],
    "reclaims": [{}, {"memory.available": "0Mi"}, {"memory.available": "0%"}, {"nodefs": "1"}],
    "durations": [{}, {"memory.available": "1m"}, {"memory.available": "-1m"}, {"memory": "1m"},
                  {"memory.available": "1"}],
    "sizes": [{"memory": "100Mi"}, {"memory": 104857600}, {"memory": "0"}, {"cpu": "1"},
              {"hugepages-2Mi": "2Mi"}, {"memory": "x"}],
    "truths": [{}, [], {"NodeSwap": "true"}],
}  # fmt: skip


def nested(path: str, value: object) -> dict[str, Any]:
    """Return a document with a value at a path, with one entry in each list on the way."""
    head, _, rest = path.partition(".")
    return {head: _inside(rest, value)}


def _inside(path: str, value: object) -> Any:
    head, _, rest = path.partition(".")
    if not path:
        return value
    return [_inside(rest, value)] if head == "*" else {head: _inside(rest, value)}


def of_forms(document: str, kubernetes: str) -> Iterator[dict[str, Any]]:
    """Yield each field with each value of its form, right and wrong, and a misspelt field."""
    known = fields_of(document, kubernetes, load_catalogue())
    assert known is not None
    for form, names in known.fields.items():
        for name in names:
            yield from (nested(name, value) for value in OF_FORM[form])
            yield nested(f"{name}s", OF_FORM[form][0])


def of_rules(document: str, kubernetes: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield for each rule the settings on either side of it, where its conditions hold or not."""
    known = fields_of(document, kubernetes, load_catalogue())
    assert known is not None
    form = {name: form for form, names in known.fields.items() for name in names}
    for fact in load_catalogue().configuration_rules.values():
        rule: ConfigurationRule = fact.value
        if rule.document != document:
            continue
        paths = {**rule.when, **{k: v for one in rule.any for k, v in one.items()}, **rule.allow}
        for asked in list(paths.values()):
            paths |= dict.fromkeys(_paths_in(asked), True)
        choices = [
            [nested(_field(path), one) for one in _values(path, asked, form)]
            for path, asked in paths.items()
        ]
        if len(paths) == len(rule.allow):  # Each limit by itself: no other field counts.
            yield chain.from_iterable(choices)
            continue
        together = product(*([{}, *values] for values in choices))
        yield (one for parts in together if (one := joined([part for part in parts if part])))


def _field(path: str) -> str:
    return path.removesuffix("/keys")


def _paths_in(asked: Asked) -> list[str]:
    if not isinstance(asked, Limit):
        return []
    bounds = [asked.least, asked.most, asked.over, asked.under, asked.in_, *asked.memory_of]
    return [one for one in bounds if isinstance(one, str) and size(one) is None]


def _values(path: str, asked: Asked, forms: Mapping[str, str]) -> list[Any]:
    field = _field(path)
    if path.endswith("/keys") or (field.endswith(".*") and field not in forms):
        return OF_FORM[forms[field.removesuffix(".*")]][1:3]
    form = forms.get(field)
    if isinstance(asked, list):
        return [asked[0], asked[-1], f"{asked[-1]}x"]
    if isinstance(asked, Limit) and (asked.has or asked.lacks):
        one = str(asked.has or asked.lacks)
        return [[one], ["pods", one], [one, one], ["pods"]]
    bounds = (
        [getattr(asked, name) for name in ("least", "most", "over", "under")]
        if isinstance(asked, Limit)
        else []
    )
    near = [one for bound in bounds if bound is not None for one in _near(bound, form)]
    if near:
        return near
    if form is None or isinstance(asked, bool):
        return [True, False] if form in (None, "truth") else OF_FORM[form][:3]
    return OF_FORM[form][:3]


def _near(bound: float | str, form: str | None) -> list[Any]:
    if isinstance(bound, str) and size(bound) is None:
        return []
    if form == "duration":
        seconds = float(duration(str(bound)) or 0)
        return [f"{seconds + step}s" for step in (-1, -0.001, 0, 0.001, 1)]
    number = size(bound)
    assert number is not None
    steps = [number - 1, number, number + 1]
    return [
        float(one) if form == "number" else int(one) if form == "whole" else str(one)
        for one in steps
    ]


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return documents over one another; lists are put together."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            before = found.get(key)
            if isinstance(value, dict) and isinstance(before, dict):
                found[key] = joined([before, value])
            elif isinstance(value, list) and isinstance(before, list):
                found[key] = before + value
            else:
                found[key] = value
    return found


def of_gates() -> Iterator[dict[str, Any]]:
    """Yield each gate of any release on and off, and one that no release has."""
    facts = load_catalogue().feature_gates.values()
    groups = [fact.value.model_dump(exclude={"kubernetes", "needs"}) for fact in facts]
    names = {name for one in groups for listed in one.values() for name in listed}
    for name in sorted({*names, "DevicePlugins", "NodeSwaps"}):
        yield from ({GATES: {name: value}} for value in (True, False))
