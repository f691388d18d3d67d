"""`bedplate kubeconfig SITE --user NAME`: a member's own kubeconfig, good for some hours."""

from __future__ import annotations

import base64
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

import yaml

from bedplate.common import kubeconfig, reading, writing
from bedplate.common.errors import BedplateError, Problem
from bedplate.common.reading_yaml import parsed
from bedplate.components.credentials.signing import Signed, signed
from bedplate.lock import load_lock
from bedplate.pods.api import Api, ApiError
from bedplate.pods.hub.courses import GROUP, is_one
from bedplate.pods.kubeaccess import AccessError, access_of
from bedplate.site.patterns import MEMBER

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from bedplate.lock.model import Team
    from bedplate.pods.api import Access

PATIENCE: Final = 30.0
#: What Kubernetes and kubeadm name users and groups of their own by: system:masters, and
#: kubeadm:cluster-admins, may do everything.
RESERVED: Final = ("system:", "kubeadm:")


def run(options: Namespace) -> int:
    """Have a certificate signed and write the kubeconfig.

    Raises:
        BedplateError: a name is none of a person, the team has not this member, the file is
            another's, the lock or the administrator's kubeconfig cannot be read, or the cluster
            signs no certificate.
    """
    site, user = options.site, options.user
    groups = tuple(dict.fromkeys(options.groups))
    if problems := [
        *_wrong("--user", user),
        *(one for g in groups for one in _wrong("--group", g)),
    ]:
        raise BedplateError(problems)
    lock = load_lock(site)
    teams = lock.cluster.teams if lock.cluster else {}
    name = _team({of: one for of, one in teams.items() if one.members}, user, groups, options.team)
    namespace = teams[name].namespaces[0]
    context = f"{user}@{site.resolve().name}"
    path = _path(site, user, options.output, context)
    with access_of(kubeconfig.path_in(site)) as entry:
        try:
            found = signed(Api(entry.access, PATIENCE), user, groups, int(options.hours * 3600))
        except (ApiError, ValueError) as error:
            what, fix = "no certificate can be requested", "correct what it says, and run it again"
            problem = Problem(what, "the cluster's API", got=str(error), fix=fix, rule="signing")
            raise AccessError([problem]) from error
        content = _document(entry.access, context, namespace, found)
    text = yaml.safe_dump(content, sort_keys=False)
    writing.replace(path, text.encode(), mode=0o600, durable=False)
    until = f"{found.until:%Y-%m-%d %H:%M:%S} UTC"
    print(f"Wrote {path}: {user} of team {name}, namespace {namespace}, until {until}.")
    print("It has a private key, and cannot be revoked before its end.")
    return 0


def _wrong(option: str, name: str) -> list[Problem]:
    """Return why a name is none that a certificate may be made for."""
    if name.startswith(RESERVED):
        what, got = "name is one of Kubernetes' own", name
        allowed = f"names that do not begin with {' or '.join(RESERVED)}"
        fix = "name a member of a team; the administrator's kubeconfig is SITE/.bedplate/kubeconfig"
    elif name.startswith(GROUP) or not (re.fullmatch(MEMBER, name) and name.isprintable()):
        what, got = "name is no user's or group's", ascii(name)
        allowed = f"a name without spaces, not beginning with : or {GROUP}"
        fix = f"write it as the API server knows it, a group with --group and without {GROUP}"
    else:
        return []
    return [Problem(what, key=option, got=got, allowed=allowed, fix=fix, rule="person")]


def _team(teams: dict[str, Team], user: str, groups: tuple[str, ...], asked: str | None) -> str:
    """Return the team that was requested, or the only one that has the user as a member."""
    of = frozenset(groups)
    theirs = [name for name, one in sorted(teams.items()) if is_one(user, of, {*one.members})]
    if asked in theirs or (asked is None and len(theirs) == 1):
        return asked or theirs[0]
    key, got = "--team", ", ".join([user, *(GROUP + group for group in groups)])
    allowed = ", ".join(theirs or sorted(teams)) or "none: no team has members"
    if asked in teams:
        what, key = "user is not a member of the team", f"bedplate_teams.{asked}.members"
        allowed = ", ".join(teams[asked].members)
        fix = "name one of these groups with --group, or add the user to the members and plan again"
    elif asked is not None:
        what, got, fix = "no team of this name has members", asked, "name one of these"
    elif theirs:
        what, fix = "user is in several teams", "name the one whose namespace the context gets"
    else:
        what, fix = "user is in no team", "name the team, and groups of the user with --group"
    raise BedplateError([Problem(what, key=key, got=got, allowed=allowed, fix=fix, rule="person")])


def _path(site: Path, user: str, output: Path | None, context: str) -> Path:
    """Return where to write: nothing is there, or this person's previous kubeconfig."""
    if output is None:
        # A user may be named by an address, or with a slash.
        name = urllib.parse.quote(user, safe="@+")
        path = site / ".bedplate" / "kubeconfigs" / name
    else:
        path = writing.through(output)
        path.parent.stat()  # not made, as it may be of a disk that is not mounted
    try:
        found = parsed(reading.content(path).decode())
        if [one["name"] for one in found["contexts"]] == [context]:
            return path
    except FileNotFoundError:
        return path
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        pass
    problem = Problem(
        "file is there and is not this user's kubeconfig",
        str(path),
        got="other content",
        allowed=f"no file, or a kubeconfig with the context {context} alone",
        fix="name another file with --output, or move it away",
        rule="person",
    )
    raise BedplateError([problem])


def _document(access: Access, context: str, namespace: str, found: Signed) -> dict[str, Any]:
    """Return the kubeconfig, whole: no file next to it is needed."""

    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    cluster = {"server": access.server}
    if access.ca is not None:
        cluster["certificate-authority-data"] = data(access.ca.read_bytes())
    user = {
        "client-certificate-data": data(found.certificate),
        "client-key-data": data(found.key),
    }
    of = {"cluster": context, "user": context, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": of}],
        "current-context": context,
    }
