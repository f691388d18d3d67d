"""OAuth and LTI: the hub's own configuration, loaded by the real JupyterHub and authenticators.

No platform answers here. Shown is that each setting arrives in the class that uses it, and who of
those that a platform vouches for is let in.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.environments import python
from tests.frameworks.hub import PACKAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
import asyncio, json, sys
from jupyterhub.app import JupyterHub

app = JupyterHub()
app.load_config_file(sys.argv[1])
made = app.authenticator_class(config=app.config)
names = json.loads(sys.argv[2])
told = {name: getattr(made, name) for name in names}

async def admitted(given):
    if type(made).__name__ == "CourseLti":
        model = await made.authenticate(None, given)
    else:
        model = await made.update_auth_model({
            "name": given["name"], "admin": None, "groups": set(given.get("groups", [])),
            "auth_state": {"oauth_user": given},
        })
    return bool(await made.check_allowed(model["name"], model))

who = [asyncio.run(admitted(one)) for one in json.loads(sys.argv[3])]
print(json.dumps([type(made).__name__, told, who], default=sorted))
"""
OAUTH = {
    "client_id": "bedplate",
    "authorize_url": "https://id.example.org/authorize",
    "token_url": "https://id.example.org/token",
    "userdata_url": "https://id.example.org/user",
    "username": "preferred_username",
    "scopes": ["openid", "groups"],
    "url": "https://hub.example.org/",
}
LTI = {
    "client_ids": ["one"],
    "issuer": "https://lms.example.org",
    "authorize_url": "https://lms.example.org/authorize",
    "keys_url": "https://lms.example.org/keys",
    "username": "email",
    "url": "https://hub.example.org",
}


def load(
    folder: Path, sign_in: str, given: dict[str, Any], names: list[str], who: list[Any]
) -> tuple[str, dict[str, Any], list[bool]]:
    """Return the class, its settings, and for each of `who` whether it is let in."""
    settings = {
        "zone": "UTC",
        "sign_in": sign_in,
        "sign_in_settings": given,
        "admins": ["root"],
        "courses": {
            "intro": {
                "limits": {"nvidia.com/gpu": "1"},
                "profiles": [],
                "teachers": ["ada"],
                "members": ["group:students", "bob"],
            }
        },
        "service": {"hub_url": "http://hub:8081", "proxy_api_url": "http://proxy-api:8001"},
    }
    (folder / "hub.json").write_text(json.dumps(settings))
    secrets = folder / "secrets"
    secrets.mkdir()
    for name in ("proxy-token", "cookie-secret", "crypt-key"):
        (secrets / name).write_text("ab" * 32)
    (secrets / "oauth-client-secret").write_text("hush\n")
    config = ROOT / "src/bedplate/pods/hub/jupyterhub_config.py"
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT / "src"),
        "BEDPLATE_HUB": str(folder / "hub.json"),
        "BEDPLATE_HUB_SECRETS": str(secrets),
    }
    command = [str(python(PACKAGES)), "-c", SCRIPT, str(config), json.dumps(names), json.dumps(who)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kind, told, admitted = json.loads(done.stdout.splitlines()[-1])
    return kind, told, admitted


@pytest.mark.parametrize("groups", [None, "groups"])
def test_oauth(groups: str | None, tmp_path: Path) -> None:
    people = [
        {"name": "ada"},
        {"name": "bob"},
        {"name": "eve"},
        {"name": "eve", "groups": ["students"]},
        {"name": "eve", "groups": ["group:students", "teachers"]},
    ]
    names = ["client_secret", "token_url", "oauth_callback_url", "username_claim", "scope"]
    given = OAUTH | {"groups": groups}
    kind, told, admitted = load(tmp_path, "oauth", given, names, people)
    assert kind == "GenericOAuthenticator"
    assert told == {
        "client_secret": "hush",
        "token_url": "https://id.example.org/token",
        "oauth_callback_url": "https://hub.example.org/hub/oauth_callback",
        "username_claim": "preferred_username",
        "scope": ["openid", "groups"],
    }
    # Groups count where the site names the field that has them.
    assert admitted == [True, True, False, groups is not None, False]


def test_lti(tmp_path: Path) -> None:
    context = "https://purl.imsglobal.org/spec/lti/claim/context"
    people = [
        {"email": "ada"},
        {"email": "eve"},
        {"email": "eve", context: {"label": "students"}},
        {"email": "eve", context: {"label": "others"}},
    ]
    names = ["issuer", "authorize_url", "client_id", "jwks_endpoint", "username_key"]
    kind, told, admitted = load(tmp_path, "lti", LTI, names, people)
    assert kind == "CourseLti"
    assert told == {
        "issuer": "https://lms.example.org",
        "authorize_url": "https://lms.example.org/authorize",
        "client_id": ["one"],
        "jwks_endpoint": "https://lms.example.org/keys",
        "username_key": "email",
    }
    assert admitted == [True, False, True, False]
