"""Secure Boot: what the firmware enforces, and the key that signs the modules that DKMS builds.

The owner's keys are read as the UEFI specification (signature lists) and shim (MokListRT, which it
mirrors for the running system) lay them out.
"""

import os
import re
import shutil
import struct
import tempfile
from typing import Dict, List, NamedTuple, Optional, Sequence

from ..discovery import hardware as discovery_hardware
from ..host import Host, make_folders

OFF = "off"
ON = "on"
#: Where distributions' DKMS looks for its pair by itself: Ubuntu's through shim, all others' own.
PAIRS = (
    ("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"),
    ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub"),
)
CONFIGURATION = "/etc/dkms/framework.conf"
DROP_INS = CONFIGURATION + ".d"
DROP_IN = DROP_INS + "/bedplate.conf"
#: The kernel's copy is whole; the variable may be split where firmware has little room.
OWNER_KEYS = (
    ("/sys/firmware/efi/mok-variables/MokListRT", 0),
    ("/sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23", 4),
)
X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
_LIST = struct.Struct("<16sIII")
_OWNER = 16
_SUBJECT = "Module signing key of "
#: What a certificate's common name may have of letters (RFC 5280, ub-common-name).
_COMMON_NAME = 64
#: openssl's -subj takes some signs for its own.
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_SETTING = re.compile(r"^\s*(mok_signing_key|mok_certificate)=[\"']?([^\"'\s#]+)", re.MULTILINE)


class Pair(NamedTuple):
    """A private key and its certificate (DER); ``foreign`` where the user's own file names them."""

    key: str
    certificate: str
    foreign: bool = False

    def present(self, host: Host) -> bool:
        """Whether both are there: one without the other signs nothing."""
        return host.exists(self.key) and host.exists(self.certificate)


def state(host: Host) -> str:
    """``on``, ``off`` (in firmware, or started without UEFI), or why it cannot be told."""
    found = discovery_hardware.secure_boot(host)
    if found["state"] == "enabled":
        return ON
    return OFF if found["state"] in ("disabled", "unsupported") else str(found["reason"])


def pair(host: Host) -> Pair:
    """The pair that DKMS is to sign with: the user's, ours as long as it is there, any that is.

    A pair that appears beside ours later does not count: it is ours that somebody has enrolled.
    """
    named = _named(host, [name for name in _configurations(host) if name != DROP_IN])
    if len(named) == 2:
        return Pair(named["mok_signing_key"], named["mok_certificate"], True)
    ours = _named(host, [DROP_IN])
    pairs = [Pair(*paths) for paths in PAIRS]
    if len(ours) == 2:
        pairs.insert(0, Pair(ours["mok_signing_key"], ours["mok_certificate"]))
    there = [one for one in pairs if one.present(host)]
    return there[0] if there else Pair(*PAIRS[-1])


def overruled(host: Host, wanted: Pair) -> bool:
    """Whether our drop-in, which DKMS reads after the user's file, names another pair than it."""
    found = _named(host, _configurations(host))
    names = (found.get("mok_signing_key"), found.get("mok_certificate"))
    return wanted.foreign and names != (wanted.key, wanted.certificate)


def _configurations(host: Host) -> List[str]:
    """DKMS's files in its order."""
    names = [name for name in host.list(DROP_INS) if name.endswith(".conf")]
    return [CONFIGURATION] + [f"{DROP_INS}/{name}" for name in names]


def _named(host: Host, names: Sequence[str]) -> Dict[str, str]:
    """The paths that files set; the last one that names a path wins."""
    found: Dict[str, str] = {}
    for name in names:
        found.update(_SETTING.findall(host.read(name) or ""))
    return found


def drop_in(wanted: Pair) -> str:
    """The text that points DKMS at a pair."""
    return (
        "# Managed by Bedplate (role host_baseline): changes here are lost.\n"
        f'mok_signing_key="{wanted.key}"\nmok_certificate="{wanted.certificate}"\n'
    )


def make(host: Host, wanted: Pair, name: str) -> Optional[str]:
    """Make a pair whose certificate names the host; the reason where that fails.

    Both files are made beside the key's place, in a folder for root only, and the key comes last:
    a run that is killed in between leaves no pair, and the next one makes it anew. A long name is
    cut: it only helps a person to tell keys apart.
    """
    subject = (_SUBJECT + _NO_NAME.sub("_", name))[:_COMMON_NAME]
    for path in (wanted.key, wanted.certificate):
        make_folders(os.path.dirname(host.path(path)))
    work = tempfile.mkdtemp(prefix=".bedplate-", dir=os.path.dirname(host.path(wanted.key)))
    key, certificate = os.path.join(work, "key"), os.path.join(work, "certificate")
    argv = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256"]
    argv += ["-days", "36500", "-subj", f"/CN={subject}/"]
    argv += ["-addext", "extendedKeyUsage=codeSigning,1.3.6.1.4.1.2312.16.1.2"]
    argv += ["-keyout", key, "-outform", "DER", "-out", certificate]
    try:
        answer = host.run(argv, timeout=300)
        if answer.code != 0:
            return answer.said
        os.chmod(key, 0o600)
        os.chmod(certificate, 0o644)
        if host.exists(wanted.key):
            host.remove(wanted.key)
        os.replace(certificate, host.path(wanted.certificate))
        os.replace(key, host.path(wanted.key))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return None


def certificates(signatures: bytes) -> List[bytes]:
    """The X.509 certificates (DER) of a chain of EFI signature lists; a torn list ends it."""
    found, at = [], 0
    while at + _LIST.size <= len(signatures):
        kind, size, header, each = _LIST.unpack_from(signatures, at)
        end = at + size
        if size < _LIST.size or each <= _OWNER or end > len(signatures):
            break
        start = at + _LIST.size + header
        if kind == X509:
            found += [signatures[n + _OWNER : n + each] for n in range(start, end - each + 1, each)]
        at = end
    return found


def enrolled(host: Host, certificate: str) -> Optional[bool]:
    """Whether the machine's owner has enrolled a certificate; None where it cannot be told."""
    answer = host.run(["mokutil", "--test-key", host.path(certificate)])
    said = answer.out + answer.err
    if "already enrolled" in said:
        return True
    if "not enrolled" in said or "enrollment request" in said:
        return False
    mine = _bytes(host, certificate)
    for path, attributes in OWNER_KEYS:
        keys = _bytes(host, path)
        if mine and keys:
            return mine in certificates(keys[attributes:])
    return None


def how_to_enrol(certificate: str) -> str:
    """What only the machine's owner can do, at its console."""
    return (
        f"Run 'mokutil --import {certificate}' on the host, choose a password, reboot, and confirm"
        " 'Enroll MOK' with that password at the host's console."
    )


def _bytes(host: Host, name: str) -> bytes:
    try:
        with open(host.path(name), "rb") as stream:
            return stream.read()
    except OSError:
        return b""
