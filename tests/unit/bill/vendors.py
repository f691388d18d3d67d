"""What a site's lock needs, put into a stand-in for the internet with contents made of names."""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import TYPE_CHECKING

from bedplate.bill import needs_of
from bedplate.catalogue import load_catalogue

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock
    from tests.substrate.internet.tree import Tree

FLANNEL = "ghcr.io/flannel-io/flannel:v0.28.4"


class Key:
    """An OpenPGP key of a test's own."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        self._gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--no-tty"]
        name = "Test <test@example.com>"
        self._run("--passphrase", "", "--quick-gen-key", name, "rsa2048", "sign", "never")
        listed = self._run("--list-keys", "--with-colons").decode()
        self.fingerprint = next(
            line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr")
        )
        self.public = self._run("--armor", "--export", self.fingerprint)

    def _run(self, *words: str, given: bytes = b"") -> bytes:
        done = subprocess.run([*self._gpg, *words], input=given, capture_output=True, check=True)
        return done.stdout

    def clearsigned(self, text: str) -> bytes:
        """Return a text with its signature around it."""
        return self._run("--clearsign", given=text.encode())

    def detached(self, content: bytes) -> bytes:
        """Return a signature by itself."""
        return self._run("--armor", "--detach-sign", given=content)


def put_repository(tree: Tree, index: str, key: Key, packages: list[dict[str, str]]) -> None:
    """Put a signed apt repository without suites."""
    text = "\n\n".join(
        "\n".join(f"{name}: {value}" for name, value in one.items()) for one in packages
    )
    body = (text + "\n").encode()
    release = (
        "Origin: test\nMD5Sum:\n 0 0 Packages\nSHA256:\n "
        f"{hashlib.sha256(body).hexdigest()} {len(body)} Packages\n"
    )
    tree.put(f"{index}InRelease", key.clearsigned(release))
    tree.put(f"{index}Packages", body)


def put(tree: Tree, lock: Lock, key: Key) -> None:
    """Put everything that a lock needs."""
    needs = needs_of(lock, load_catalogue())
    packages: list[dict[str, str]] = []
    for name, needed in needs.files.items():
        fact = needed.artifact
        content = f"{name} {needed.version}\n".encode()
        if fact.names_images:
            content = f"spec:\n  containers:\n    - image: {FLANNEL}\n".encode()
            tree.image(FLANNEL)
        if (package := fact.package) is not None:
            tree.put(package.key, key.public)
            version = needed.filled(package.version)
            packages.append(
                {
                    "Package": package.name,
                    "Version": version,
                    "Filename": f"./{package.name}_{version}_amd64.deb",
                    "Size": str(len(content)),
                    "SHA256": hashlib.sha256(content).hexdigest(),
                }
            )
            put_repository(tree, package.index, key, packages)
            continue
        url = needed.filled(fact.url or "")
        sha256 = tree.put(url, content)
        if fact.checksum_file is not None:
            line = f"{sha256}  {url.rpartition('/')[2]}\n".encode()
            tree.put(needed.filled(fact.checksum_file), line)
        else:
            asset = {"name": url.rpartition("/")[2], "digest": f"sha256:{sha256}", "size": 3}
            tree.put(needed.filled(fact.release or ""), json.dumps({"assets": [asset]}).encode())
    for reference in needs.images:
        tree.image(reference)
