"""Whether a repository's index was signed by the key that the catalogue names."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from bedplate.bill.errors import refused
from bedplate.portable.packages import openpgp

GPGV = "gpgv"
VALID = "[GNUPG:] VALIDSIG "


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
    program = shutil.which(GPGV)
    if program is None:
        raise refused(
            "signatures cannot be checked",
            "PATH",
            f"no {GPGV}",
            "GnuPG's verifier",
            "install the package gpgv (Debian, Ubuntu) or gnupg2 (Red Hat), or GnuPG",
        )
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
        words = [program, "--status-fd", "1", "--keyring", str(work / "key")]
        if detached is None:
            words += ["--output", str(work / "plain"), str(work / "content")]
        else:
            (work / "signature").write_bytes(detached)
            words += [str(work / "signature"), str(work / "content")]
        try:
            # Names of keys are whatever their owners wrote.
            done = subprocess.run(
                words,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=60,
            )
        except subprocess.TimeoutExpired as error:
            got = f"no answer of {GPGV} within {error.timeout:.0f} s"
            raise refused("signature cannot be checked", where, got) from error
        valid = [line.split() for line in done.stdout.splitlines() if line.startswith(VALID)]
        # The last word of the line is the primary key of the key that signed (GnuPG, doc/DETAILS).
        if not any(line[-1] == fingerprint for line in valid):
            said = [line for line in done.stderr.splitlines() if line.strip()]
            got = said[-1].removeprefix("gpgv: ") if said else "no signature"
            raise refused(
                "repository's index is not signed by its key",
                where,
                got,
                f"a signature of {fingerprint}",
                "do not trust this source; a proxy may have changed it",
            )
        return content if detached is not None else (work / "plain").read_bytes()
