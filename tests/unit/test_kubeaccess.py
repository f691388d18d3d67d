"""Kubeconfigs as kubectl has them: keys inside or in files, tokens, plugins; what is refused."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.pods.kubeaccess import AccessError, access_of, default_path

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    """Write a kubeconfig with one context and return its path."""
    found = {
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "other", "context": {"cluster": "c", "user": "nobody"}},
            {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "vision"}},
        ],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(found))
    return path


def data(text: str) -> str:
    """Return a text as a kubeconfig embeds it."""
    return base64.b64encode(text.encode()).decode()


def test_what_is_embedded_lies_in_files_meanwhile(tmp_path: Path) -> None:
    user = {"client-certificate-data": data("crt"), "client-key-data": data("key")}
    path = written(tmp_path, user, **{"certificate-authority-data": data("ca")})
    with access_of(path) as entry:
        access = entry.access
        assert (access.server, entry.namespace) == ("https://api:6443", "vision")
        files = [access.ca, access.certificate, access.key]
        assert [file.read_text() for file in files if file] == ["ca", "crt", "key"]
        assert {file.stat().st_mode & 0o077 for file in files if file} == {0}
    assert not any(file.exists() for file in files if file)


def test_files_are_named_from_the_kubeconfigs_folder(tmp_path: Path) -> None:
    user = {"client-certificate": "my.crt", "client-key": "/etc/my.key", "tokenFile": "token"}
    with access_of(written(tmp_path, user, **{"certificate-authority": "ca.crt"})) as entry:
        found = entry.access
        assert (found.ca, found.certificate) == (tmp_path / "ca.crt", tmp_path / "my.crt")
        assert (str(found.key), found.token) == ("/etc/my.key", tmp_path / "token")


def test_tokens_of_the_kubeconfig_and_of_a_plugin(tmp_path: Path) -> None:
    with access_of(written(tmp_path, {"token": "secret"})) as entry:
        assert entry.access.token is not None
        assert entry.access.token.read_text() == "secret"
    says = (
        "import json, os; asked = json.loads(os.environ['KUBERNETES_EXEC_INFO']); "
        "print(json.dumps({**asked, 'status': {'token': os.environ['WHO']}}))"
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", says],
        "env": [{"name": "WHO", "value": "alice"}],
    }
    with access_of(written(tmp_path, {"exec": plugin})) as entry:
        assert entry.access.token is not None
        assert entry.access.token.read_text() == "alice"


@pytest.mark.parametrize(
    ("user", "cluster", "got"),
    [
        ({}, {"insecure-skip-tls-verify": True}, "no server whose certificate is checked"),
        ({"client-key-data": "?"}, {}, "client-key-data is no base64"),
        ({"exec": {"command": "/no/such/plugin"}}, {}, "/no/such/plugin: No such file"),
        ({"exec": {"command": "false"}}, {}, "false: exit status 1 "),
        ({"exec": {"command": "true"}}, {}, "true: no ExecCredential with a status "),
        ({"exec": {}}, {}, "exec of another structure "),
        ({"exec": "x"}, {}, "exec of another structure "),
        ({"exec": {"command": "true", "env": [7]}}, {}, "exec of another structure "),
        ({"token": "a\nb"}, {}, "a token of several lines, or not of ASCII "),
        ({"token": "\u00fc"}, {}, "a token of several lines, or not of ASCII "),
        ("hunter2SECRET", {}, "another structure "),
        ({}, {"server": "https://h:99999"}, "server https://h:99999 "),
        ({}, {"server": "https://h:0"}, "server https://h:0 "),
        ({}, {"server": "https://[::1"}, "server https://[::1 "),
        ({}, {"server": ""}, "server  "),
        ({}, {"server": "h:6443"}, "server h:6443 "),
        ({}, {"server": "https://u:hunter2SECRET@h:99999"}, "server https://…@h:99999 "),
        (
            {"exec": {"command": "false", "args": ["--password", "hunter2SECRET"]}},
            {},
            "false: exit status 1 ",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], got: str
) -> None:
    path = written(tmp_path, user, **cluster)
    with pytest.raises(AccessError) as refused, access_of(path):
        pass
    assert f"kubeconfig cannot be used — {path} — got {got}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (None, "No such file or directory"),
        ("a: [", "no YAML"),
        ("just text", "another structure"),
        (json.dumps({"contexts": [], "clusters": [], "users": []}), "no 'current-context'"),
    ],
)
def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str | None, got: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AccessError, match=got), access_of(path):
        pass


def test_the_path_is_kubectls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert default_path() == tmp_path / "a"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".kube" / "config"
