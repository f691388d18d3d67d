"""Files that a stack applies, taken from the site's mirror and checked by digest."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from typing import TYPE_CHECKING

from bedplate.stackconfig import StackError

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 30


def mirrored(site: Path, artifact: str) -> str:
    """Return the text of an artifact from the site's mirror.

    Raises StackError if the mirror does not have it, or has something else under its digest.
    """
    index = site / ".bedplate" / "mirror.json"
    try:
        mirror = json.loads(index.read_text())
        entry = mirror["files"][artifact]
    except (FileNotFoundError, KeyError) as error:
        raise StackError(
            f"artifact is not mirrored — {index} — got no {artifact} / allowed the files that the "
            "site's mirror serves — fill the mirror and serve it (`bedplate mirror --help`)"
        ) from error
    url = mirror["url"].rstrip("/") + entry["path"]
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - our own mirror
            content: bytes = answer.read()
    except OSError as error:
        raise StackError(
            f"mirror does not answer — {url} — got {error} / allowed {artifact} — start the "
            "mirror, or correct bedplate_sources.url of the site"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != entry["sha256"]:
        raise StackError(
            f"wrong content in the mirror — {url} — got sha256 {found} / allowed "
            f"{entry['sha256']} — fill the mirror again"
        )
    return content.decode()
