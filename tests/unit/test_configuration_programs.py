"""What the plan refuses of kubelet's and kube-proxy's settings, against the programs themselves."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.resolver import configuration
from tests.resolver.test_networks import site
from tests.unit import configuration_settings as settings
from tests.unit.configuration_programs import programs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: The release whose programs are built here.
RELEASE = "1.36.3"
#: What the program says where this machine, and not the configuration, is the reason.
OF_MACHINE = (
    "only supported with cgroupv2",
    "using cgroup v1",
    "some missing paths",
    "is not a subset of online-cpus",
    "validate service connection",
)
#: What is refused though the programs take it: a field that they pass over, one that another part
#: decides, one that counts in another mode, and 0, which they read as their default.
IGNORED = {"configuration-field", "configuration-decided"}
IN_ONE_MODE = ("excludeCIDRs",)
READ_AS_DEFAULT = ("maxPods", "port", "nodeLeaseDurationSeconds")


def refused(document: str, values: Mapping[str, Any]) -> list[Any]:
    """Return the plan's problems with some settings of a document."""
    asked = site(version="1.36", **{document: dict(values)})
    return list(configuration.check(asked, load_catalogue()))


def compared(
    document: str, cases: Iterable[dict[str, Any]], folder: Path
) -> tuple[int, int, list[str], list[str]]:
    """Return how many cases a program takes and refuses, and those of which the plan says else.

    First those that the plan lets pass, then those that it refuses alone.
    """
    unique = list({json.dumps(one, sort_keys=True): one for one in cases}.values())
    with programs(folder) as real, ThreadPoolExecutor(4) as pool:
        said = list(
            pool.map(lambda one: real.refusal(document, str(one[0]), one[1]), enumerate(unique))
        )
    passed, alone = [], []
    for values, reason in zip(unique, said, strict=True):
        problems = refused(document, values)
        if reason is not None and not problems and not any(one in reason for one in OF_MACHINE):
            passed.append(f"{json.dumps(values)}: {reason[:400]}")
        rules = {problem.rule for problem in problems}
        default = any(values.get(name) == 0 for name in READ_AS_DEFAULT)
        default |= any(name in str(problems) for name in IN_ONE_MODE)
        if reason is None and problems and not (rules <= IGNORED or default):
            alone.append(f"{json.dumps(values)}: {problems[0]}")
    return said.count(None), len(said) - said.count(None), passed, alone


def one_of_each(document: str) -> list[dict[str, Any]]:
    """Return for each rule the first settings that the plan refuses by it."""
    groups = settings.of_rules(document, RELEASE)
    firsts = (next((one for one in group if refused(document, one)), None) for group in groups)
    return [one for one in firsts if one is not None]


@pytest.mark.parametrize("document", ["kubelet", "kube_proxy"])
def test_every_rule_is_the_programs_own(
    document: str, tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    """What the plan refuses by each rule the real program refuses, and all defaults it takes."""
    gates = load_catalogue().feature_gates["1.36"].value
    defaults = dict.fromkeys([*gates.beta_on, *gates.default_on, *gates.locked_on], True)
    off = [*gates.alpha, *gates.beta_off, *gates.default_off, *gates.locked_off]
    every = {"featureGates": defaults | dict.fromkeys(off, False)}
    wrong = [
        {"featureGates": {"DevicePlugins": True}},
        {"featureGates": {gates.locked_on[0]: False}},
        {"featureGates": {"DynamicResourceAllocation": False}},
        *one_of_each(document),
    ]
    took, refused_, passed, alone = compared(document, [every, *wrong], tmp_path)

    figures[f"{document}: refused by a rule each"] = {"cases": refused_}
    assert passed == []
    assert alone == []
    assert took == 1 + sum(
        wrong_value.get(name) == 0 for wrong_value in wrong for name in READ_AS_DEFAULT
    )


@pytest.mark.prove
@pytest.mark.parametrize("document", ["kubelet", "kube_proxy"])
@pytest.mark.parametrize("of", ["forms", "gates", "rules", "together"])
def test_nothing_passes_that_the_programs_refuse(
    document: str, of: str, tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    """Every field in every form, every gate, both sides of each rule, and many fields at once."""
    chance = random.Random(f"{document} {of}")  # noqa: S311 - chosen, not secret
    forms = list(settings.of_forms(document, RELEASE))
    cases: list[dict[str, Any]] = []
    if of == "forms":
        cases = forms
    elif of == "gates":
        cases = list(settings.of_gates())
    elif of == "rules":
        for group in map(list, settings.of_rules(document, RELEASE)):
            cases += group if len(group) <= 12 else chance.sample(group, 12)
    else:
        right = [one for one in forms if not refused(document, one)]
        cases = [settings.joined(chance.sample(right, 6)) for _ in range(200)]
    took, refused_, passed, alone = compared(document, cases, tmp_path)

    figures[f"{document}, {of}: compared"] = {"taken": took, "refused": refused_}
    assert passed == []
    assert alone == []
    assert took > 20
