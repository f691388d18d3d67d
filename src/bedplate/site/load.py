"""From an inventory directory to a typed site, or to all its problems at once."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bedplate.common.errors import Problem, SiteError
from bedplate.site import (
    addresses,
    authorities,
    forms,
    manual,
    membership,
    remaining,
    sameness,
    sought,
)
from bedplate.site.model import BARE, COMMON, KEYS, OF_GPUS, PREFIX, Wishes
from bedplate.site.places import spelt
from bedplate.site.site import GROUPS, POOL_PREFIX, Site, SiteHost
from bedplate.site.wording import has_form, problems_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from bedplate.site.ansible_adapter import RawSite
    from bedplate.site.effective import RawHost
    from bedplate.site.places import KeyPath, Place


def load_site(path: Path) -> Site:
    """Read the wishes of a site. Raises SiteError with all problems, sorted by file and line."""
    return checked(path, raw_site(path))


def raw_site(path: Path) -> RawSite:
    """Read a site as Ansible does. Raises SiteError where there is none or it cannot be read."""
    if problem := _no_site(path):
        raise SiteError([problem])
    from bedplate.site import ansible_adapter

    return ansible_adapter.read(path)


def _no_site(path: Path) -> Problem | None:
    """Return what is wrong with a path that is no inventory directory; None where it may be one."""
    got, fix = "nothing", "make one with `bedplate init DIR`"
    if path.is_dir():
        inner = path / "inventory"
        if not (inner.is_dir() and (path / "stacks").is_dir()):
            return None
        got, fix = "the folder that bedplate init made, with the site in it", f"write {inner}"
    elif path.exists():
        got = "a file"
        if path.name.startswith("hosts."):
            fix = f"write its folder, {path.parent}"
    allowed = "an inventory directory"
    return Problem("no such site", str(path), got=got, allowed=allowed, fix=fix)


def checked(path: Path, raw: RawSite) -> Site:
    """Type a site that was read. Raises WrongSiteError with all problems."""
    structure = membership.of_site(path, raw)
    problems, formed = list[Problem](), list[Problem]()
    lost = [one.got or "" for one in raw.problems if (one.got or "").startswith(POOL_PREFIX)]
    of_hosts: list[tuple[RawHost, Problem]] = []
    hosts: dict[str, SiteHost] = {}
    typed: dict[int, Wishes | None] = {}
    bare: dict[str, Place] = {}
    asked = misplaced_hosts = 0
    for host in raw.hosts:
        if not set(host.groups) & set(GROUPS):
            continue
        asked += 1
        problems += host.problems
        misplaced = membership.of_host(host, raw.places, lost)
        of_hosts += ((host, problem) for problem in misplaced)
        misplaced_hosts += len(misplaced)
        if id(host.wishes) not in typed:
            typed[id(host.wishes)], wrong = _typed(host)
            formed += wrong
            bare |= {key: host.places.of((key,)) for key in host.wishes if key in BARE}
        reached, wrong = addresses.reached(host, path)
        of_hosts += ((host, problem) for problem in wrong)
        if reached is not None and (wishes := typed[id(host.wishes)]) is not None:
            pools = membership.pools_of(host)
            hosts[host.name] = SiteHost(
                reached.connection,
                pools[0] if pools else None,
                tuple(g for g in host.groups if g in GROUPS or g.startswith(POOL_PREFIX)),
                wishes,
                replace(host.places, pool=raw.places.get(pools[0]) if pools else None),
                reached.root,
            )
    # A pool without its group is one mistake with the hosts that are to be put there.
    fixed = {one.fix.split()[-1] for _, one in of_hosts if one.what == membership.NO_POOL}
    problems += [one for one in raw.problems if one.got not in fixed.intersection(lost)]
    problems += formed
    problems += _grouped(of_hosts)
    named = tuple(f"{key} at {place}" for key, place in sorted(bare.items()))
    site = Site(path, hosts, frozenset(raw.groups), tuple(membership.outside(raw)), named)
    structure += remaining.others(formed, membership.of_kinds(hosts))
    if not (misspelt := any(one.fix == "write bedplate_kubernetes" for one in formed)):
        structure += membership.of_cluster(raw.hosts)
    more = [*addresses.same(hosts), *sameness.problems_of(site), *authorities.problems_of(site)]
    problems += [*structure, *remaining.others(formed, more)]
    if problems:
        whole = not (structure or misplaced_hosts) and len(hosts) == asked and not misspelt
        raise remaining.WrongSiteError(problems, site if whole else None)
    return site


#: Stands for a host's name where problems of several hosts are compared.
_NAME = "\0"


def _grouped(found: Iterable[tuple[RawHost, Problem]]) -> Iterator[Problem]:
    """Yield the problems of hosts, those that are the same but for the host's name as one."""
    alike: dict[Problem, list[tuple[str, Problem]]] = {}
    for host, problem in found:
        own = (problem.file, problem.line, problem.column)
        home = host.places.fallback
        named = _renamed(problem, host.name, _NAME)
        says = _NAME in f"{named.key}{named.got}"  # else the place alone tells the hosts apart
        if says and own == (home.file, home.line, home.column):
            named = replace(named, line=None, column=None)
        alike.setdefault(named, []).append((host.name, problem))
    for named, its in alike.items():
        (first, problem), (last, _) = its[0], its[-1]
        if len(its) > 1:
            together = _renamed(named, _NAME, f"{first} … {last} ({len(its)} hosts)")
            problem = replace(together, line=problem.line, column=problem.column)
        yield problem


def _renamed(problem: Problem, old: str, new: str) -> Problem:
    name = re.compile(rf"(?<![\w.-]){re.escape(old)}(?![\w-]|\.\w)")
    key, got, fix = (
        text and name.sub(lambda _: new, text) for text in (problem.key, problem.got, problem.fix)
    )
    return replace(problem, key=key, got=got, fix=fix or "")


def _inside(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield where one setting is inside another: no setting has a key of that name."""
    parts = dict(enumerate(value)) if isinstance(value, list) else value
    for key, inner in parts.items() if isinstance(parts, dict) else ():
        if path and key in KEYS:
            yield (*path, key)
        else:
            yield from _inside(inner, (*path, key))


def _typed(raw: RawHost) -> tuple[Wishes | None, list[Problem]]:
    """Type the wishes that some hosts have in common."""
    problems: list[Problem] = []
    wishes = dict(raw.wishes)
    for path in list(_inside(wishes)):
        at, outer = raw.places.of(path), str(path[0])
        what, fix = "setting is indented too far", f"write {path[-1]} as far left as {outer}"
        got, apart, rule = f"{path[-1]} inside {outer}", "settings next to each other", "known-keys"
        problems.append(
            Problem(what, at.file, at.line, at.column, spelt(path), got, apart, fix, rule=rule)
        )
        wishes[outer] = deepcopy(wishes[outer])
        remaining.change(wishes, path)
    no_gpus = membership.pools_of(raw) and not {"bedplate_gpu", "bedplate_accelerator"} & set(
        wishes
    )
    for key in sorted(set(wishes) - set(KEYS)):
        value = wishes.pop(key)
        absent, allowed, fix = sought.setting(key, manual.fields)
        if key in OF_GPUS and isinstance(value, str) and no_gpus:
            allowed, fix = "bedplate_gpu", f"write bedplate_gpu: {{model: {value}, count: …}}"
        elif key in (*COMMON, "model") or (key in BARE and not has_form(f"{PREFIX}{key}", value)):
            continue  # the plan warns of it: it may be a variable of the user's own
        at = raw.places.of((key,))
        what, rule = f"unknown setting{absent}", "known-keys"
        problems.append(
            Problem(what, at.file, at.line, at.column, key, key, allowed, fix, rule=rule)
        )
    try:
        typed = Wishes.model_validate(wishes)
    except ValidationError as error:
        found = problems_of(error, raw)
        return remaining.right_part(wishes, error), problems + remaining.others(problems, found)
    return typed, problems + forms.problems_of(typed, raw)
