"""Keys: those that archives are trusted by, and the site's own, which signs what the mirror has."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.bill.errors import ResolveError, refused
from bedplate.bill.signatures import signed
from bedplate.common import programs
from bedplate.mirror.errors import MirrorError
from bedplate.portable import openpgp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.bill.needs import Repository
    from bedplate.bill.web import Web

#: Where packages of a distribution put the keys of their archives.
KEYRINGS = (Path("/usr/share/keyrings"), Path("/etc/apt/trusted.gpg.d"), Path("/etc/pki/rpm-gpg"))
#: RSA, because rpm of Red Hat's release 8 knows no newer kind.
ALGORITHM = "rsa3072"
SECONDS = 120


def trusted(web: Web, repository: Repository, keyrings: Sequence[Path] = KEYRINGS) -> bytes:
    """Return a repository's key, without armour: this machine's own copy, or the published one.

    The fingerprint is what it is trusted by, wherever it lies.

    Raises:
        ResolveError: nobody has it, or the published file has another.
    """
    for path in sorted(one for folder in keyrings if folder.is_dir() for one in folder.iterdir()):
        try:
            content = path.read_bytes()
            if repository.fingerprint in openpgp.fingerprints(content):
                return openpgp.binary(content)
        except (OSError, openpgp.KeyFileError):
            continue
    content = web.content(repository.key, "repository's key is not found")
    try:
        found = openpgp.fingerprints(content)
    except openpgp.KeyFileError as error:
        found = [str(error)]
    if repository.fingerprint not in found:
        raise refused(
            "repository has another key",
            repository.key,
            ", ".join(found),
            repository.fingerprint,
            "do not trust this source, unless its owner announced a new key",
        )
    return openpgp.binary(content)


def home() -> Path:
    """Return the folder of the private keys that sign packages: the home of GnuPG."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return Path(os.environ.get("BEDPLATE_KEYS") or data / "bedplate/keys")


@dataclass(frozen=True)
class SigningKey:
    """A key pair whose private half lies in a GnuPG home outside site and mirror."""

    home: Path
    fingerprint: str

    @classmethod
    def made(cls, home: Path, name: str) -> SigningKey:
        """Make a key without a passphrase, and return it.

        Raises:
            MirrorError: GnuPG is missing or refuses.
        """
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # `--yes`: another site of the same name may have its key here too.
        words = ["--yes", "--passphrase", "", "--status-fd", "1", "--quick-generate-key"]
        said = _gpg(home, *words, f"Bedplate packages of {name}", ALGORITHM, "sign", "never")
        made = [line.split() for line in said.decode().splitlines() if " KEY_CREATED " in line]
        return cls(home, made[0][3])

    @classmethod
    def kept(cls, home: Path, fingerprint: str, place: Path) -> SigningKey:
        """Return the key of a fingerprint.

        Raises:
            MirrorError: its private half is not there.
        """
        if home.is_dir():
            listed = _gpg(home, "--with-colons", "--list-secret-keys").decode()
            if any(fingerprint in line for line in listed.splitlines() if line.startswith("fpr")):
                return cls(home, fingerprint)
            cls(home, fingerprint).close()
        raise MirrorError(
            "the key that signs the site's packages is not on this machine",
            str(place),
            f"no private key {fingerprint} in {home}",
            "the key that hosts of this site trust",
            "bring it from the machine that filled the mirror before (gpg --homedir … "
            f"--export-secret-keys, then --import), or remove {place} to have a new key made, "
            "which hosts trust after the next run of the playbook bedplate.gpu.site",
        )

    def public(self) -> str:
        """Return the public half, with armour."""
        return _gpg(self.home, "--armor", "--export", self.fingerprint).decode()

    def clearsigned(self, text: bytes) -> bytes:
        """Return a text with its signature around it, as apt wants its index."""
        return self._sign("--clearsign", text)

    def detached(self, content: bytes) -> bytes:
        """Return a signature of its own, with armour, as dnf wants its index's."""
        return self._sign("--detach-sign", content)

    def has_signed(self, text: bytes, detached: bytes | None = None) -> bool:
        """Say whether this key has signed a text, unchanged: around it, or *detached*."""
        try:
            signed(text, self.public().encode(), self.fingerprint, str(self.home), detached)
        except ResolveError:
            return False
        return True

    def _sign(self, how: str, content: bytes) -> bytes:
        words = ["--digest-algo", "SHA512", "--local-user", self.fingerprint, "--armor", how]
        return _gpg(self.home, *words, given=content)

    def close(self) -> None:
        """End the agent that GnuPG started for this home."""
        with suppress(programs.ProgramError):
            programs.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], SECONDS)


def _gpg(home: Path, *words: str, given: bytes = b"") -> bytes:
    command = ["gpg", "--batch", "--quiet", "--homedir", str(home), *words]
    try:
        return programs.run(command, SECONDS, given=given).content
    except programs.MissingError as error:
        raise MirrorError(
            "packages cannot be signed",
            "PATH",
            error.got,
            "GnuPG",
            "install the package gnupg (Debian, Ubuntu) or gnupg2 (Red Hat)",
        ) from error
    except programs.ProgramError as error:
        raise MirrorError(
            "GnuPG refuses",
            str(home),
            error.got,
            "a key and a signature",
            f"try: gpg --homedir {home} --list-secret-keys",
        ) from error
