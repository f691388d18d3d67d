"""The administrator's kubeconfig in the site's own, git-ignored directory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def path_in(site: Path) -> Path:
    """Return where a site's kubeconfig lies."""
    return site / ".bedplate" / "kubeconfig"


def write(site: Path, text: str) -> None:
    """Put the kubeconfig in place at once, readable by its owner only."""
    path = path_in(site)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=path.parent)  # made with mode 0600
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(fresh).replace(path)


def remove(site: Path) -> None:
    """Remove the kubeconfig of a cluster that is gone."""
    path_in(site).unlink(missing_ok=True)
