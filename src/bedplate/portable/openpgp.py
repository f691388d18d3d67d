"""OpenPGP public keys: what is in a file of them, by fingerprint (RFC 4880), without GnuPG.

A host that is to trust a repository need not have GnuPG, and a key's fingerprint stays the same
however its file is written.
"""

import base64
import binascii
import hashlib
import re
from typing import Iterator, List, Tuple

from .host import Host

_BEGIN, _END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*:( .*)?")
_CHECKSUM = re.compile(r"=[A-Za-z0-9+/]{4}")
_PUBLIC_KEY = 6
#: All that a file of public keys is made of: signature, key, user, subkey, attribute of a user
#: (RFC 4880, 4.3 and 11.1). Others may hold more keys, as compressed data do.
_ALLOWED = (2, _PUBLIC_KEY, 13, 14, 17)
_CRC_START, _CRC_POLYNOMIAL, _CRC_MASK = 0xB704CE, 0x1864CFB, 0xFFFFFF
_LINE = 64


class KeyFileError(ValueError):
    """A file that holds no public keys."""


def packets(content: bytes) -> Iterator[Tuple[int, bytes]]:
    """The packets of a binary key file, as tag and body. Raises KeyFileError for a torn one."""
    at = 0
    while at < len(content):
        header = content[at]
        if not header & 0x80:
            raise KeyFileError("no OpenPGP packet")
        if header & 0x40:
            tag, (size, start) = header & 0x3F, _new_length(content, at + 1)
        else:
            tag, octets = (header >> 2) & 0x0F, 1 << (header & 3)
            if octets > 4:
                raise KeyFileError("a packet without a length")
            size, start = int.from_bytes(content[at + 1 : at + 1 + octets], "big"), at + 1 + octets
        if start + size > len(content):
            raise KeyFileError("a packet that ends early")
        yield tag, content[start : start + size]
        at = start + size


def _new_length(content: bytes, at: int) -> Tuple[int, int]:
    first = content[at] if at < len(content) else 0
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + (
            content[at + 1] if at + 1 < len(content) else 0
        ) + 192, at + 2
    if first < 255:
        raise KeyFileError("a packet in parts")
    return int.from_bytes(content[at + 1 : at + 5], "big"), at + 5


def binary(content: bytes) -> bytes:
    """A key file without its armour. Raises KeyFileError where there is neither.

    With armour, nothing but blocks of public keys may be in it: GnuPG would take others too.
    """
    if not content.lstrip().startswith(b"-----BEGIN"):
        return content
    try:
        lines = [line.rstrip(" \t\r") for line in content.decode("ascii").split("\n")]
        return b"".join(base64.b64decode(block, validate=True) for block in _blocks(lines))
    except (binascii.Error, ValueError) as error:
        if isinstance(error, KeyFileError):
            raise
        raise KeyFileError("an armour that cannot be decoded") from None


def _blocks(lines: List[str]) -> Iterator[str]:
    """What blocks of public keys hold, in Base64; their checksums are left out."""
    left = iter(lines)
    for line in left:
        if line != _BEGIN:
            if line.strip():
                raise KeyFileError("something other than blocks of public keys")
            continue
        for header in left:
            if not header.strip():
                break
            if not _HEADER.fullmatch(header):
                raise KeyFileError("an armour without an empty line after its headers")
        block: List[str] = []
        for part in left:
            if part == _END:
                break
            block.append(part)
        else:
            raise KeyFileError("a block of public keys without an end")
        if block and _CHECKSUM.fullmatch(block[-1]):
            block.pop()
        yield "".join(block)


def armoured(content: bytes) -> str:
    """A binary key file with armour, as rpm wants it."""
    crc = _CRC_START
    for octet in content:
        crc ^= octet << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= _CRC_POLYNOMIAL
    text = base64.b64encode(content).decode()
    lines = [text[n : n + _LINE] for n in range(0, len(text), _LINE)]
    check = base64.b64encode((crc & _CRC_MASK).to_bytes(3, "big")).decode()
    return "\n".join([_BEGIN, "", *lines, "=" + check, _END]) + "\n"


def fingerprints(content: bytes) -> List[str]:
    """The fingerprints of the primary keys in a key file, in upper-case hexadecimal.

    Raises:
        KeyFileError: there is none, one of another version than 4, or something else too: what a
            package manager would make of that is not known.
    """
    found: List[str] = []
    for tag, body in packets(binary(content)):
        if tag not in _ALLOWED or (tag != _PUBLIC_KEY and not found):
            raise KeyFileError(f"an OpenPGP packet of kind {tag}, which belongs to no public key")
        if tag != _PUBLIC_KEY:
            continue
        found.append(_fingerprint(body))
    if not found:
        raise KeyFileError("no public key")
    return found


def _fingerprint(body: bytes) -> str:
    if not body or body[0] != 4:
        raise KeyFileError("a key of another version than 4")
    framed = b"\x99" + len(body).to_bytes(2, "big") + body
    return hashlib.sha1(framed).hexdigest().upper()  # noqa: S324 RFC 4880, 12.2


def only(content: bytes, fingerprint: str) -> bytes:
    """The one key of a fingerprint, without the others of its file and without armour.

    Raises:
        KeyFileError: it is not in the file, or something else than keys is.
    """
    if fingerprint not in fingerprints(content):
        raise KeyFileError("another key")
    kept, mine = b"", False
    for tag, body in packets(binary(content)):
        mine = _fingerprint(body) == fingerprint if tag == _PUBLIC_KEY else mine
        if mine:
            kept += bytes((0xC0 | tag, 0xFF)) + len(body).to_bytes(4, "big") + body
    return kept


def fingerprints_in(host: Host, name: str) -> List[str]:
    """The same of a host's file; empty where it holds no keys."""
    try:
        with open(host.path(name), "rb") as stream:
            return fingerprints(stream.read())
    except (OSError, KeyFileError):
        return []
