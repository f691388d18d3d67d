"""Certificates of a control plane that lives for one test run: one authority, made in memory."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOOPBACK = ("localhost", "127.0.0.1")
LIFE = datetime.timedelta(days=2)


class Authority:
    """Signs certificates for servers on loopback and for users; files lie in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        authority = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._signed(self._name, self._key.public_key(), [(authority, True)])
        self.path = folder / "ca.crt"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
        days: tuple[float, float] = (-LIFE.days, LIFE.days),
    ) -> x509.Certificate:
        begins, ends = (
            datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=one) for one in days
        )
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(begins).not_valid_after(ends)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())

    def issue(
        self,
        user: str,
        *groups: str,
        folder: Path | None = None,
        names: Sequence[str] = LOOPBACK,
        days: tuple[float, float] = (-LIFE.days, LIFE.days),
    ) -> tuple[Path, Path]:
        """Return (certificate, key) as files, good for a server of these names and as a client.

        `days`: when it begins and ends, from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        of = x509.SubjectAlternativeName(list(map(general, names)))
        certificate = self._signed(
            x509.Name(attributes),
            key.public_key(),
            [(x509.ExtendedKeyUsage(usage), False), *([(of, False)] if names else [])],
            days,
        )
        target = folder or self.folder
        stem = "tls" if folder else user.replace(":", "-")
        paths = (target / f"{stem}.crt", target / f"{stem}.key")
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(private_pem(key))
        return paths

    def key_file(self) -> Path:
        """Return the authority's own key, for a controller that signs with it."""
        path = self.folder / "ca.key"
        path.touch(mode=0o600)
        path.write_bytes(private_pem(self._key))
        return path

    def service_account_key(self) -> Path:
        """Return the key that signs the tokens of service accounts."""
        path = self.folder / "service-accounts.key"
        path.write_bytes(private_pem(rsa.generate_private_key(65537, 2048)))
        return path


def general(name: str) -> x509.GeneralName:
    """Return a name or an address as certificates have it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """Return a private key as an unencrypted PEM file."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
