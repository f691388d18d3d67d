"""An independent checker: which rules a lock breaks. It shares no code with the resolver.

It reads facts as plain tables, the lock as a plain dictionary and the effective wishes as plain
dictionaries: what is wrong in the resolver's own tables, numbers or rules is not wrong here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.properties import checker_cluster, checker_pools, kept
from tests.properties.plain import Violation
from tests.properties.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.site.site import Site
    from tests.properties.plain import Facts, Row


def hosts_of(site: Site) -> dict[str, Row]:
    """Return what the checker knows of a site: groups, pool and effective wishes of each host."""
    return {
        name: {
            "pool": host.pool,
            "groups": list(host.groups),
            "wishes": host.wishes.model_dump(mode="json"),
        }
        for name, host in site.hosts.items()
    }


def violations(facts: Facts, hosts: Mapping[str, Row], lock: Row) -> list[Violation]:
    """Return every rule that a whole lock breaks, and every wish that it does not keep."""
    pools = {host["pool"] for host in hosts.values()} - {None}
    found = list(checker_cluster.shared(facts, hosts, lock["cluster"]))
    found += checker_cluster.written(facts, hosts, lock)
    if set(lock["pools"]) != pools:
        found.append(Violation("pools", "cluster", f"{sorted(lock['pools'])} for {sorted(pools)}"))
    if set(lock["hosts"]) != set(hosts):
        found.append(Violation("hosts", "cluster", "the lock has other hosts"))
    found += other_violations(facts, hosts, lock["cluster"])
    for name in sorted(pools & set(lock["pools"])):
        mine = {host: its for host, its in hosts.items() if its["pool"] == name}
        found += pool_violations(facts, name, mine, lock["pools"][name], lock["cluster"])
        found += kept.written(facts, name, mine, lock["pools"][name])
    return found


def other_violations(facts: Facts, hosts: Mapping[str, Row], cluster: Row) -> list[Violation]:
    """Return every rule that hosts without a pool break, the shared decisions given."""
    found = []
    for name, host in hosts.items():
        if host["pool"] is None:
            system = {"os": host["wishes"]["bedplate_host"]["os"], "kind": "bare-metal"}
            view = View(facts, name, {name: host}, host["wishes"], system, cluster)
            found += [Violation("known-bad", name, bad) for bad in checker_pools.known_bad(view)]
    return found


def pool_violations(
    facts: Facts, name: str, hosts: Mapping[str, Row], pool: Row, cluster: Row
) -> list[Violation]:
    """Return every rule that the decisions about one pool break, the shared ones given."""
    wishes: dict[str, Any] = next(iter(hosts.values()))["wishes"]
    view = View(facts, name, hosts, wishes, pool, cluster)
    return [
        Violation(rule, name, detail)
        for rule, check in checker_pools.RULES.items()
        for detail in check(view)
    ]
