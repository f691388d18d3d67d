"""Wishes that must be the same: in a pool all its own, in the site what all hosts share."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from bedplate.site.files import VARIABLES
from bedplate.site.membership import at
from bedplate.site.model import ACCESS, KEYS, OF_ONE_HOST, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import BaseModel

    from bedplate.common.errors import Problem
    from bedplate.site.places import Place
    from bedplate.site.site import Site, SiteHost

NO_DOCKER = "remove it: pods do not run on Docker, which is for sites without bedplate_kubernetes"


def problems_of(site: Site) -> list[Problem]:
    """Return the places that make hosts differ that must not."""
    problems = []
    own = [key for key in KEYS if key not in SHARED + ACCESS + OF_ONE_HOST]
    for pool, hosts in site.pools.items():
        what, fix = f"hosts of {pool} differ", "make them equal, or move the host to another pool"
        problems += _differences(what, hosts, own, fix, "pool-alike")
    everyone = [host for _, host in sorted(site.hosts.items())]
    what, fix = "hosts of the cluster differ", "set it once for all hosts, in group_vars/all"
    problems += _differences(what, everyone, SHARED, fix, "cluster-alike")
    return problems


def _differences(
    what: str, hosts: Sequence[SiteHost], keys: Iterable[str], fix: str, rule: str
) -> list[Problem]:
    # Hosts with equal wishes share them: compared are the few that are distinct.
    distinct: dict[int, SiteHost] = {}
    members: Counter[int] = Counter()
    for host in hosts:
        distinct.setdefault(id(host.wishes), host)
        members[id(host.wishes)] += 1
    if len(distinct) < 2:
        return []
    problems = []
    for key in keys:
        values: dict[str, SiteHost] = {}
        votes: Counter[str] = Counter()
        for which, host in distinct.items():
            text = _short(getattr(host.wishes, key))
            values.setdefault(text, host)
            votes[text] += members[which]
        if len(values) == 1:
            continue
        # What is set for all, or not at all, is taken as meant; then what most hosts have.
        usual = max(votes, key=lambda text: (_reach(values[text].places.of((key,))), votes[text]))
        reference = values[usual]
        for host in distinct.values():
            mine = _short(getattr(host.wishes, key))
            if mine == usual:
                continue
            place, usually = host.places.of((key,)), reference.places.of((key,))
            got, allowed = f"{host.name}: {mine}", f"{usual}, as {reference.name} at {usually}"
            instead = fix
            if rule == "cluster-alike" and (why := of_a_group_alone(place)):
                instead = f"move it to group_vars/all: {why}"
                if (key,) in reference.places.known:
                    instead = f"remove it, and change {key} at {usually}: {why}"
                if host.is_node and '"docker"' in mine and key == "bedplate_container_runtime":
                    instead = NO_DOCKER
            problems.append(at(place, what, key, got, allowed, instead, rule))
    return list({(p.file, p.line, p.column, p.key): p for p in reversed(problems)}.values())


def of_a_group_alone(place: Place) -> str | None:
    """Return whose a file is that has the variables of some hosts alone, as a clause."""
    file = _file_of_a_group(place)
    return f"{file} is for {PurePath(file).stem} alone" if file else None


def _file_of_a_group(place: Place) -> str | None:
    """Return `group_vars/pool_x.yml` where a wish stands in the variables of some hosts alone."""
    parts = PurePath(place.file).parts
    for folder in VARIABLES:
        if folder in parts:
            below = parts[parts.index(folder) : parts.index(folder) + 2]
            return None if PurePath(below[-1]).stem == "all" else "/".join(below)
    return None


def _reach(place: Place) -> int:
    return 1 if _file_of_a_group(place) is None else 0


def _short(value: Any) -> str:
    def dumped(item: BaseModel) -> Any:
        return item.model_dump(mode="json", exclude_none=True)

    return json.dumps(value, sort_keys=True, default=dumped)
