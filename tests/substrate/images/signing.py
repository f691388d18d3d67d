"""The key that signs the package indexes of locally made packages (OpenPGP, RFC 4880, Ed25519).

Every checkout derives the same key from a constant, so that a site can name its fingerprint and
two machines make the same bytes. Anybody can make it: it is worth nothing outside tests and demo.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bedplate.portable import openpgp

SEED: Final = b"Bedplate's demo signs packages that it made itself: not a secret"
USER: Final = b"Bedplate's demo, not a vendor"
CREATED: Final = 1_750_000_000
ED25519: Final = bytes.fromhex("2b06010401da470f01")
EDDSA, SHA512 = 22, 10
CERTIFICATION, TEXT = 0x13, 0x01
CERTIFY_AND_SIGN = b"\x03"
PUBLIC_KEY, USER_ID, SIGNATURE = 6, 13, 2


def _key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(SEED).digest())


def _packet(tag: int, body: bytes) -> bytes:
    """Frame a packet with a length of four octets."""
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body


def _integer(value: bytes) -> bytes:
    number = int.from_bytes(value, "big")
    octets = (number.bit_length() + 7) // 8
    return number.bit_length().to_bytes(2, "big") + number.to_bytes(octets, "big")


def _body() -> bytes:
    point = _key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    head = b"\x04" + CREATED.to_bytes(4, "big") + bytes([EDDSA, len(ED25519)])
    return head + ED25519 + _integer(b"\x40" + point)


def _framed() -> bytes:
    return b"\x99" + len(_body()).to_bytes(2, "big") + _body()


def _fingerprint() -> bytes:
    return hashlib.sha1(_framed()).digest()  # noqa: S324 - RFC 4880, 12.2


def _subpacket(kind: int, content: bytes) -> bytes:
    return bytes([len(content) + 1, kind]) + content


def _signature(kind: int, signed: bytes, more: bytes = b"") -> bytes:
    """Return a signature packet over what precedes its own hashed part."""
    hashed = _subpacket(2, CREATED.to_bytes(4, "big")) + _subpacket(33, b"\x04" + _fingerprint())
    hashed += more
    head = bytes([4, kind, EDDSA, SHA512]) + len(hashed).to_bytes(2, "big") + hashed
    digest = hashlib.sha512(signed + head + b"\x04\xff" + len(head).to_bytes(4, "big")).digest()
    issuer = _subpacket(16, _fingerprint()[-8:])
    made = _key().sign(digest)
    body = head + len(issuer).to_bytes(2, "big") + issuer + digest[:2]
    return _packet(SIGNATURE, body + _integer(made[:32]) + _integer(made[32:]))


def fingerprint() -> str:
    """Return the key's fingerprint, 40 hexadecimal digits."""
    return _fingerprint().hex().upper()


def public_key() -> bytes:
    """Return the key with its name, armoured, as a vendor publishes it."""
    named = b"\xb4" + len(USER).to_bytes(4, "big") + USER
    certified = _signature(CERTIFICATION, _framed() + named, _subpacket(27, CERTIFY_AND_SIGN))
    ring = _packet(PUBLIC_KEY, _body()) + _packet(USER_ID, USER) + certified
    return openpgp.armoured(ring).encode()


def clear_signed(text: str) -> bytes:
    """Return a text with its signature around it, as an InRelease file is."""
    lines = [line.rstrip(" \t") for line in text.rstrip("\n").split("\n")]
    signature = openpgp.armoured(_signature(TEXT, "\r\n".join(lines).encode()))
    written = [f"- {line}" if line.startswith("-") else line for line in lines]
    head = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n"
    body = "\n".join(written) + "\n"
    return (head + body + signature.replace("PUBLIC KEY BLOCK", "SIGNATURE")).encode()
