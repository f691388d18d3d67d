"""Fetch what Go modules say about themselves again: `python -m tests.catalogue.refresh_go`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue import load_catalogue
from tests.catalogue import go_modules
from tests.catalogue.go_modules import DATA, NotPublishedError

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = "# Written by `python -m tests.catalogue.refresh_go`; null is what could not be had.\n"


def fetched(get: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return what there is, or None."""
    try:
        return get()
    except NotPublishedError:
        return None


def write(name: str, rows: dict[str, Any]) -> None:
    """Write a file of data, unless there is nothing to be had: then the network is the reason."""
    if not any(rows.values()):
        raise SystemExit(f"{name}: no module can be had; is the module proxy reachable?")
    text = yaml.safe_dump(dict(sorted(rows.items())), width=130)
    (DATA / f"{name}.yml").write_text(HEAD + text, encoding="utf-8")


def main() -> None:
    """Write all data files. A Kubernetes release is a few dozen MB: one at a time, then removed."""
    rows = {}
    with go_modules.cache() as folder:
        for fact, (paths, version) in go_modules.modules().items():
            rows[fact] = fetched(lambda p=paths, v=version: go_modules.requirements(folder, p, v))
    write("modules", rows)
    releases = {}
    for version in load_catalogue().kubernetes:
        with go_modules.cache() as folder:
            releases[version] = fetched(lambda v=version: go_modules.kubeadm(folder, v))
    write("kubeadm", releases)


if __name__ == "__main__":
    main()
