"""Settings of kubelet and kube-proxy: one wrong value, and they start nowhere.

A misspelt field would have no effect: both read their configuration leniently where they have to.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

from bedplate.common.nearest import nearest
from bedplate.common.versions import minor, number
from bedplate.portable import node_reserve
from bedplate.portable.quantities import parse
from bedplate.resolver.configuration_forms import FORMS, duration, is_of, percentage, said
from bedplate.resolver.configuration_rules import (
    GATES,
    UNSET,
    Document,
    dotted,
    gates_of,
    lying,
    refusals,
)
from bedplate.resolver.explanations import refused
from bedplate.resolver.node_pods import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from decimal import Decimal

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.kubernetes_facts import ConfigurationFields
    from bedplate.common.errors import Problem
    from bedplate.lock import Lock
    from bedplate.resolver.configuration_rules import Path
    from bedplate.site import Site, SiteHost
    from bedplate.site.kubernetes import Kubernetes

FIELD, VALUE, DECIDED = "configuration-field", "configuration-value", "configuration-decided"
#: The signal by which kubelet ends pods before a node has no more of it.
EVICTED_BY = {"memory": "memory.available", "ephemeral-storage": "nodefs.available"}
SETTING, OF_POOL = "bedplate_kubernetes", "kubernetes_node_kubelet"
DOCUMENTS = ("kubelet", "kube_proxy")
#: What each node works out of its own size.
OF_SIZE = "by the node's size"


@dataclass(frozen=True)
class Decided:
    """A field that another part decides: the values that go with it, and what to do instead."""

    values: Callable[[Kubernetes], tuple[object, ...]]
    why: str
    fix: str = "remove it"


def _one(value: object, why: str, fix: str = "remove it") -> Decided:
    return Decided(lambda _: (value,), why, fix)


def _none(why: str, fix: str = "remove it") -> Decided:
    return Decided(lambda _: (), why, fix)


def _dns(settings: Kubernetes) -> tuple[object, ...]:
    """Return the address that kubeadm gives to the service of CoreDNS: the tenth of the subnet."""
    with suppress(ValueError):  # A subnet that is none is refused as such.
        return ([str(ip_network(settings.service_subnet, strict=False)[10])],)
    return ()


ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - kubelet binds there by itself
#: Options of kubelet's command line that are no fields, in small letters: what says them here.
OPTIONS = {
    "nodeip": "write bedplate_node_ip for the host",
    "nodelabels": "write bedplate_labels for the pool",
    "hostnameoverride": "name the host so in the inventory",
}
_RUNTIME = "the container runtime's, as bedplate_container_runtime has it installed"
DECIDED_BY: dict[str, dict[str, Decided]] = {
    "kubelet": {
        "cgroupDriver": _one("systemd", "as the container runtime is configured"),
        "clusterDNS": Decided(_dns, "the address of CoreDNS in service_subnet"),
        "clusterDomain": _one("cluster.local", "the domain that CoreDNS serves"),
        "serverTLSBootstrap": _one(False, "nothing approves the requests for certificates"),
        "registerWithTaints": _none(
            "none, as it would reach nodes that the cluster's own pods need",
            "write them as bedplate_taints of the pool",
        ),
        "registerNode": _one(True, "as a node that joins waits for it"),
        "staticPodPath": _one("/etc/kubernetes/manifests", "where kubeadm puts the control plane"),
        "rotateCertificates": _one(True, "which kubeadm writes in any case"),
        "enableServer": _one(True, "as the API server asks it for logs and metrics"),
        "address": Decided(
            lambda _: ANYWHERE, "as the API server reaches kubelet at the node's address"
        ),
        "podCIDR": _none("none, as nodes get theirs from bedplate_kubernetes.pod_subnet"),
        "containerRuntimeEndpoint": _none(_RUNTIME),
        "imageServiceEndpoint": _none(_RUNTIME),
        "authentication.x509.clientCAFile": _one(
            "/etc/kubernetes/pki/ca.crt", "by which kubelet knows the API server"
        ),
    },
    "kube_proxy": {
        "clusterCIDR": Decided(lambda s: (s.pod_subnet,), "as bedplate_kubernetes.pod_subnet"),
        "clientConnection.kubeconfig": _one(
            "/var/lib/kube-proxy/kubeconfig.conf", "which kubeadm mounts"
        ),
        "hostnameOverride": _none("none, as each node's own name is given to it"),
    },
}


def check(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield the settings that no release of the requested Kubernetes takes."""
    settings = site.nodes[0].wishes.bedplate_kubernetes if site.nodes else None
    if settings is None:
        return
    releases = sorted(catalogue.kubernetes, key=number)
    if settings.version is not None:
        asked = [one for one in releases if minor(one) == minor(settings.version)]
        releases = asked or releases
    if releases:
        yield from _checked(site, settings, releases[-1], catalogue)


def problems(site: Site, lock: Lock, catalogue: Catalogue) -> list[Problem]:
    """Return the settings that the release of a lock does not take."""
    settings = site.nodes[0].wishes.bedplate_kubernetes if site.nodes else None
    if lock.cluster is None or settings is None:
        return []
    return list(_checked(site, settings, lock.cluster.kubernetes.version, catalogue))


def _checked(
    site: Site, settings: Kubernetes, version: str, catalogue: Catalogue
) -> Iterator[Problem]:
    yield from _reserved(site, settings)
    for document in DOCUMENTS:
        given = getattr(settings, document)
        if given:
            of = _Settings(document, site.nodes[0], (SETTING, document), given, {}, settings)
            yield from of.problems(version, catalogue)
    # Hosts with equal wishes share them.
    for host in {id(one.wishes): one for one in site.nodes}.values():
        if given := host.wishes.kubernetes_node_kubelet:
            base = settings.kubelet
            of = _Settings("kubelet", host, (OF_POOL,), given, base, settings)
            yield from of.problems(version, catalogue)


def _reserved(site: Site, settings: Kubernetes) -> Iterator[Problem]:
    """Yield where a node would keep all that it has, if its size is known: no pod has room."""
    for host in {id(one.wishes): one for one in site.nodes}.values():
        size, own = host.wishes.bedplate_host, host.wishes.kubernetes_node_kubelet
        fields = merged(settings.kubelet, own)
        sizes = {"memory": size.memory, "cpu": size.cpus, "ephemeral-storage": size.disk}
        for resource, has in sizes.items():
            keys = dict.fromkeys(node_reserve.RESERVED, resource)
            if resource in EVICTED_BY:
                keys["evictionHard"] = EVICTED_BY[resource]
            kept: dict[str, str] = {}
            for name, key in keys.items():
                part = fields.get(name)
                if isinstance(part, dict) and key in part:
                    kept[name] = str(part[key])
            with suppress(ValueError):  # What is no amount is refused as such.
                whole = parse(str(has or 0))
                if has is None or sum(_amount(one, whole) for one in kept.values()) < whole:
                    continue
                name = next(iter(kept))
                path = (OF_POOL,) if name in own else (SETTING, "kubelet")
                got = " and ".join(f"{value} in {of}" for of, value in kept.items())
                allowed = f"less than the {has} of {host.pool or host.name}"
                fix = "write what the system and Kubernetes need, or bedplate_host as it is"
                yield refused(VALUE, host, (*path, name, keys[name]), got, allowed, fix)


def _amount(text: str, whole: Decimal) -> Decimal:
    """Return an amount, or a part of the whole. Raises ValueError."""
    part = percentage(text)
    return parse(text) if part is None else whole * part / 100


def fields_of(document: str, version: str, catalogue: Catalogue) -> ConfigurationFields | None:
    """Return what is known of the fields of a document in a release; None of an unknown one."""
    facts = [fact.value for fact in catalogue.configuration_fields.values()]
    old = [one for one in facts if one.document == document]
    old = [one for one in old if number(one.kubernetes_from) <= number(version)]
    return max(old, key=lambda one: number(one.kubernetes_from), default=None)


@dataclass(frozen=True)
class _Settings:
    """Settings of a document where they are written, over those of the whole cluster."""

    document: str
    host: SiteHost
    path: Path
    given: Mapping[str, object]
    base: Mapping[str, object]
    cluster: Kubernetes

    def problems(self, version: str, catalogue: Catalogue) -> Iterator[Problem]:
        """Yield what is wrong: a name or a form, a field that another part decides, a value."""
        known = fields_of(self.document, version, catalogue)
        if known is None:
            return
        release = number(minor(version))
        forms = {
            name: form
            for form, names in known.fields.items()
            for name in names
            if number(known.since.get(name, "0")) <= release
        }
        wrong = list(self._fields((), self.given, forms, f"Kubernetes {minor(version)}"))
        yield from wrong
        decided = list(self._decided())
        yield from decided
        bad = {one.key for one in [*wrong, *decided]}
        whole = self._whole(known, catalogue)
        gates = gates_of(version, whole.get(GATES), catalogue)
        own = frozenset(_paths((), self.given))
        document = Document(self.document, version, {**whole, GATES: gates}, gates, own)
        for one in refusals(document, catalogue):
            problem = self._refused(VALUE, one.path, one.got, one.allowed, one.fix, (one.source,))
            # One reason for a field is enough, and nothing is compared with what cannot be read.
            if problem.key not in bad:
                bad.add(problem.key)
                yield problem

    def _refused(
        self, rule: str, at: Path, got: str, allowed: str, fix: str, sources: tuple[str, ...] = ()
    ) -> Problem:
        return refused(rule, self.host, (*self.path, *at), got, allowed, fix, sources)

    def _whole(self, known: ConfigurationFields, catalogue: Catalogue) -> dict[str, object]:
        """Return the document as the program has it: over what Bedplate writes, and defaults."""
        found = merged(self._written(catalogue), merged(self.base, self.given))
        for path, value in known.defaults.items():
            if all(one in UNSET or _zero(one) for _, one in lying(found, path)):
                *above, last = path.split(".")
                default = {last: value}
                for part in reversed(above):
                    default = {part: default}
                found = merged(found, default)
        return found

    def _written(self, catalogue: Catalogue) -> dict[str, object]:
        """Return what Bedplate writes where the site says nothing else."""
        if self.document != "kubelet":
            return {}
        own = {**self.base, **self.given}
        kept = catalogue.node_reserves
        reserves = not any(own.get(name) for name in node_reserve.RESERVED) and "cpu" in kept
        room = {"cpu": f"{kept['cpu'].value.base}m", "memory": OF_SIZE} if reserves else {}
        return {"cgroupDriver": "systemd", "kubeReserved": room}

    def _fields(
        self, at: Path, value: Mapping[str, object], forms: Mapping[str, str], release: str
    ) -> Iterator[Problem]:
        """Yield fields that a mapping does not have, and values of another form."""
        for key, one in value.items():
            here = (*at, str(key))
            form = forms.get(_general(here))
            if form is None:
                beside = [name.rpartition(".") for name in forms]
                close = nearest(str(key), [own for of, _, own in beside if of == _general(at)])
                allowed = f"a field of its configuration in {release}"
                fix = f"write {close}" if close else "remove it"
                if not at and self.document == "kubelet":
                    fix = OPTIONS.get(str(key).replace("-", "").lower(), fix)
                yield self._refused(FIELD, here, str(key), allowed, fix)
            elif one is not None:
                yield from self._form(here, one, form, forms, release)

    def _form(
        self, at: Path, value: object, form: str, forms: Mapping[str, str], release: str
    ) -> Iterator[Problem]:
        inside = FORMS[form].inside or forms.get(f"{_general(at)}.*")
        if not is_of(value, form):
            yield self._refused(VALUE, at, _shown(value), FORMS[form].words, _fix(value, form))
        elif isinstance(value, dict) and form == "mapping":
            if any(name.startswith(f"{_general(at)}.") for name in forms):
                yield from self._fields(at, value, forms, release)
        elif isinstance(value, dict | list) and inside:
            entries = value.items() if isinstance(value, dict) else enumerate(value)
            for key, one in entries:
                yield from self._form((*at, key), one, inside, forms, release)

    def _decided(self) -> Iterator[Problem]:
        for path, decided in DECIDED_BY[self.document].items():
            for where, value in lying(self.given, path):
                values = decided.values(self.cluster)
                if value not in UNSET and value not in values:
                    allowed = ", ".join([*map(said, values), decided.why])
                    yield self._refused(DECIDED, where, said(value), allowed, decided.fix)


def _zero(value: object) -> bool:
    """Tell whether a duration is none, which both programs take for their default."""
    return isinstance(value, str) and duration(value) == 0


def _paths(at: Path, value: object) -> Iterator[Path]:
    """Yield the paths of everything that is set inside a value."""
    entries = enumerate(value) if isinstance(value, list) else ()
    for key, one in value.items() if isinstance(value, dict) else entries:
        if one is not None:
            yield (*at, key)
            yield from _paths((*at, key), one)


def _general(path: Path) -> str:
    return dotted("*" if isinstance(part, int) else part for part in path)


def _fix(value: object, form: str) -> str:
    of_text = isinstance(value, int | float) and not isinstance(value, bool)
    if form in ("text", "quantity", "amount") and of_text:
        return f'quote it: "{value}"'
    if form in ("number", "whole", "long", "truth") and isinstance(value, str):
        return "write it without quotes" if value else "remove it"
    return "correct it"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)[:80]
