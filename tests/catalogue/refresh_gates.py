"""Write the feature gates of the catalogue from Kubernetes' sources.

`python -m tests.catalogue.refresh_gates`. The gates of a minor release are those of its newest
release in the catalogue that can be had; where two of its releases differ, that is an error.
"""

from __future__ import annotations

import datetime
import textwrap
from pathlib import Path
from typing import Any

import bedplate.catalogue
from bedplate.catalogue import load_catalogue
from bedplate.common.versions import minor, number
from tests.catalogue import feature_gates, go_modules

FACTS = Path(bedplate.catalogue.__file__).with_name("facts") / "feature-gates.yml"
HEAD = """\
# Written by `python -m tests.catalogue.refresh_gates`. Stages count for AllAlpha and AllBeta;
# `default_…` are stable or deprecated. A locked gate refuses another value. `needs` have to be on
# where a gate is.
"""
ENTRY = """\
- value:
    kubernetes: "{minor}"
{groups}
  reason: >-
    Read from the sources of {releases}, and of modules that kubelet and kube-proxy are built with.
  source:
    url: "https://github.com/kubernetes/kubernetes/blob/v{newest}/pkg/features/kube_features.go"
    read: {today}
  sure: vendor
"""


def entry(of: str, found: dict[str, dict[str, Any]], today: datetime.date) -> str:
    """Return the fact of a minor release as text, by the gates of its releases."""
    newest = max(found, key=number)
    if any(gates != found[newest] for gates in found.values()):
        raise SystemExit(f"{of}: {', '.join(found)} have different gates")
    lines: list[str] = []
    for group, names in found[newest].items():
        if group == "needs":
            lines += [f"    needs: {'{}' if not names else ''}".rstrip()]
            lines += [f"      {name}: [{', '.join(others)}]" for name, others in names.items()]
        else:
            lines += [f"    {group}:", *_wrapped(f"[{', '.join(names)}]")]
    releases = " and ".join(sorted(found, key=number))
    return ENTRY.format(
        minor=of, groups="\n".join(lines), releases=releases, newest=newest, today=today
    )


def _wrapped(text: str) -> list[str]:
    indent = " " * 6
    return textwrap.wrap(
        text, 130, initial_indent=indent, subsequent_indent=indent + " ", break_on_hyphens=False
    )


def main() -> None:
    """Write the facts, newest first. Each release's modules are removed once they are read."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for version in sorted(load_catalogue().kubernetes, key=number, reverse=True):
        with go_modules.cache() as folder:
            try:
                found.setdefault(minor(version), {})[version] = feature_gates.gates(folder, version)
            except go_modules.NotPublishedError as error:
                print(f"{version}: not read: {error}")
    today = datetime.datetime.now(datetime.UTC).date()
    facts = [entry(of, gates, today) for of, gates in found.items() if gates]
    FACTS.write_text(HEAD + "\n".join(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
