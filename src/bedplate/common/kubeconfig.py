"""The administrator's kubeconfig in the site's own, git-ignored directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common import writing

if TYPE_CHECKING:
    from pathlib import Path


def path_in(site: Path) -> Path:
    """Return where a site's kubeconfig lies."""
    return site / ".bedplate" / "kubeconfig"


def write(site: Path, text: str) -> None:
    """Put the kubeconfig in place at once, readable by its owner only."""
    writing.replace(path_in(site), text.encode(), mode=0o600, durable=False)


def remove(site: Path) -> None:
    """Remove the kubeconfig of a cluster that is gone."""
    writing.remove_left(path_in(site))
    path_in(site).unlink(missing_ok=True)
