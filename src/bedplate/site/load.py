"""From an inventory directory to a typed site, or to all its problems at once."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from bedplate.errors import Problem, SiteError
from bedplate.nearest import nearest
from bedplate.site.model import KEYS, SHARED, Wishes
from bedplate.site.places import Place, Places, spelt
from bedplate.site.wording import problems_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bedplate.site.ansible_adapter import RawHost, RawSite

CONTROL_PLANE, POOLS, HYPERVISORS, SLURM = "control_plane", "gpu_pools", "hypervisors", "slurm"
GROUPS = (CONTROL_PLANE, POOLS, HYPERVISORS, SLURM)
POOL_PREFIX = "pool_"
SSH = 22


@dataclass(frozen=True)
class SiteHost:
    """One host: how it is reached, where it belongs, what is wished of it."""

    name: str
    address: str
    port: int
    user: str
    pool: str | None
    groups: tuple[str, ...]
    wishes: Wishes
    places: Places


@dataclass(frozen=True)
class Site:
    """Every host of a site that Bedplate looks after, by name."""

    path: Path
    hosts: Mapping[str, SiteHost]
    groups: frozenset[str]

    @property
    def pools(self) -> dict[str, list[SiteHost]]:
        """Return the hosts of each pool, by name."""
        found: dict[str, list[SiteHost]] = {}
        for _, host in sorted(self.hosts.items()):
            if host.pool:
                found.setdefault(host.pool, []).append(host)
        return dict(sorted(found.items()))

    @property
    def digest(self) -> str:
        """Return the digest of the effective wishes: where they are written doesn't count."""
        content = {
            name: {
                "address": host.address,
                "port": host.port,
                "user": host.user,
                "groups": host.groups,
                "wishes": host.wishes.model_dump(mode="json"),
            }
            for name, host in self.hosts.items()
        }
        text = json.dumps(
            {"hosts": content, "control_plane": CONTROL_PLANE in self.groups},
            sort_keys=True,
            separators=(",", ":"),
        )
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def load_site(path: Path) -> Site:
    """Read the wishes of a site. Raises SiteError with all problems, sorted by file and line."""
    if not path.is_dir():
        raise SiteError(
            [
                Problem(
                    "no such site",
                    str(path),
                    got="a file" if path.exists() else "nothing",
                    allowed="an inventory directory",
                    fix="copy inventories/example",
                )
            ]
        )
    from bedplate.site import ansible_adapter

    return checked(path, ansible_adapter.read(path))


def checked(path: Path, raw: RawSite) -> Site:
    """Type a site that was read. Raises SiteError with all problems."""
    problems: list[Problem] = []
    hosts: dict[str, SiteHost] = {}
    ours = [host for host in raw.hosts if set(host.groups) & set(GROUPS)]
    if not ours:
        problems.append(
            Problem(
                "site has no hosts",
                str(path),
                got=f"{len(raw.hosts)} hosts outside of Bedplate's groups" if raw.hosts else "none",
                allowed=f"hosts in {', '.join(GROUPS[:2])}",
                fix=f"put hosts into the groups {CONTROL_PLANE} and {POOLS}",
                rule="hosts",
            )
        )
    for host in ours:
        typed, wrong = _host(host)
        problems += wrong
        if typed:
            hosts[host.name] = typed
    problems += _groups(path, raw)
    problems += _addresses(hosts)
    site = Site(path, hosts, frozenset(raw.groups))
    problems += _same(site)
    if problems:
        raise SiteError(problems)
    return site


def _host(raw: RawHost) -> tuple[SiteHost | None, list[Problem]]:
    problems: list[Problem] = []
    wishes = {key: value for key, value in raw.values.items() if key.startswith("bedplate_")}
    for key in sorted(set(wishes) - set(KEYS)):
        close = nearest(key, KEYS)
        place = raw.places.of((key,))
        problems.append(
            Problem(
                "unknown wish",
                place.file,
                place.line,
                place.column,
                key,
                key,
                close or ", ".join(KEYS),
                f"write {close}" if close else "remove it",
                rule="known-keys",
            )
        )
        del wishes[key]
    pools = sorted(group for group in raw.groups if group.startswith(POOL_PREFIX))
    if len(pools) > 1:
        problems.append(
            _at(
                raw.places.fallback,
                "host is in two pools",
                raw.name,
                ", ".join(pools),
                "one pool",
                f"remove {raw.name} from {' or '.join(pools)}",
                "one-pool",
            )
        )
    if POOLS in raw.groups and not pools:
        problems.append(
            _at(
                raw.places.fallback,
                "GPU host is in no pool",
                raw.name,
                POOLS,
                f"a group {POOL_PREFIX}… below {POOLS}",
                f"put {raw.name} into one",
                "one-pool",
            )
        )
    try:
        typed = Wishes.model_validate(wishes)
    except ValidationError as error:
        return None, problems + problems_of(error, raw)
    address = str(raw.values.get("ansible_host", raw.name))
    port, wrong = _port(raw)
    problems += wrong
    return SiteHost(
        raw.name,
        address,
        port,
        str(raw.values.get("ansible_user", "root")),
        pools[0] if pools else None,
        tuple(g for g in raw.groups if g in GROUPS or g.startswith(POOL_PREFIX)),
        typed,
        raw.places,
    ), problems


def _at(place: Place, what: str, key: str, got: str, allowed: str, fix: str, rule: str) -> Problem:
    return Problem(what, place.file, place.line, place.column, key, got, allowed, fix, rule)


def _port(raw: RawHost) -> tuple[int, list[Problem]]:
    value: Any = raw.values.get("ansible_port", SSH)
    try:
        port = int(value)
        if 0 < port < 2**16:
            return port, []
    except (TypeError, ValueError):
        pass
    place = raw.places.of(("ansible_port",))
    fix = "correct it, or leave it out for 22"
    return SSH, [_at(place, "no port", "ansible_port", str(value), "1 to 65535", fix, "address")]


def _groups(path: Path, raw: RawSite) -> list[Problem]:
    problems = []
    filled = {group for host in raw.hosts for group in host.groups}
    for pool in sorted(g for g in raw.groups if g.startswith(POOL_PREFIX)):
        if pool not in raw.groups.get(POOLS, ()):
            problems.append(
                Problem(
                    f"pool is not below {POOLS}",
                    str(path),
                    key=pool,
                    got="a group of its own",
                    allowed=f"a child of {POOLS}",
                    fix=f"list {pool} under {POOLS}: children",
                    rule="one-pool",
                )
            )
        if pool not in filled:
            problems.append(
                Problem(
                    "pool is empty",
                    str(path),
                    key=pool,
                    got="no hosts",
                    allowed="at least one host",
                    fix="add hosts to it, or remove the group",
                    rule="hosts",
                )
            )
    return problems


def _canonical(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower().rstrip(".")


def _addresses(hosts: Mapping[str, SiteHost]) -> list[Problem]:
    problems = []
    first: dict[tuple[str, int], SiteHost] = {}
    for _, host in sorted(hosts.items()):
        other = first.setdefault((_canonical(host.address), host.port), host)
        if other is not host:
            problems.append(
                _at(
                    host.places.of(("ansible_host",)),
                    f"hosts {other.name} and {host.name} have the same address",
                    "ansible_host",
                    f"{host.address}, also at {other.places.of(('ansible_host',))}",
                    "one address per host",
                    f"correct one of them, or remove {host.name}",
                    "address",
                )
            )
    return problems


def _same(site: Site) -> list[Problem]:
    """Hosts of a pool must wish the same; all hosts must wish the same of what they share."""
    problems = []
    for pool, hosts in site.pools.items():
        keys = tuple(key for key in KEYS if key not in SHARED)
        problems += _differences(f"hosts of {pool} differ", hosts, keys, "pool-alike")
    everyone = [host for _, host in sorted(site.hosts.items())]
    problems += _differences("hosts of the cluster differ", everyone, SHARED, "cluster-alike")
    return problems


def _differences(what: str, hosts: list[SiteHost], keys: Iterable[str], rule: str) -> list[Problem]:
    problems = []
    for host in hosts[1:]:
        for key in keys:
            mine, its = getattr(host.wishes, key), getattr(hosts[0].wishes, key)
            if mine != its:
                path = (key,)
                problems.append(
                    _at(
                        host.places.of(path),
                        what,
                        spelt(path),
                        f"{host.name}: {_short(mine)}",
                        f"{_short(its)}, as {hosts[0].name} at {hosts[0].places.of(path)}",
                        "make them equal, or move the host to another pool"
                        if rule == "pool-alike"
                        else "set it once for all hosts, in group_vars/all",
                        rule,
                    )
                )
    return problems


def _short(value: Any) -> str:
    def dumped(item: Any) -> Any:
        if isinstance(item, BaseModel):
            return item.model_dump(mode="json", exclude_none=True)
        return item

    plain = [dumped(item) for item in value] if isinstance(value, list) else dumped(value)
    return json.dumps(plain, sort_keys=True)
