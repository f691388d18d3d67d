"""`bedplate explain SITE POOL [COMPONENT[=VERSION]]`: why this version, why not that one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bedplate.catalogue import catalogue_of
from bedplate.common import terminal
from bedplate.common.errors import LockError, Problem, SiteError
from bedplate.common.nearest import nearest
from bedplate.lock import load_lock, lock_path
from bedplate.planning import screen
from bedplate.resolver import hpc_tools
from bedplate.resolver.locking import driver_of, reasons
from bedplate.resolver.outcome import Kind, Reason
from bedplate.resolver.plan import plan
from bedplate.resolver.preferences import catalogue_date
from bedplate.resolver.running import cluster_runs, one_step
from bedplate.resolver.whynot import Question, has_fabric, name_of, shares, version_of
from bedplate.resolver.wishes import CLUSTER
from bedplate.site import load_site

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bedplate.lock import Lock
    from bedplate.resolver.whynot import Asked
    from bedplate.site.site import Site

SHOWN = 20
#: Why the plan's other rows are as they are: what the resolver does not choose by itself.
OTHERS = {
    **dict.fromkeys(("etcd", "coredns", "pause"), "comes with kubernetes: explain that one"),
    "runc": "comes with the container runtime: explain that one",
    "device_plugin": "comes with the accelerator",
    "accelerator": "as bedplate_accelerator of the pool says",
    "course": "as bedplate_courses and the pool's shares give room for it",
    "gpu": "as bedplate_gpu of the pool says",
    "pods on control planes": "these hosts are in control_plane and in a pool",
    "preset": "as bedplate_preset says",
    "rdma": "as bedplate_rdma of the pool says",
    "sharing": "as bedplate_sharing of the pool says",
    "vgpu_manager": "as bedplate_vgpu of the pool says",
}


def run(path: Path, subject: str, asked: str | None, form: str) -> int:
    """Print why a component has its version, and why others have not been chosen; return 0.

    Raises:
        BedplateError: the site cannot be read or is refused, or it has no such pool or component.
    """
    site = load_site(path)
    known = [*([CLUSTER] if shares(site) else []), *site.pools]
    if subject not in known:
        raise SiteError([_unknown("no such pool", path, "POOL", subject, known)])
    catalogue, previous = catalogue_of(path), _previous(path)
    reached = one_step(previous, catalogue) if previous and cluster_runs(path) else None
    question = Question(site, catalogue, previous, reached)
    if question.decided is None:
        what, fix = "site is refused: there is no decision to explain", f"run: bedplate plan {path}"
        raise SiteError([Problem(what, str(path), got="a refusal", allowed="a plan", fix=fix)])
    if asked is None:
        why = [reason for _, reason in _reasons(question, subject)]
        why += _tools(question, site, subject)
        answers = [_content(one) for one in why]
        lines = [_line(one) for one in answers] + list(_notices(path, question, subject))
    else:
        name, _, version = asked.partition("=")
        if about := question.asked(name, subject):
            answers = [_answer(question, about, version)]
            lines = list(_lines(answers[0], about, version))
        else:
            answers = [_content(one) for one in _row(path, question, site, subject, name)]
            lines = [_line(one) for one in answers]
    if form == "table":
        terminal.show(*lines)
    else:
        terminal.document(answers, form)
    return 0


def _content(one: Reason) -> dict[str, Any]:
    return {
        "subject": one.subject,
        "component": one.component,
        "decided": one.decided,
        "because": one.because,
    }


def _line(one: Mapping[str, Any]) -> str:
    return f"{one['subject']} {one['component']} {one['decided']}: {one['because']}"


def _tools(question: Question, site: Site, subject: str) -> list[Reason]:
    """Return why the hosts of a pool have the tools for MPI and RDMA that they have."""
    if subject == CLUSTER:
        return []
    driver = driver_of(question.values(subject), question.candidates.facts)
    wishes = site.pools[subject][0].wishes
    tools = hpc_tools.decided(wishes, driver, question.candidates.catalogue)
    return list(hpc_tools.reasons(subject, tools))


def _row(path: Path, question: Question, site: Site, subject: str, name: str) -> list[Reason]:
    """Return the reason of a row of the plan that is no component of the resolver.

    Raises SiteError where the plan has no such name.
    """
    tools = {one.component: one for one in _tools(question, site, subject)}
    if name in tools:
        return [tools[name]]
    catalogue = question.candidates.catalogue
    rows = screen.rows(plan(path, catalogue_date(catalogue)).plan.lock, catalogue)
    mine = [row for row in rows if row[0] in (subject, CLUSTER)]
    found = [row for row in mine if row[1] == name and name in OTHERS]
    if found:
        return [Reason(where, what, value, OTHERS[what]) for where, what, value in found]
    names = {one.component for _, one in _reasons(question, subject)} | set(tools)
    names |= {what for where, what, _ in mine if where == subject}
    raise SiteError([_unknown("no such component", path, "COMPONENT", name, sorted(names))])


def _notices(path: Path, question: Question, subject: str) -> Iterator[str]:
    """Yield what the plan counts: each weak fact with its source, and what no test installed."""
    facts = question.candidates.facts
    for notice in plan(path, catalogue_date(question.candidates.catalogue)).plan.notices:
        if notice.subject == subject and notice.kind is not Kind.NOTICE:
            yield from ("", f"{notice.text}:")
            for item in notice.items:
                fact = facts.get(item)
                known = f": {fact.source.url} ({fact.source.read})" if fact else ""
                yield f"  {item}{known}"


def _previous(path: Path) -> Lock | None:
    try:
        return load_lock(path) if lock_path(path).exists() else None
    except LockError:
        return None


def _unknown(what: str, path: Path, key: str, got: str, known: list[str]) -> Problem:
    close = nearest(got, known)
    fix = f"write {close}" if close else "choose one of them"
    return Problem(what, str(path), key=key, got=got, allowed=", ".join(known), fix=fix)


def _reasons(question: Question, subject: str) -> Iterator[tuple[str, Reason]]:
    """Yield why each component has its version, by the program's name for it.

    What is kept only because it is locked is no best choice, and is not called one.
    """
    facts, upgrades = question.candidates.facts, question.upgrades()[subject]
    for component, value in sorted(question.values(subject).items()):
        for reason in reasons(subject, {component: value}, question.candidates):
            other = facts[upgrades[component]]
            if value != other.id and question.locked(subject, component, value):
                words = [version_of(other.value), getattr(other.value, "flavour", "")]
                newer = " ".join(words).strip()
                because = (
                    f"locked already; bedplate plan --upgrade would choose {newer}. "
                    f"{facts[value].reason}"
                )
                yield component, replace(reason, because=because)
            else:
                yield component, reason


def _answer(question: Question, asked: Asked, version: str) -> dict[str, Any]:
    """Return why a component has its version, and why not *version*, or each other one."""
    holder, fact = asked.holder, question.candidates.facts[asked.chosen]
    if asked.name == "nvidia_fabric" and not has_fabric(holder):
        because = "none is needed, its GPUs have no NVSwitch fabric"
        return _content(Reason(holder.name, asked.name, "", because))
    reason = next(one for key, one in _reasons(question, holder.name) if key == asked.component)
    decided = reason.decided
    if not question.is_named(asked):
        decided = f"{name_of(fact.value)} {decided}"
    known = question.versions(asked)
    meant = [question.meant(asked, version)] if version else known
    others = [one for one in meant if not question.is_chosen(asked, one)]
    missing = f"; the catalogue has {known[-1]} to {known[0]}" if known else ""
    return _content(replace(reason, component=asked.name, decided=decided)) | {
        "named": question.is_named(asked),
        "sure": str(fact.sure),
        "source": fact.source.url,
        "read": str(fact.source.read),
        "why_not": [
            {
                "version": other.label,
                "because": other.because + ("" if other.label in known else missing),
                "sources": list(other.sources),
            }
            for other in question.alternatives(asked, others[:SHOWN])
        ],
        "others": max(len(others) - SHOWN, 0),
        "asked": meant[0] if version else None,
    }


def _lines(one: Mapping[str, Any], asked: Asked, version: str) -> Iterator[str]:
    """Yield an answer as text."""
    start = f"{one['subject']} {one['component']}"
    if not one["decided"]:
        yield f"{start}: {one['because']}"
        return
    yield _line(one) if one["named"] else f"{start}: {one['decided']} is chosen, {one['because']}"
    yield f"  {one['sure']}, {one['source']} ({one['read']})"
    if one["why_not"]:
        yield from ("", "Why not")
    for other in one["why_not"]:
        yield f"  {other['version']}: {other['because']}"
        yield from (f"    source {url}" for url in other["sources"])
    if one["others"]:
        yield f"  … and {one['others']} others: ask with {asked.name}=VERSION"
    if version and not one["why_not"]:
        yield from ("", f"{one['asked']} is what is chosen.")
