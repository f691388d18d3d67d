"""Settings of kubelet and kube-proxy, which both refuse as a whole if they know one of them not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.nearest import nearest
from bedplate.resolver.explanations import refused
from bedplate.versions import minor, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.kubernetes_facts import ConfigurationFields
    from bedplate.errors import Problem
    from bedplate.lock import Lock
    from bedplate.site import Site, SiteHost

RULE, SETTING = "configuration-field", "bedplate_kubernetes"
DOCUMENTS = ("kubelet", "kube_proxy")
#: What the roles configure the container runtime for: another value stops every pod.
OURS = {"cgroupDriver": "systemd"}
FORMS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "whole": (int,),
    "truth": (bool,),
    "list": (list,),
    "mapping": (dict,),
    "texts": (dict,),
    "truths": (dict,),
}
WORDS = {
    "text": "text",
    "number": "a number",
    "whole": "a whole number",
    "truth": "true or false",
    "list": "a list",
    "mapping": "a mapping",
    "texts": "a mapping of text",
    "truths": "a mapping of true and false",
}
#: The form of a mapping's values.
INSIDE = {"texts": "text", "truths": "truth"}


def check(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield the settings that no release of the requested Kubernetes has."""
    settings = site.nodes[0].wishes.bedplate_kubernetes if site.nodes else None
    if settings is None or not (settings.kubelet or settings.kube_proxy):
        return
    releases = sorted({minor(version) for version in catalogue.kubernetes}, key=number)
    if settings.version is not None:
        releases = [one for one in releases if one == minor(settings.version)] or releases
    if releases:
        yield from _checked(site.nodes[0], releases[-1], catalogue)


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> list[Problem]:
    """Return the settings that the release of a lock does not have."""
    if lock.cluster is None:
        return []
    return list(_checked(site.nodes[0], lock.cluster.kubernetes.version, catalogue))


def known(document: str, version: str, catalogue: Catalogue) -> dict[str, str]:
    """Return the fields of a document with the forms of their values; none of an unknown one."""
    newest = _newest(document, version, catalogue)
    if newest is None:
        return {}
    return {name: form for form, names in newest.fields.items() for name in names}


def _newest(document: str, version: str, catalogue: Catalogue) -> ConfigurationFields | None:
    facts = [fact.value for fact in catalogue.configuration_fields.values()]
    old = [one for one in facts if one.document == document]
    old = [one for one in old if number(one.kubernetes_from) <= number(version)]
    return max(old, key=lambda one: number(one.kubernetes_from), default=None)


def _checked(host: SiteHost, version: str, catalogue: Catalogue) -> Iterator[Problem]:
    settings = host.wishes.bedplate_kubernetes
    for document in DOCUMENTS if settings is not None else ():
        fields = known(document, version, catalogue)
        newest = _newest(document, version, catalogue)
        ranges = newest.ranges if newest is not None else {}
        for name, value in getattr(settings, document).items() if fields else ():
            path = (SETTING, document, name)
            if name not in fields:
                close = nearest(name, fields)
                fix = f"write {close}" if close else "remove it"
                allowed = f"a field of its configuration in Kubernetes {minor(version)}"
                yield refused(RULE, host, path, name, allowed, fix)
            elif name in OURS and value != OURS[name]:
                allowed = f"{OURS[name]}, as the container runtime is configured"
                yield refused(RULE, host, path, str(value), allowed, "remove it")
            elif value is not None:
                wrong = list(_form(host, path, value, fields[name]))
                yield from wrong or _range(host, path, value, ranges.get(name))


def _form(host: SiteHost, path: tuple[str, ...], value: object, form: str) -> Iterator[Problem]:
    if not _is(value, form):
        yield refused(RULE, host, path, _shown(value), WORDS[form], _fix(value, form))
    elif isinstance(value, dict) and form in INSIDE:
        for key, one in value.items():
            yield from _form(host, (*path, str(key)), one, INSIDE[form])


def _range(
    host: SiteHost, path: tuple[str, ...], value: object, limits: tuple[int, int | None] | None
) -> Iterator[Problem]:
    if limits is None or not isinstance(value, int | float):
        return
    least, most = limits
    if value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        fix = "correct it, or remove it for its default"
        yield refused(RULE, host, path, _shown(value), allowed, fix)


def _is(value: object, form: str) -> bool:
    # For Python, true and false are numbers.
    return isinstance(value, FORMS[form]) and isinstance(value, bool) <= (form == "truth")


def _fix(value: object, form: str) -> str:
    if form == "text" and isinstance(value, int | float) and not isinstance(value, bool):
        return f'quote it: "{value}"'
    if form in ("number", "whole", "truth") and isinstance(value, str):
        return "write it without quotes" if value else "remove it"
    return "correct it"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)[:80]
