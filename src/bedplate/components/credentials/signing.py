"""A client certificate that the cluster signs, for a key that is made here and sent nowhere.

"Certificates and Certificate Signing Requests":
https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/
"""

from __future__ import annotations

import base64
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bedplate.common.errors import BedplateError, Problem
from bedplate.pods.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.pods.api import Api

REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER: Final = "kubernetes.io/kube-apiserver-client"
#: For the signer, which needs a second.
PATIENCE: Final = 60.0
PAUSE: Final = 0.2
#: By how much the clocks here and of the signer may differ.
CLOCKS: Final = timedelta(minutes=5)


class SigningError(BedplateError):
    """The cluster signs no certificate, or another one than was requested."""


@dataclass(frozen=True)
class Signed:
    """A certificate with its key, as PEM, and when it ends."""

    certificate: bytes
    key: bytes = field(repr=False)
    until: datetime


def signed(api: Api, user: str, groups: Sequence[str], seconds: int) -> Signed:
    """Return a certificate that says who a user is, approved with the rights of who asks the API.

    The request is deleted in any case.

    Raises:
        ApiError: the API refuses, or does not answer.
        SigningError: the request is denied, not signed in time, or signed for a longer time.
        ValueError: the user or a group is no part of a certificate's subject.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    pem = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    text = _approved(api, pem, seconds)
    until = x509.load_pem_x509_certificate(text).not_valid_after_utc
    if until > (latest := datetime.now(UTC) + timedelta(seconds=seconds) + CLOCKS):
        raise _problem(
            "the cluster signs for longer than was requested",
            f"a certificate until {until:%Y-%m-%d %H:%M:%S} UTC, which was thrown away",
            f"{latest:%Y-%m-%d %H:%M:%S} UTC at the latest",
            "compare the clocks here and on the control planes; Kubernetes' own signer keeps to it",
        )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Signed(text, private, until)


def _approved(api: Api, pem: bytes, seconds: int) -> bytes:
    name = f"bedplate-{secrets.token_hex(8)}"
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": SIGNER,
        "expirationSeconds": seconds,
        "usages": ["client auth"],
    }
    wanted = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
    approval = {
        "type": "Approved",
        "status": "True",
        "reason": "BedplateKubeconfig",
        "message": "An administrator ran bedplate kubeconfig.",
    }
    try:
        made = api.call("POST", REQUESTS, wanted)
        made["status"] = {"conditions": [approval]}
        api.call("PUT", f"{REQUESTS}/{name}/approval", made)
        return _certificate(api, f"{REQUESTS}/{name}")
    finally:
        # An interrupt leaves the connection in the middle of an answer.
        api.drop()
        # One that stays has no secret, and Kubernetes deletes it within a day.
        with suppress(ApiError):
            api.call("DELETE", f"{REQUESTS}/{name}")


def _certificate(api: Api, path: str) -> bytes:
    until = time.monotonic() + PATIENCE
    while True:
        status = api.call("GET", path).get("status") or {}
        if text := status.get("certificate"):
            return base64.b64decode(text)
        for one in status.get("conditions") or []:
            if one["type"] in ("Denied", "Failed"):
                got = f"{one['type']}: {one.get('message') or one.get('reason')}"
                fix = "see what denies or signs certificates in this cluster"
                raise _problem("the cluster signs no certificate", got, "a certificate", fix)
        if time.monotonic() > until:
            got, fix = f"none in {PATIENCE:.0f} s", "see that kube-controller-manager runs"
            raise _problem("the cluster signs no certificate", got, "a certificate", fix)
        time.sleep(PAUSE)


def _problem(what: str, got: str, allowed: str, fix: str) -> SigningError:
    where = f"signer {SIGNER}"
    return SigningError([Problem(what, where, got=got, allowed=allowed, fix=fix, rule="signing")])
