"""What `bedplate plan` prints: what cannot be installed, the decision, what to know, what to run.

The default fits a screen: reasons and what is counted come with `--why`.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from bedplate.common.errors import LockError
from bedplate.common.terminal import styled, table
from bedplate.lock import content_of, lock_path
from bedplate.lock.offers import pools_of_nodes
from bedplate.lock.sharing_line import sharing_line
from bedplate.planning.changes import host_changes, shown
from bedplate.resolver import course_fit, installable
from bedplate.resolver.outcome import Kind
from bedplate.resolver.plan import of_facts
from bedplate.site.presets import load_presets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.table import Table
    from rich.text import Text

    from bedplate.catalogue import Catalogue
    from bedplate.lock.model import Cluster, Lock, Pool
    from bedplate.planning.changes import Installed
    from bedplate.resolver.outcome import Notice
    from bedplate.resolver.plan import Planned

WIDTH = 100
#: How many changes of the lock are listed without `--why`.
CHANGES = 6
#: How many kinds of warnings are listed without `--why`, what stops a command first; the heading
#: counts all warnings.
WARNINGS = 8
#: Stands for a space at which a line is not broken, so that a command can be copied.
UNBROKEN = "\N{NO-BREAK SPACE}"
TIMES = "\N{MULTIPLICATION SIGN}"
COUNTED = {Kind.WEAK: "fact", Kind.UNTRIED: "setting"}


def parts(
    site: Path, planned: Planned, *, check: bool, written: bool, why: bool
) -> list[str | Table | Text]:
    """Return what a plan prints; *check* and *written* say what was done with the lock."""
    lines: list[str | Table | Text] = [*refused_later(planned)]
    lines.append(
        table(("WHERE", "COMPONENT", "VERSION"), rows(planned.plan.lock, planned.catalogue))
    )
    if why:
        lines += ["", "Why:"]
        reasons = planned.plan.reasons
        lines += [
            f"  {one.subject} {one.component} {one.decided}: {one.because}" for one in reasons
        ]
    if notices := list(_notices(site, planned.plan.in_order, why=why)):
        shown_here = notices if why else notices[:WARNINGS]
        # Without reasons those of a kind are one entry.
        every, kinds = len(planned.plan.notices), len(notices)
        number = f"{every}" if kinds == every else f"{every} in {kinds} kinds"
        lines += ["", styled(f"Warnings ({number}):", "yellow"), *shown_here]
        more = kinds - len(shown_here)
        lines += [f"  … and {more} more kind{'s' if more > 1 else ''}: --why"] if more else []
    if changes := planned.changes if why else planned.in_words:
        listed = changes if why else changes[:CHANGES]
        more = len(changes) - len(listed)
        lines += ["", "Changes:", *(f"  {change}" for change in listed)]
        lines += [f"  … and {more} more"] if more else []
    return [*lines, "", *_end(site, planned, check=check, written=written, why=why)]


def difference(site: Path, planned: Planned, has: Installed) -> str:
    """Return what `--diff` prints: what hosts would get over what they have, then the lock."""
    facts = [str(notice) for notice in of_facts(site, planned.catalogue)]
    lock = planned.plan.lock
    known = (planned.before.hosts if planned.before else {}) | lock.hosts
    pools = {name: host.pool for name, host in known.items()}
    changes = host_changes(planned.before, lock, has.parts)
    lines = shown(changes, pools, has.notes) or ["No host changes: hosts have all of this."]
    if planned.changes:
        lines += ["", "In the lock:", *(f"  {change}" for change in planned.changes)]
    lines += ["", *facts] if facts else []
    end = f"Nothing was written. To lock this: bedplate plan {site}"
    if planned.up_to_date:
        end = f"{lock_path(site)} is up to date: nothing would change in it."
    return "\n".join([*refused_later(planned), *lines, "", end, *not_installable(planned)])


def refused_later(planned: Planned) -> list[str]:
    """Return every setting that site.yml and the stacks would refuse, to be printed first."""
    problems = planned.plan.not_installable
    return [*map(str, problems), ""] if problems else []


def not_installable(planned: Planned) -> list[str]:
    """Return the last line of a plan that cannot be installed."""
    parts = installable.parts(planned.plan.lock)
    found = [f"{installable.described(part)} ({name})" for part, name in parts]
    return [f"Not installable by this version: {', '.join(found)}."] if found else []


def next_command(site: Path, planned: Planned) -> str:
    """Return the command that follows a plan of which all parts can be installed."""
    if planned.plan.not_installable:
        return f"bedplate frameworks {site} --output images"  # an image is to be built
    from bedplate.bill import checked_bill  # not where JSON is printed, or a site is refused

    try:
        checked_bill(site, planned.plan.lock, planned.catalogue)
    except LockError:
        return f"bedplate mirror resolve {site}"
    return f"ansible-playbook -i {site} bedplate.gpu.site"


def _end(site: Path, planned: Planned, *, check: bool, written: bool, why: bool) -> list[str]:
    path = lock_path(site)
    if check and not planned.up_to_date:
        return [f"{path} is out of date.", *not_installable(planned), f"next: bedplate plan {site}"]
    state = f"Wrote {path}." if written else f"{path} is up to date."
    more = "" if why else " Reasons: --why."
    return [state + more, *(not_installable(planned) or [f"next: {next_command(site, planned)}"])]


def _notices(site: Path, notices: Sequence[Notice], *, why: bool) -> Iterator[str]:
    if why:
        yield from (f"  {notice}" for notice in notices)
        return
    alike: dict[str, list[Notice]] = {}
    for notice in notices:
        key = notice.text if notice.kind in COUNTED else notice.short
        alike.setdefault(key, []).append(notice)
    for text, same in alike.items():
        subjects = list(dict.fromkeys(one.subject for one in same if one.subject))
        listed = ", ".join(subjects)
        line = f"{listed}: {text}" if listed else text
        if noun := COUNTED.get(same[0].kind):
            count = len({item for one in same for item in one.items})
            hint = f"; {same[0].hint}" if same[0].hint else ""
            about, owners = ("POOL", f" of {listed}") if len(subjects) > 1 else (listed, "")
            command = f"bedplate explain {site} {about}".replace(" ", UNBROKEN)
            line = f"{text}: {count} {noun}{'s' if count > 1 else ''}{owners}{hint}; "
            line += f"see: {command}"
        yield textwrap.fill(
            line,
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(UNBROKEN, " ")


def rows(lock: Lock, catalogue: Catalogue) -> list[tuple[str, str, str]]:
    """Return what a plan lists: where, the component's name, and its version or what it is."""
    found: list[tuple[str, str, str]] = []
    content = content_of(lock)
    for name, part in (content.get("cluster") or content.get("containers", {})).items():
        if name in {"not_yet", "preset", "teams", "courses", "hub", "images", "storage"}:
            continue
        for one in part if isinstance(part, list) else [part]:
            shown_as = one.get("name", name) if isinstance(part, list) else name
            version = one.get("version", one.get("source", ""))
            told = f"{version}, {one['source']}" if lock.containers else version
            found.append(("cluster", shown_as, told))
    if lock.cluster and lock.cluster.preset is not None:
        found.append(("cluster", "preset", _preset(lock.cluster)))
    if lock.cluster and (names := lock.cluster.kubernetes.untainted):
        found.append(("cluster", "pods on control planes", ", ".join(names)))
    nodes = pools_of_nodes(lock)
    for name, pool in lock.pools.items():
        hosts = sum(host.pool == name for host in lock.hosts.values())
        found += [(name, component, version) for component, version in _pool_rows(pool, hosts)]
        if pool.rdma is not None:
            pods = ", ".join(f"pods by {resource}" for resource in pool.rdma.pods)
            served = pods or ("hosts only" if name in nodes else "")
            told = [pool.rdma.stack, pool.rdma.method, *filter(None, [served])]
            found.append((name, "rdma", ", ".join(told)))
    found += [(pool, "course", text) for pool, text in course_fit.lines(lock, catalogue)]
    return found


def _preset(cluster: Cluster) -> str:
    """Return the preset, what the site changes of it, and who has a quota."""
    chosen = cluster.preset
    if chosen is None:
        return ""
    base = load_presets().get(chosen.name, chosen)
    changes = [
        f"{key} {value}"
        for part in ("queue", "placement")
        for key, value in getattr(chosen, part)
        if value != getattr(getattr(base, part), key)
    ]
    told = f"{chosen.name} with {', '.join(changes)}" if changes else chosen.name
    teams = f"; teams {', '.join(cluster.teams)}" if cluster.teams else ""
    return told + teams


def _pool_rows(pool: Pool, hosts: int) -> list[tuple[str, str]]:
    gpus = ", ".join(f"{gpu.count} {TIMES} {gpu.model}" for gpu in pool.gpu)
    on = "1 host" if hosts == 1 else f"{hosts} hosts"
    rows = []
    if gpus:
        rows.append(("gpu", f"{gpus} per host, {on}"))
    if (other := pool.accelerator) is not None:
        rows.append(("accelerator", f"{other.count} {TIMES} {other.model} per host, {on}"))
        rows.append(("device_plugin", other.device_plugin.version))
    if (driver := pool.nvidia_driver) is not None:
        rows.append(("nvidia_driver", f"{driver.version} {driver.flavour}, {driver.source}"))
    if pool.nvidia_fabric is not None:
        rows.append(("nvidia_fabric", pool.nvidia_fabric.version))
    if pool.vgpu is not None:
        shared = len(pool.vgpu.cards)
        rows.append(("vgpu_manager", f"{pool.vgpu.manager}, shares {shared} GPUs per host"))
    rows += [("cuda_toolkit", version) for version in pool.cuda_toolkit]
    rows += [(one.name, f"{one.version} {one.variant}") for one in pool.frameworks]
    if (tools := pool.hpc_tools) is not None:
        left = f"; left out: {', '.join(tools.left)}" if tools.left else ""
        rows.append(("hpc_tools", f"{len(tools.packages)} tools{left}"))
    if pool.sharing.mode != "none" and (line := sharing_line(pool, hosts)):
        rows.append(("sharing", line))
    return rows
