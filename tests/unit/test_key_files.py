"""Key files: what a package manager would import of them is the trusted key, and nothing more."""

from __future__ import annotations

import base64
import bz2
import hashlib
import zlib
from contextlib import suppress

import pytest

from bedplate.portable import openpgp

BEGIN, END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


def packet(tag: int, body: bytes) -> bytes:
    """A packet with a length of the new form."""
    return bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body


def old(tag: int, body: bytes) -> bytes:
    """A packet with a length of the old form."""
    return bytes([0x80 | tag << 2 | 1]) + len(body).to_bytes(2, "big") + body


def public(number: int) -> bytes:
    """The body of a key of RSA, version 4."""
    return b"\x04" + number.to_bytes(4, "big") + b"\x01\x00\x08\xff\x00\x02\x03"


TRUSTED, HIDDEN = packet(6, public(1)), packet(6, public(2))
FINGERPRINT = hashlib.sha1(b"\x99\x00\x0c" + public(1), usedforsecurity=False).hexdigest().upper()
USER, SIGNATURE = packet(13, b"trusted"), packet(2, b"\x04\x13\x01\x08")
WHOLE = TRUSTED + USER + SIGNATURE


def armour(content: bytes, head: str = "", begin: str = BEGIN, end: str = END) -> bytes:
    text = base64.encodebytes(content).decode()
    return f"{begin}\n{head}\n{text}{end}\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        TRUSTED,
        WHOLE,
        old(6, public(1)) + old(13, b"trusted"),
        WHOLE + packet(14, public(3)) + SIGNATURE + packet(17, b"\x02\x01x"),
        armour(WHOLE),
        armour(WHOLE, "Version: 1\nComment: a: b\n"),
        armour(WHOLE).replace(b"\n", b"\r\n"),
        b"\n \n" + openpgp.armoured(WHOLE).encode() + b" \n",
        armour(TRUSTED) + b"\n" + armour(USER + SIGNATURE),
    ],
)
def test_a_file_of_one_key_has_its_fingerprint(content: bytes) -> None:
    assert openpgp.fingerprints(content) == [FINGERPRINT]


@pytest.mark.parametrize(
    "more",
    [
        packet(8, b"\x00" + HIDDEN),
        packet(8, b"\x01" + zlib.compress(HIDDEN)[2:-4]),
        packet(8, b"\x02" + zlib.compress(HIDDEN)),
        packet(8, b"\x03" + bz2.compress(HIDDEN)),
        old(8, b"\x00" + HIDDEN),
        bytes([0xA3]) + b"\x00" + HIDDEN,  # compressed, of no known length
        packet(5, public(2)),
        packet(7, public(2)),
        packet(10, b"PGP"),
        packet(11, b"b\x00" + b"\x00" * 4 + HIDDEN),
        packet(12, b"\x01"),
        packet(18, b"\x01" + HIDDEN),
        packet(20, HIDDEN),
        packet(21, b"padding"),
        packet(60, HIDDEN),
        packet(0, HIDDEN),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_a_packet_that_no_key_file_needs_is_refused(more: bytes, first: bool) -> None:
    content = more + WHOLE if first else WHOLE + more
    with pytest.raises(openpgp.KeyFileError):
        openpgp.fingerprints(content)
    with pytest.raises(openpgp.KeyFileError):
        openpgp.fingerprints(armour(content))


@pytest.mark.parametrize("first", [USER, SIGNATURE, packet(14, public(2))])
def test_what_belongs_to_no_key_is_refused(first: bytes) -> None:
    with pytest.raises(openpgp.KeyFileError):
        openpgp.fingerprints(first + WHOLE)


@pytest.mark.parametrize(
    "content",
    [
        armour(WHOLE) + HIDDEN,
        armour(WHOLE) + b"words\n",
        b"words\n" + armour(WHOLE),
        armour(WHOLE)
        + armour(HIDDEN, begin="-----BEGIN PGP MESSAGE-----", end="-----END PGP MESSAGE-----"),
        armour(WHOLE)
        + armour(
            HIDDEN,
            begin="-----BEGIN PGP PRIVATE KEY BLOCK-----",
            end="-----END PGP PRIVATE KEY BLOCK-----",
        ),
        armour(WHOLE) + armour(HIDDEN, begin=BEGIN + " ", end=END),
        armour(WHOLE) + armour(HIDDEN).replace(b"\n\n", b"\n \n", 1),
        armour(HIDDEN, begin=BEGIN.lower()) + armour(WHOLE),
        WHOLE + armour(HIDDEN),
        BEGIN.encode() + b"\nComment: x\n" + armour(WHOLE),
        BEGIN.encode() + b"\n\n" + armour(WHOLE),
    ],
)
def test_what_lies_around_a_block_is_never_the_trusted_key_alone(content: bytes) -> None:
    found: list[str] = []
    with suppress(openpgp.KeyFileError):
        found = openpgp.fingerprints(content)
    assert found != [FINGERPRINT]


def test_a_second_key_is_said_wherever_it_is() -> None:
    assert len(openpgp.fingerprints(WHOLE + HIDDEN)) == 2
    assert len(openpgp.fingerprints(armour(WHOLE) + armour(HIDDEN))) == 2
    assert len(openpgp.fingerprints(armour(WHOLE).rstrip() + b"\n" + armour(HIDDEN, "A: b\n"))) == 2
