"""How each of the vendors' hosts answers a request: files, redirects, registries and tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.parse
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue import load_catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.substrate.internet.tree import Tree

LAYOUT = Path(__file__).parent / "vendors.yml"
FILE = "application/octet-stream"
ADDRESS = re.compile(r"https?://([^/\"\s]+)")


@dataclass(frozen=True)
class Answer:
    """A status, headers, and the content: bytes, or a file that is read when it is sent."""

    status: int
    content: bytes | Path = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Internet:
    """All vendors' hosts over one tree."""

    tree: Tree

    def names(self) -> set[str]:
        """Return every host name that leads here: the catalogue's, the tree's, the layouts'."""
        found = (catalogued() | self.tree.hosts()) - set(_registries())
        found |= {_layout()["releases"]["host"], _layout()["releases"]["to"]}
        for name, registry in _registries().items():
            found.add(registry.get("host", name))
            parts = [registry[part] for part in ("manifests", "blobs") if part in registry]
            found |= {part["host"] for part in parts}
            if "token" in registry:
                found.add(_host(registry["token"]["realm"]))
        return found

    def answer(self, host: str, target: str, headers: Mapping[str, str]) -> Answer:
        """Answer a request for a path with its query at one of the hosts."""
        path, _, query = target.partition("?")
        path = urllib.parse.unquote(path)
        releases = _layout()["releases"]
        if host == releases["to"]:
            found = self.tree.file(releases["host"], path)
            return _file(found) if query else Answer(403)
        if host == releases["host"] and "/releases/download/" in path:
            if self.tree.file(host, path) is None:
                return Answer(404)
            return _to(f"https://{releases['to']}{path}?sp=r", 302)
        for name, registry in _registries().items():
            answer = self._registry(name, registry, host, path, query, headers)
            if answer:
                return answer
        if path.startswith("/v2/") and host in self.tree.registries():
            return self._image(host, path)
        return _file(self.tree.file(host, path))

    def mirrored(self, path: str) -> Answer:
        """Answer as a mirror does: hosts' files below /files/, their images below /v2/."""
        path = urllib.parse.unquote(path)
        if path.startswith("/v2/"):
            name, _, rest = path.removeprefix("/v2/").partition("/")
            return self._image(name, f"/v2/{rest}")
        host, _, rest = path.removeprefix("/files/").partition("/")
        return _file(self.tree.file(host, rest)) if path.startswith("/files/") else Answer(404)

    def _registry(
        self,
        name: str,
        registry: Mapping[str, Any],
        host: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
    ) -> Answer | None:
        token = registry.get("token")
        if token and f"https://{host}{path}" == token["realm"]:
            return _token(token, query)
        manifests, blobs = registry.get("manifests"), registry.get("blobs")
        if manifests and host == manifests["host"] and path.startswith(manifests["path"]):
            return self._image(name, f"/v2/{path.removeprefix(manifests['path'])}")
        if blobs and host == blobs["host"] and path.startswith(blobs["path"]):
            # An object store refuses a request that is signed in two ways.
            if ("Authorization" in headers and "bears_token" not in blobs) or not query:
                return Answer(400)
            return _file(self.tree.blob(path.removeprefix(blobs["path"])))
        if host != registry.get("host", name) or not path.startswith("/v2/"):
            return None
        if token and not _allowed(token, path, headers):
            return _challenge(token, path)
        answer = self._image(name, path)
        if answer.status != 200:
            return answer
        last = path.rpartition("/")[2]
        if blobs and "/blobs/" in path:
            return _to(f"https://{blobs['host']}{blobs['path']}{last}?signed=1", 307)
        if manifests and "/manifests/" in path:
            rest = path.removeprefix("/v2/")
            return _to(f"https://{manifests['host']}{manifests['path']}{rest}", 307)
        return answer

    def _image(self, name: str, path: str) -> Answer:
        if path == "/v2/":
            return Answer(200, b"{}", {"Content-Type": "application/json"})
        for kind in ("manifests", "blobs"):
            repository, found, reference = path.removeprefix("/v2/").rpartition(f"/{kind}/")
            if not found or "/" in reference or ".." in repository:
                continue
            if kind == "blobs":
                return _file(self.tree.blob(reference))
            manifest = self.tree.manifest(f"{name}/{repository}", reference)
            if manifest is None:
                break
            text = manifest.read_bytes()
            content = json.loads(text).get("mediaType", FILE)
            digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
            return Answer(200, text, {"Content-Type": content, "Docker-Content-Digest": digest})
        error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
        return Answer(404, json.dumps(error).encode(), {"Content-Type": "application/json"})


def catalogued() -> set[str]:
    """Return the hosts of all addresses that the catalogue has for files and distributions."""
    catalogue = load_catalogue()
    facts = [*catalogue.artifacts.values(), *catalogue.distribution_archives.values()]
    texts = [fact.value.model_dump_json() for fact in facts]
    texts += [fact.value.chart or "" for fact in catalogue.addons.values()]
    return {host for text in texts for host in ADDRESS.findall(text)}


@cache
def _layout() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(LAYOUT.read_text())
    return loaded


def _registries() -> dict[str, dict[str, Any]]:
    return _layout()["registries"]


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).hostname or ""


def _file(path: Path | None) -> Answer:
    return Answer(404) if path is None else Answer(200, path, {"Content-Type": FILE})


def _to(location: str, status: int) -> Answer:
    return Answer(status, b"", {"Location": location})


def _scope(path: str) -> str:
    """Return what a token for an image's path must allow; empty for /v2/ itself."""
    for kind in ("/manifests/", "/blobs/", "/tags/"):
        repository, found, _ = path.removeprefix("/v2/").partition(kind)
        if found:
            return f"repository:{repository}:pull"
    return ""


def _challenge(token: Mapping[str, str], path: str) -> Answer:
    fields = {"realm": token["realm"], "service": token["service"], "scope": _scope(path)}
    written = ",".join(f'{key}="{value}"' for key, value in fields.items() if value)
    error = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
    return Answer(401, json.dumps(error).encode(), {"WWW-Authenticate": f"Bearer {written}"})


def _token(token: Mapping[str, str], query: str) -> Answer:
    asked = dict(urllib.parse.parse_qsl(query))
    if asked.get("service", "") != token["service"]:
        return Answer(400)
    body = {token["field"]: _secret(token, asked.get("scope", "")), "expires_in": 300}
    return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _allowed(token: Mapping[str, str], path: str, headers: Mapping[str, str]) -> bool:
    return headers.get("Authorization", "") == f"Bearer {_secret(token, _scope(path))}"


def _secret(token: Mapping[str, str], scope: str) -> str:
    """Return the token for a scope: good for no other registry and no other image."""
    return base64.urlsafe_b64encode(f"{token['realm']} {scope}".encode()).decode()
