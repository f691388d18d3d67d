"""Secrets of a site by what they are, wherever they stand: in a vault, or in what no log shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from bedplate.common import reading
from bedplate.common.harmless import secrets_of
from bedplate.site import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Variables that roles mark with no_log, and passwords of connections.
NO_LOG: Final = frozenset(
    {"container_runtime_mirror_login", "package_mirror_login", "slurm_munge_key"}
)
#: A setting with a password in it.
LOGIN: Final = "bedplate_sources_login"
PASSWORDS: Final = frozenset(
    f"ansible_{name}"
    for name in (
        "password",
        "ssh_pass",
        "ssh_password",
        "become_pass",
        "become_password",
        "sudo_pass",
        "sudo_password",
    )
)
_VAULT: Final = b"$ANSIBLE_VAULT"
#: What a file with a secret has in it: most have none, and are not read further.
_MAY_HOLD: Final = re.compile(
    rb"\$ANSIBLE_VAULT|://[^\s/]*@|"
    + b"|".join(name.encode() for name in sorted(NO_LOG | PASSWORDS | {LOGIN}))
)


def secrets(site: Path) -> frozenset[str]:
    """Return the secrets that a site's files of YAML hold, decrypted.

    Raises:
        SiteError: a file cannot be read, such as a vault without its password.
        OSError: a file is gone, or none.
    """
    held: dict[Path, bool] = {}
    for path in files.files_of(site):
        if path.suffix in files.YAML or files.VARIABLES & set(path.relative_to(site).parts):
            content = reading.content(path, files.LARGEST)
            if _MAY_HOLD.search(content):
                held[path] = content.startswith(_VAULT)
    if not held:
        return frozenset()
    from bedplate.site import ansible_adapter

    found: set[str] = set()
    for path, content, encrypted in ansible_adapter.contents(site, held):
        found.update(encrypted, _in(content, concealed=held[path]))
    # A tool may print one line of a text of several.
    lines = {line.strip() for text in found for line in text.splitlines()}
    return frozenset(text for text in found | lines if text)


def _in(value: Any, *, concealed: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            # Settings and addresses are no secrets in a vault either: reports are made of them.
            known = str(key).startswith(("bedplate_", "ansible_"))
            hidden = key in NO_LOG | PASSWORDS or (concealed and not known)
            yield from _in(one, concealed=hidden)
            if key == LOGIN and isinstance(one, dict):
                yield from _in(one.get("password"), concealed=True)
    elif isinstance(value, list):
        for one in value:
            yield from _in(one, concealed=concealed)
    elif isinstance(value, str) and concealed:
        yield str(value)
    elif isinstance(value, str):
        yield from secrets_of(value)
