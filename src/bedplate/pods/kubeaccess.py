"""A kubeconfig, read as kubectl reads it, for calls to the API without kubectl."""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
import urllib.parse
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.common import programs
from bedplate.common.errors import BedplateError, Problem
from bedplate.common.reading import content
from bedplate.common.reading_yaml import parsed
from bedplate.pods.api import Access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PATIENCE = 60.0


class AccessError(BedplateError):
    """A kubeconfig that is missing or not usable, or an API that does not answer."""


@dataclass(frozen=True)
class Entry:
    """A context of a kubeconfig, ready for use."""

    access: Access
    namespace: str | None


def default_path() -> Path:
    """Return where kubectl looks first."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(named) if named else Path.home() / ".kube" / "config"


@contextmanager
def access_of(path: Path, *, named: bool = False) -> Iterator[Entry]:
    """Yield the present context of a kubeconfig; keys that are in it lie in files meanwhile.

    One that the user has *named* may be a pipe, as a shell makes one of a command's output.

    Raises:
        AccessError: it is missing, not a kubeconfig, or of a form that is not read here.
    """
    context, cluster, user = _parts(path, path.read_bytes if named else lambda: content(path))
    if "server" not in cluster or cluster.get("insecure-skip-tls-verify"):
        raise _problem(path, "no server whose certificate is checked", "a server with its CA")
    _check_server(path, str(cluster["server"]))
    with tempfile.TemporaryDirectory(prefix="bedplate-access-") as folder:
        files = _Files(path, Path(folder))
        token = files.of(user, "tokenFile")
        if "token" in user:
            token = files.write("token", _token(path, user["token"]))
        certificate = files.of(user, "client-certificate", "client-certificate-data")
        key = files.of(user, "client-key", "client-key-data")
        if "exec" in user:
            made = _from_plugin(path, user["exec"])
            if made.get("token"):
                token = files.write("token", _token(path, made["token"]))
            if made.get("clientCertificateData"):
                certificate = files.write("crt", str(made["clientCertificateData"]).encode())
                key = files.write("key", str(made.get("clientKeyData", "")).encode())
        ca = files.of(cluster, "certificate-authority", "certificate-authority-data")
        yield Entry(
            Access(str(cluster["server"]), ca, token, certificate, key), context.get("namespace")
        )


def _parts(
    path: Path, read: Callable[[], bytes]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    try:
        found = parsed(read().decode())
        contexts = {one["name"]: one["context"] for one in found["contexts"]}
        clusters = {one["name"]: one["cluster"] for one in found["clusters"]}
        users = {one["name"]: one["user"] or {} for one in found["users"]}
        context = contexts[found["current-context"]]
        # What is no mapping cannot be unpacked as one.
        return {**context}, {**clusters[context["cluster"]]}, {**users[context["user"]]}
    except OSError as error:
        raise _problem(path, str(error.strerror), "a file that can be read") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _problem(path, "no YAML", "a kubeconfig") from error
    except (KeyError, TypeError) as error:
        got = f"no {error}" if isinstance(error, KeyError) else "another structure"
        raise _problem(path, got, "a kubeconfig with a present context") from error


def _check_server(path: Path, server: str) -> None:
    try:
        address = urllib.parse.urlsplit(server)
        if address.hostname and address.port != 0 and address.scheme in ("http", "https"):
            return
    except ValueError:
        pass
    raise _problem(path, f"server {server}", "https://HOST:PORT")


def _token(path: Path, token: object) -> bytes:
    """Return a token as it stands in a header; one that cannot is not shown."""
    text = str(token).strip()
    if not (text.isascii() and text.isprintable()):
        raise _problem(path, "a token of several lines, or not of ASCII", "one line of ASCII")
    return text.encode()


def _problem(path: Path, got: str, allowed: str) -> AccessError:
    fix = "name another with --kubeconfig or KUBECONFIG, or bring the cluster up first"
    return AccessError(
        [Problem("kubeconfig cannot be used", str(path), got=got, allowed=allowed, fix=fix)]
    )


@dataclass(frozen=True)
class _Files:
    """Files that a kubeconfig names, relative to it, or whose content it has."""

    kubeconfig: Path
    folder: Path

    def of(self, entry: Mapping[str, Any], named: str, inline: str = "") -> Path | None:
        if inline and inline in entry:
            try:
                return self.write(inline, base64.b64decode(entry[inline], validate=True))
            except (binascii.Error, TypeError, ValueError) as error:
                raise _problem(self.kubeconfig, f"{inline} is no base64", "base64") from error
        if named not in entry:
            return None
        return self.kubeconfig.parent / str(entry[named])

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path


def _from_plugin(path: Path, plugin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the credentials that a plugin of the kubeconfig prints."""
    allowed = "a plugin that prints credentials"
    try:
        version = str(plugin.get("apiVersion", "client.authentication.k8s.io/v1"))
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        more = {str(one["name"]): str(one["value"]) for one in plugin.get("env") or []}
        command = [str(plugin["command"]), *map(str, plugin.get("args") or [])]
    except (AttributeError, KeyError, TypeError) as error:
        raise _problem(path, "exec of another structure", "a command with its arguments") from error
    try:
        own = {**more, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        # What it says is for the user who signs in; what it prints is a secret, never shown.
        done = programs.run(command, PATIENCE, own=own, shown="errors", check=False)
    except programs.ProgramError as error:
        raise _problem(path, error.got, allowed) from error
    if done.status:
        raise _problem(path, f"{command[0]}: exit status {done.status}", allowed)
    try:
        return dict(json.loads(done.content)["status"])
    except (ValueError, KeyError, TypeError) as error:
        got = f"{command[0]}: no ExecCredential with a status"
        raise _problem(path, got, allowed) from error
