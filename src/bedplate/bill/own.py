"""How this machine reaches servers of a site's own: by the site's authorities and its login."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from bedplate.bill.errors import refused
from bedplate.bill.web import Own, Web
from bedplate.common import programs

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.bill.errors import ResolveError
    from bedplate.lock.model import Sources

SECONDS = 300


def web_of(site: Path, sources: Sources, ca: Path | None = None) -> Web:
    """Return a client for a site's sources; *ca* is for all that is not the site's own.

    Raises:
        ResolveError: the site's login cannot be read.
    """
    return Web(ca, own_of(site, sources))


def own_of(site: Path, sources: Sources) -> Own | None:
    """Return what the site's own servers want; None where it has none.

    Raises:
        ResolveError: the site's login cannot be read.
    """
    trusted = site / sources.ca if sources.ca else None
    if sources.registry is not None:
        host = sources.registry.partition("/")[0]
        below = (f"{sources.files}/", f"https://{host}/v2/")
        return Own(below, trusted, _login(site))
    return Own((f"{sources.url}/",), trusted) if trusted and sources.url else None


def _login(site: Path) -> tuple[str, str] | None:
    """Ask Ansible for the login, which may lie in a vault, with the ansible.cfg nearest above."""
    place = site.absolute()
    home = next((one for one in (place, *place.parents) if (one / "ansible.cfg").is_file()), place)
    words = [sys.executable, "-m", "bedplate.site.login", str(place)]
    try:
        done = programs.run(words, SECONDS, own={"PYTHONSAFEPATH": "1"}, folder=home, check=False)
    except programs.ProgramError as error:
        raise _unread(site, error.got) from error
    if done.status:
        raise _unread(site, done.errors.strip()[-600:])
    found = json.loads(done.content)
    return (found["user"], found["password"]) if found else None


def _unread(site: Path, got: str) -> ResolveError:
    return refused(
        "login to the site's own servers cannot be read",
        str(site),
        got,
        "a site that `bedplate plan` can read, with its vault password",
        "correct it, or set ANSIBLE_VAULT_PASSWORD_FILE",
    )
