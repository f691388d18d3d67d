"""A certificate authority for tests, and the one certificate for all the vendors' names."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bedplate.common import writing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

DAYS = 3650


@dataclass(frozen=True)
class Authority:
    """A folder with the authority's key and certificate, made where they are absent."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """What clients are to trust, as PEM."""
        return self.folder / "ca.crt"

    def ensure(self) -> None:
        """Make key and certificate; what is there stays, so that hosts trust it for good."""
        if self.certificate.is_file():
            return
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Bedplate stand-in for the internet, for tests")
        made = _builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        use = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        made = made.add_extension(use, critical=True).add_extension(identifier, critical=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_key(self.folder / "ca.key", key)
        signed = made.sign(key, hashes.SHA256())
        writing.replace(self.certificate, _pem(signed).encode())

    def context(self, names: Iterable[str]) -> ssl.SSLContext:
        """Return a server's TLS settings with a new certificate for the names."""
        self.ensure()
        issuer = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_named(name) for name in sorted(names)])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        made = (
            _builder(_name("the vendors' hosts"), issuer.subject, key.public_key())
            .add_extension(alternatives, critical=False)
            .add_extension(authority, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(signer, hashes.SHA256())
        )
        writing.replace(self.folder / "server.crt", _pem(made).encode())
        _write_key(self.folder / "server.key", key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _named(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
