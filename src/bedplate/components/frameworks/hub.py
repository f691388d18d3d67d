"""The hub: JupyterHub and its proxy, with what they are told of the site's courses."""

from __future__ import annotations

import base64
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.config import StackError
from bedplate.components.frameworks import (
    hub_images,
    hub_objects,
    hub_proxy,
    hub_registry,
    hub_settings,
    hub_use,
    hub_volume,
)
from bedplate.components.refs import MANAGED
from bedplate.lock import hub_address, hub_state
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock


class HubArgs(TypedDict):
    """Inputs of a Hub."""

    site: Path
    """The site's directory, which has the bill."""
    lock: Lock
    """Courses and how users sign in. Their namespaces and queues are the schedulers stack's."""
    oauth_secret: pulumi.Input[str] | None
    """The secret of the site's OAuth client; needed where users sign in by OAuth."""
    key: NotRequired[pulumi.Input[str] | None]
    """The private key of the hub's certificate in PEM; needed where the site names one."""


class Hub(pulumi.ComponentResource):  # type: ignore[misc]
    """A namespace with the hub; it is up when the stack is."""

    address: pulumi.Output[str]
    codes: pulumi.Output[dict[str, str]]
    """By course, what students sign up with; a secret."""
    passwords: pulumi.Output[dict[str, str]]
    """By user whom the site names, the first password; a secret."""
    registry: pulumi.Output[str]
    """Where teachers push, as HOST:PORT; empty where no course has a registry."""

    def __init__(
        self, name: str, args: HubArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:frameworks:Hub", name, None, opts)
        site, lock = args["site"], args["lock"]
        hub = lock.cluster.hub if lock.cluster else None
        given = _given(hub.sign_in if hub else "native", args["oauth_secret"])
        refused = artifact.refused(site, lock)
        settings = hub_settings.settings(lock, lambda one: artifact.image(site, lock, one), refused)
        for image, reason in refused.items():
            pulumi.log.warn(f"no course is offered image {image}, which is refused: {reason}", self)
        courses, enrolled = hub_settings.courses_of(lock), hub_settings.enrolled(lock)
        namespace = self._made(name, hub_objects.namespace(), [])
        seed = self._seed(name, namespace)
        values = pulumi.Output.all(seed, pulumi.Output.from_input(given)).apply(
            lambda found: hub_settings.secrets(lock, found[0], found[1])
        )
        own = self._secret(f"{name}-secrets", hub_objects.SECRETS, namespace, values)
        tls = self._tls(name, namespace, args)
        configured = self._made(name, hub_objects.configuration(settings), [namespace])
        state = hub_volume.of(lock)
        before: list[pulumi.Resource] = [namespace, own, configured]
        objects = (
            *hub_objects.rights(courses),
            *hub_objects.network_policies(),
            *hub_objects.state_volume(state),
        )
        before += [self._made(name, found, [namespace]) for found in objects]
        before += [tls] if tls else []
        encrypted, redirect = tls is not None, hub_address.port(lock)
        public, *others = hub_objects.services(encrypted=encrypted, redirected=redirect is not None)
        before += [self._made(name, one, [namespace]) for one in others]
        reached = self._service(f"{name}-public", public, [namespace])
        # Pods start again with what they read. The digest of secrets this long tells nothing.
        mark = pulumi.Output.unsecret(
            values.apply(lambda found: hub_objects.digest(hub_objects.files(), settings, found))
        )
        proxy = hub_proxy.deployment(
            artifact.image(site, lock, "hub-proxy"), mark, encrypted=encrypted, redirect=redirect
        )
        self._made(name, proxy, before)
        for one in hub_images.daemons(lock, settings):
            self._made(name, one, [namespace])
        hub_image = artifact.image(site, lock, "hub")
        readers = self._made(name, hub_use.namespace(), [])
        for one in hub_use.objects(lock, hub_image):
            self._made(name, one, [readers])
        deployed = hub_objects.hub_deployment(hub_image, mark, state)
        self.registry = pulumi.Output.from_input("")
        if hub_registry.courses(lock):
            deployed = hub_registry.seen(deployed)
            self._registry(name, args, state, before)
        self._made(name, deployed, before)
        address, scheme = lock.hosts[hub_state.host(lock)].address, "https" if tls else "http"
        self.address = reached.spec.apply(
            lambda spec: f"{scheme}://{address}:{spec['ports'][0].get('node_port')}"
        )
        native = hub is not None and hub.sign_in == "native"
        self.codes = self._told(seed, hub_settings.code, enrolled if native else [])
        self.passwords = self._told(
            seed, hub_settings.password, hub_settings.named(lock) if native else []
        )
        self.register_outputs(
            {
                "address": self.address,
                "codes": self.codes,
                "passwords": self.passwords,
                "registry": self.registry,
            }
        )

    @staticmethod
    def _told(seed: pulumi.Output[str], derive: Any, names: Any) -> pulumi.Output[dict[str, str]]:
        return pulumi.Output.secret(
            seed.apply(lambda one: {name: derive(one, name) for name in sorted(names)})
        )

    def _registry(
        self, name: str, args: HubArgs, state: hub_objects.State, before: list[pulumi.Resource]
    ) -> None:
        """Make the registry of courses; where it is reached is known once its Service is there."""
        site, lock = args["site"], args["lock"]
        service, *others = hub_registry.objects(
            lock, lambda one: artifact.image(site, lock, one), state
        )
        for found in others:
            self._made(name, found, before)
        self.registry = self._service(f"{name}-registry", service, before).spec.apply(
            lambda spec: f"{hub_address.host(lock)}:{spec['ports'][0].get('node_port')}"
        )

    def _service(
        self, name: str, found: hub_objects.Object, after: list[pulumi.Resource]
    ) -> kubernetes.core.v1.Service:
        """Make a Service whose port is known once it is there."""
        opts = pulumi.ResourceOptions(parent=self, depends_on=after)
        return kubernetes.core.v1.Service(
            name, metadata=found["metadata"], spec=found["spec"], opts=opts
        )

    def _made(
        self, name: str, found: hub_objects.Object, after: list[pulumi.Resource]
    ) -> pulumi.CustomResource:
        metadata = found["metadata"]
        parts = (found["kind"].lower(), metadata.get("namespace"), metadata["name"])
        kept = found["kind"] in {"PersistentVolume", "PersistentVolumeClaim"}
        opts = pulumi.ResourceOptions(
            parent=self, depends_on=after, delete_before_replace=True if kept else None
        )
        place = "-".join(filter(None, parts))
        return pulumi.CustomResource(token(found), f"{name}-{place}", found, opts)

    def _seed(self, name: str, namespace: pulumi.Resource) -> pulumi.Output[str]:
        """Return what all secrets of the hub come from: made once, and kept in the cluster."""
        fresh = base64.b64encode(secrets.token_hex(32).encode()).decode()
        kept = kubernetes.core.v1.Secret(
            f"{name}-seed",
            metadata={
                "name": "hub-seed",
                "namespace": hub_objects.NAMESPACE,
                "labels": MANAGED,
            },
            data={"seed": pulumi.Output.secret(fresh)},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[namespace],
                ignore_changes=["data"],
                additional_secret_outputs=["data"],
            ),
        )
        found: pulumi.Output[str] = pulumi.Output.secret(kept.data["seed"]).apply(
            lambda text: base64.b64decode(text).decode()
        )
        return found

    def _tls(
        self, name: str, namespace: pulumi.Resource, args: HubArgs
    ) -> kubernetes.core.v1.Secret | None:
        """Return the certificate and its key; None where the site names no certificate."""
        hub = args["lock"].cluster.hub if args["lock"].cluster else None
        if hub is None or hub.certificate is None:
            return None
        host, today = hub_address.host(args["lock"]), datetime.now(UTC).date()
        text = hub_proxy.certificate(args["site"], hub.certificate, host, today)
        if soon := hub_address.ends_soon(text, today):
            pulumi.log.warn(f"{soon}: renew {args['site'] / hub.certificate}", self)
        key = args.get("key")
        if key is None:
            raise hub_proxy.missing_key()
        files = pulumi.Output.from_input(key).apply(lambda found: hub_proxy.checked(text, found))
        return self._secret(f"{name}-tls", hub_proxy.TLS, namespace, files)

    def _secret(
        self,
        name: str,
        called: str,
        namespace: pulumi.Resource,
        values: pulumi.Output[dict[str, str]],
    ) -> kubernetes.core.v1.Secret:
        return kubernetes.core.v1.Secret(
            name,
            metadata={"name": called, "namespace": hub_objects.NAMESPACE, "labels": MANAGED},
            string_data=pulumi.Output.secret(values),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[namespace],
                additional_secret_outputs=["data", "stringData"],
            ),
        )


def _given(sign_in: str, secret: pulumi.Input[str] | None) -> dict[str, pulumi.Input[str]]:
    if sign_in != "oauth":
        return {}
    if secret is None:
        raise StackError(
            problem(
                "the hub's secret is not set",
                "bedplate:oauthClientSecret",
                "nothing",
                "the secret of the client that bedplate_hub.oauth names",
                "run: pulumi config set --secret bedplate:oauthClientSecret",
            )
        )
    return {hub_settings.OAUTH_SECRET: secret}
