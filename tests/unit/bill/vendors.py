"""A mirror in this process: what a site's lock needs by the vendors' paths, counting requests."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from bedplate.bill import needs_of
from bedplate.bill.places import split
from bedplate.catalogue import load_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.lock import Lock

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
FLANNEL = "ghcr.io/flannel-io/flannel:v0.28.4"
#: The objects of flannel's own manifest that a stack looks into, and no more of them.
MANIFEST_OF_FLANNEL = f"""\
apiVersion: v1
kind: Namespace
metadata: {{name: kube-flannel}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: kube-flannel-cfg, namespace: kube-flannel}}
data: {{net-conf.json: '{{"Network": "10.244.0.0/16", "Backend": {{"Type": "vxlan"}}}}'}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: kube-flannel-ds, namespace: kube-flannel}}
spec:
  selector: {{matchLabels: {{app: flannel}}}}
  template:
    metadata: {{labels: {{app: flannel}}}}
    spec: {{containers: [{{name: kube-flannel, image: "{FLANNEL}"}}]}}
"""


class Server(ThreadingHTTPServer):
    """Answers from `answers` by path. `asked` has every request, `left` how many are served yet."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[str, bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        self.busy: dict[str, int] = {}
        self.left: int | None = None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def serve_file(self, url: str, content: bytes) -> None:
        """Serve a vendor's file."""
        self.answers["/files/" + url.removeprefix("https://")] = "text/plain", content

    def serve_image(self, reference: str, size: int = 7) -> str:
        """Serve an image's index and manifest; return the index's digest."""
        repository, tag = split(reference)
        body = json.dumps(
            {
                "mediaType": MANIFEST,
                "config": {"digest": "sha256:0", "size": 1},
                "layers": [{"digest": f"sha256:{reference}", "size": size}],
            }
        ).encode()
        child = f"sha256:{hashlib.sha256(body).hexdigest()}"
        platforms = [("arm64", "sha256:1"), ("amd64", child)]
        index = json.dumps(
            {
                "mediaType": INDEX,
                "manifests": [
                    {"digest": digest, "platform": {"os": "linux", "architecture": cpu}}
                    for cpu, digest in platforms
                ],
            }
        ).encode()
        digest = f"sha256:{hashlib.sha256(index).hexdigest()}"
        base = f"/v2/{repository}/manifests/"
        self.answers[base + tag] = self.answers[base + digest] = INDEX, index
        self.answers[base + child] = MANIFEST, body
        return digest


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        with self.server.lock:
            if self.server.left is not None:
                if self.server.left <= 0:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.server.left -= 1
            self.server.asked.append((self.command, self.path))
            if self.server.busy.get(self.path, 0) > 0:
                self.server.busy[self.path] -= 1
                self._send(429, "text/plain", b"", body=body)
                return
        kind, content = self.server.answers.get(self.path, ("", b""))
        self._send(200 if kind else 404, kind or "text/plain", content, body=body)

    def _send(self, status: int, kind: str, content: bytes, *, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base has it so
        """Say nothing: `asked` is the log."""


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


def serve_repository(server: Server, index: str, key: Key, packages: list[dict[str, str]]) -> None:
    """Serve a signed apt repository without suites."""
    text = "\n\n".join(
        "\n".join(f"{name}: {value}" for name, value in one.items()) for one in packages
    )
    body = (text + "\n").encode()
    release = (
        "Origin: test\nMD5Sum:\n 0 0 Packages\nSHA256:\n "
        f"{hashlib.sha256(body).hexdigest()} {len(body)} Packages\n"
    )
    server.serve_file(f"{index}InRelease", key.clearsigned(release))
    server.serve_file(f"{index}Packages", body)


def serve(server: Server, lock: Lock, key: Key) -> None:
    """Serve what a lock needs, with contents made of names."""
    needs = needs_of(lock, load_catalogue())
    packages: list[dict[str, str]] = []
    for name, needed in needs.files.items():
        fact = needed.artifact
        content = f"{name} {needed.version}\n".encode()
        if fact.names_images:
            content = MANIFEST_OF_FLANNEL.encode()
            server.serve_image(FLANNEL)
        sha256 = hashlib.sha256(content).hexdigest()
        url = needed.filled(fact.url or "")
        server.serve_file(url, content)
        if fact.checksum_file is not None:
            line = f"{sha256}  {url.rpartition('/')[2]}\n".encode()
            server.serve_file(needed.filled(fact.checksum_file), line)
        elif fact.release is not None:
            asset = {"name": url.rpartition("/")[2], "digest": f"sha256:{sha256}", "size": 3}
            body = json.dumps({"assets": [asset]}).encode()
            server.serve_file(needed.filled(fact.release), body)
        elif (package := fact.package) is not None:
            server.serve_file(package.key, key.public)
            version = needed.filled(package.version)
            packages.append(
                {
                    "Package": package.name,
                    "Version": version,
                    "Filename": f"./{package.name}_{version}_amd64.deb",
                    "Size": str(len(content)),
                    "SHA256": sha256,
                }
            )
            serve_repository(server, package.index, key, packages)
    for reference in needs.images:
        server.serve_image(reference)


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server for as long as the block lasts."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
