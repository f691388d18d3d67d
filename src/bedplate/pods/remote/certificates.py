"""Certificates of one opening of a claim: an authority that signs two and is forgotten.

There is no key of an authority to steal: each time a claim is opened, one is made, signs two
certificates, the front's and the client's, and is dropped. What another opening or claim was given,
or what was given before a release, has another authority.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bedplate.pods.remote.front import CLIENT, FRONT, identity

if TYPE_CHECKING:
    from cryptography.x509 import ExtensionType

#: The front's own certificate is good for longer: its meter is read once more after the end.
LAST_READING: Final = datetime.timedelta(minutes=2)
#: Clocks of nodes differ; before its time a certificate is no risk, for nothing is open then.
SKEW: Final = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Bundle:
    """All that one opening of a claim is given."""

    authority: bytes
    front: Pair
    client: Pair


def issue(claim: str, host: str, until: datetime.datetime) -> Bundle:
    """Return certificates for a claim, by its UID, that are good until its time is up.

    Args:
        claim: the claim's UID.
        host: the name by which the client reaches the front.
        until: with a time zone.
    """
    signer = _Authority(claim, until)
    return Bundle(
        signer.certificate.public_bytes(serialization.Encoding.PEM),
        signer.signed(FRONT, [x509.DNSName(host)], server=True),
        signer.signed(CLIENT, [], server=False),
    )


class _Authority:
    def __init__(self, claim: str, until: datetime.datetime) -> None:
        self._claim, self._until = claim, until
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"claim {claim}")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        authority = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = self._sign(
            self._name,
            self._key.public_key(),
            [(authority, True), (usage, True)],
            until + LAST_READING,
        )

    def signed(self, role: str, names: list[x509.GeneralName], *, server: bool) -> Pair:
        """Return a certificate of a role. A front is a client too, of another's meter."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if server:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = [x509.UniformResourceIdentifier(identity(self._claim, role)), *names]
        extensions: list[tuple[ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage(uses), False),
            (x509.SubjectAlternativeName(names), False),
        ]
        until = self._until + LAST_READING if server else self._until
        certificate = self._sign(_name(role), key.public_key(), extensions, until)
        return Pair(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        extensions: list[tuple[ExtensionType, bool]],
        until: datetime.datetime,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, self._until) - SKEW)
            .not_valid_after(until)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
