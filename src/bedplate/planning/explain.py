"""`bedplate explain SITE POOL [COMPONENT[=VERSION]]`: why this version, why not that one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.errors import LockError, Problem, SiteError
from bedplate.lock import load_lock, lock_path
from bedplate.nearest import nearest
from bedplate.resolver.locking import reasons
from bedplate.resolver.whynot import Question, component_of
from bedplate.resolver.wishes import CLUSTER, SHARED_PINS
from bedplate.site import load_site

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock
    from bedplate.resolver.solving import Model

SHOWN = 20


def run(path: Path, subject: str, asked: str | None) -> int:
    """Print why a component has its version, and why others have not been chosen; return 0.

    Raises:
        BedplateError: the site cannot be read or is refused, or it has no such pool or component.
    """
    site = load_site(path)
    known = [CLUSTER, *site.pools]
    if subject not in known:
        raise SiteError([_unknown("no such pool", path, "POOL", subject, known)])
    question = Question(site, load_catalogue(), _previous(path), subject)
    decided = question.decided()
    if decided is None:
        what, fix = "site is refused: there is no decision to explain", f"run: bedplate plan {path}"
        raise SiteError([Problem(what, str(path), got="a refusal", allowed="a plan", fix=fix)])
    print("\n".join(_lines(path, question, decided, asked)))
    return 0


def _previous(path: Path) -> Lock | None:
    try:
        return load_lock(path) if lock_path(path).exists() else None
    except LockError:
        return None


def _unknown(what: str, path: Path, key: str, got: str, known: list[str]) -> Problem:
    close = nearest(got, known)
    fix = f"write {close}" if close else "choose one of them"
    return Problem(what, str(path), key=key, got=got, allowed=", ".join(known), fix=fix)


def _lines(path: Path, question: Question, decided: Model, asked: str | None) -> list[str]:
    subject = question.subject
    values = {key: value for (who, key), value in decided.values.items() if who == subject.name}
    told = list(reasons(subject.name, values, question.candidates))
    if asked is None:
        return [f"{one.subject} {one.component} {one.decided}: {one.because}" for one in told]
    name, _, version = asked.partition("=")
    component = component_of(name, subject) or component_of(name, question.cluster)
    holder = CLUSTER if name in SHARED_PINS or str(component).startswith("addon(") else subject.name
    chosen = decided.values.get((holder, str(component))) if component is not None else None
    if component is None or chosen is None:
        names = sorted({one.component for one in told} | {"nvidia_driver"} & {name})
        raise SiteError([_unknown("no such component", path, "COMPONENT", name, names)])
    shared = {key: value for (who, key), value in decided.values.items() if who == holder}
    lines = [
        f"{holder} {name} {one.decided}: {one.because}"
        for one in reasons(holder, {str(component): shared[str(component)]}, question.candidates)
    ]
    fact = question.candidates.facts[chosen]
    lines.append(f"  {fact.sure}, {fact.source.url} ({fact.source.read})")
    found = question.alternatives(name, component, decided, version or None)
    if found:
        lines += ["", "Why not"]
    for other in found[:SHOWN]:
        lines.append(f"  {other.label}: {other.because}")
        lines += [f"    after {url}" for url in other.sources]
    if len(found) > SHOWN:
        lines.append(f"  … and {len(found) - SHOWN} others: ask with {name}=VERSION")
    if version and not found:
        lines += ["", f"{version} is what is chosen."]
    return lines
