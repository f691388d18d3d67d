"""Whether a repository's index was signed by the key that the catalogue names."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.bill.errors import refused
from bedplate.common import programs
from bedplate.portable import openpgp

if TYPE_CHECKING:
    from collections.abc import Mapping

GPGV = "gpgv"
#: The package that has it, by the family of systems as `portable/os_release.py` names them.
PACKAGES = {"Debian": "gpgv", "RedHat": "gnupg2"}
#: How long a signature may take, in seconds.
SECONDS = 60
VALID = "[GNUPG:] VALIDSIG "


def called(packages: Mapping[str, str]) -> str:
    """Return what a package is called where, for a sentence."""
    return f"{packages['Debian']} (Debian, Ubuntu) or {packages['RedHat']} (Red Hat)"


def signed(
    content: bytes, key: bytes, fingerprint: str, where: str, detached: bytes | None = None
) -> bytes:
    """Return what was signed, by the primary key of this fingerprint or a subkey of it.

    Args:
        content: a clearsigned text, or what the *detached* signature is of.
        key: the key file, with armour or without.
        fingerprint: of the primary key, 40 hexadecimal digits.
        where: the index's address, for messages.
        detached: the signature, where it lies apart.

    Raises:
        ResolveError: gpgv is missing, the file has another key, or the signature is not that key's.
    """
    try:
        found = openpgp.fingerprints(key)
        ring = openpgp.binary(key)
    except openpgp.KeyFileError as error:
        raise refused("repository's key cannot be read", where, str(error)) from error
    if fingerprint not in found:
        raise refused(
            "repository has another key",
            where,
            ", ".join(found),
            fingerprint,
            "where a mirror signs again, set bedplate_sources.keys for this host",
        )
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "key").write_bytes(ring)
        (work / "content").write_bytes(content)
        words = [GPGV, "--status-fd", "1", "--keyring", str(work / "key")]
        if detached is None:
            words += ["--output", str(work / "plain"), str(work / "content")]
        else:
            (work / "signature").write_bytes(detached)
            words += [str(work / "signature"), str(work / "content")]
        try:
            done = programs.run(words, SECONDS, check=False)
        except programs.MissingError as error:
            raise refused(
                "signatures cannot be checked",
                "PATH",
                error.got,
                "GnuPG's verifier",
                f"install the package {called(PACKAGES)}, or GnuPG",
            ) from error
        except programs.ProgramError as error:
            raise refused("signature cannot be checked", where, error.got) from error
        valid = [line.split() for line in done.text.splitlines() if line.startswith(VALID)]
        # The last word of the line is the primary key of the key that signed (GnuPG, doc/DETAILS).
        if not any(line[-1] == fingerprint for line in valid):
            got = done.said.removeprefix("gpgv: ") if done.errors.strip() else "no signature"
            raise refused(
                "repository's index is not signed by its key",
                where,
                got,
                f"a signature of {fingerprint}",
                "do not trust this source; a proxy may have changed it",
            )
        return content if detached is not None else (work / "plain").read_bytes()
