"""The hub's proxy, and the certificate with which it answers. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bedplate.components.config import StackError
from bedplate.components.frameworks import hub_objects as hub
from bedplate.lock import hub_address
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

#: The Secret with certificate and key, and where the proxy has them.
TLS: Final = "hub-tls"
FOLDER: Final = "/etc/bedplate/tls"
CERTIFICATE, KEY = "tls.crt", "tls.key"
SECRET: Final = "bedplate:hubKey"  # noqa: S105 - a name


def deployment(
    image: str, mark: str, *, encrypted: bool = False, redirect: int | None = None
) -> hub.Object:
    """Return the proxy: all that users see goes through it.

    Who comes by plain HTTP is sent to the port *redirect* by TLS, where one is given.
    """
    scheme = {"scheme": "HTTPS"} if encrypted else {}
    health = {"httpGet": {"path": "/_chp_healthz", "port": hub.PROXY_PORT, **scheme}}
    token = {"secretKeyRef": {"name": hub.SECRETS, "key": "proxy-token"}}
    mounts = [{"name": "tls", "mountPath": FOLDER, "readOnly": True}] if encrypted else []
    secret = {"secretName": TLS, "defaultMode": 0o440}
    return hub.deployment(
        hub.PROXY,
        "configurable-http-proxy, with routes that the hub sets.",
        mark,
        automountServiceAccountToken=False,
        tolerations=[{"key": hub.CONTROL, "operator": "Exists", "effect": "NoSchedule"}],
        containers=[
            {
                "name": hub.PROXY,
                "image": image,
                "command": command(encrypted=encrypted, redirect=redirect),
                "env": [{"name": "CONFIGPROXY_AUTH_TOKEN", "valueFrom": token}],
                "ports": [
                    {"name": "http", "containerPort": hub.PROXY_PORT},
                    {"name": "api", "containerPort": hub.PROXY_API},
                    *([{"name": "plain", "containerPort": hub.PLAIN_PORT}] if redirect else []),
                ],
                "readinessProbe": {**health, "periodSeconds": 2},
                "livenessProbe": {**health, "initialDelaySeconds": 60, "timeoutSeconds": 10},
                "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
                "securityContext": hub.restricted(),
                "volumeMounts": mounts,
            }
        ],
        volumes=[{"name": "tls", "secret": secret}] if encrypted else [],
    )


def command(*, encrypted: bool, redirect: int | None = None) -> list[str]:
    """Return the proxy's command line. Its API stays plain: the hub alone reaches it."""
    tls = [f"--ssl-cert={FOLDER}/{CERTIFICATE}", f"--ssl-key={FOLDER}/{KEY}"] if encrypted else []
    if redirect:
        tls += [f"--redirect-port={hub.PLAIN_PORT}", f"--redirect-to={redirect}"]
    return [
        "configurable-http-proxy",
        "--ip=0.0.0.0",
        f"--port={hub.PROXY_PORT}",
        *tls,
        "--api-ip=0.0.0.0",
        f"--api-port={hub.PROXY_API}",
        f"--default-target=http://{hub.HUB}:{hub.HUB_PORT}",
        f"--error-target=http://{hub.HUB}:{hub.HUB_PORT}/hub/error",
        "--log-level=info",
    ]


def certificate(site: Path, name: str, host: str, today: date) -> str:
    """Return the text of the certificate that the site names.

    Raises:
        StackError: there is no such file, it holds no certificate, or not one of that host, today.
    """
    path = site / name
    try:
        text = path.read_text()
        problems = list(hub_address.wrong(text, host, today))
    except (OSError, ValueError) as error:
        got = "no file" if isinstance(error, OSError) else "no certificate"
        raise StackError(
            problem(
                "the hub's certificate cannot be read",
                "bedplate_hub.certificate",
                f"{got} at {path}",
                "a PEM file with the certificate first, then its chain",
                "put it there, or remove the setting",
            )
        ) from error
    if problems:
        raise StackError(
            "\n".join(
                problem(
                    "the hub's certificate does not serve",
                    f"{path} {hub_address.CERTIFICATE}",
                    one.got,
                    one.allowed,
                    one.fix,
                )
                for one in problems
            )
        )
    return text


def checked(certificate: str, key: str) -> dict[str, str]:
    """Return the files of the Secret.

    Raises:
        StackError: the key is none, or that of another certificate.
    """
    first, *_ = x509.load_pem_x509_certificates(certificate.encode())
    try:
        private = serialization.load_pem_private_key(key.encode(), None)
    except (TypeError, ValueError) as error:
        raise _wrong_key("a text that is no private key in PEM without a password") from error
    if _public(private.public_key()) != _public(first.public_key()):
        raise _wrong_key("the key of another certificate")
    return {CERTIFICATE: certificate, KEY: key}


def missing_key() -> StackError:
    """Return what is wrong where the site names a certificate and the stack has no key."""
    return _wrong_key("nothing")


def _wrong_key(got: str) -> StackError:
    return StackError(
        problem(
            "the key of the hub's certificate is not usable",
            SECRET,
            got,
            "the private key of the first certificate in bedplate_hub.certificate",
            f"run: pulumi config set --secret {SECRET} < KEY.pem",
        )
    )


def _public(key: object) -> bytes:
    public: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public
