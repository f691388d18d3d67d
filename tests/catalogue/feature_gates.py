"""Feature gates that kubelet and kube-proxy of a release have, read from its sources.

`python -m tests.catalogue.refresh_gates` writes the catalogue's facts with them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bedplate.common.versions import number
from tests.catalogue import go_modules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Where gates are named and specified, by module. Both programs register all of them.
SOURCES = {
    "k8s.io/kubernetes": ("pkg/features/kube_features.go",),
    "k8s.io/apiserver": ("pkg/features/kube_features.go",),
    "k8s.io/apiextensions-apiserver": ("pkg/features/kube_features.go",),
    "k8s.io/controller-manager": ("pkg/features/kube_features.go",),
    "k8s.io/client-go": ("features/known_features.go",),
    "k8s.io/component-base": (
        "logs/api/v1/kube_features.go",
        "metrics/features/kube_features.go",
        "zpages/features/kube_features.go",
    ),
}
NAMED = re.compile(r'^\s*(\w+)\s+(?:(?:featuregate\.)?Feature\s*)?= "(\w+)"', re.MULTILINE)
SPECIFIED = re.compile(
    r"^\t+(?:\w+\.)?(\w+): \{\n((?:\s*(?://.*|\{Version:.*)\n)+)\t+\},", re.MULTILINE
)
STAGE = re.compile(r'MustParse\("([\d.]+)"\), Default: (\w+),(.*)')
PRE_RELEASE = re.compile(r"PreRelease: (?:\w+\.)?(\w+)")
CONVERTED = re.compile(r"featuregate\.Feature\(([\w.\"]+)\)")
NEEDS = re.compile(r"^\t(?:\w+\.)?(\w+): \{((?:\w+\.)?\w+(?:, (?:\w+\.)?\w+)*)\},", re.MULTILINE)


def gates(folder: Path, version: str) -> dict[str, Any]:
    """Return the gates of a Kubernetes release: lists of names by stage and default, and `needs`.

    Raises NotPublishedError when its modules cannot be had.
    """
    text = CONVERTED.sub(r"\1", "".join(_sources(folder, version)))
    names = dict(NAMED.findall(text))
    # The two that stand for all of a stage are none of those lists.
    found = {"AllAlpha": "alpha", "AllBeta": "beta_off"}
    for constant, specs in SPECIFIED.findall(text):
        # Without comments, in which there are versions too.
        stages = STAGE.findall(re.sub(r"//.*", "", specs))
        since = [one for one in stages if number(one[0]) <= number(version)]
        if since:
            _, default, rest = max(since, key=lambda one: number(one[0]))
            (stage,) = PRE_RELEASE.findall(rest)
            locked = "LockToDefault: true" in rest
            found[names[constant]] = _group(stage, on=default == "true", locked=locked)
    grouped: dict[str, Any] = {
        group: sorted(name for name in found if found[name] == group)
        for group in sorted(set(found.values()))
    }
    return grouped | {"needs": dict(sorted(_needs(text, names)))}


def _sources(folder: Path, version: str) -> Iterator[str]:
    for module, files in SOURCES.items():
        own = version if module == go_modules.KUBERNETES else f"0.{version.split('.', 1)[1]}"
        root = go_modules.sources(folder, module, own)
        for name in files:
            if (root / name).exists():
                yield (root / name).read_text(encoding="utf-8")


def _group(stage: str, *, on: bool, locked: bool) -> str:
    word = "on" if on else "off"
    if locked:
        return f"locked_{word}"
    return {"Alpha": "alpha", "Beta": f"beta_{word}"}.get(stage, f"default_{word}")


def _needs(text: str, names: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    _, _, rest = text.partition("map[featuregate.Feature][]featuregate.Feature{")
    for constant, others in NEEDS.findall(rest.partition("\n}\n")[0]):
        yield names[constant], sorted(names[one.rpartition(".")[2]] for one in others.split(", "))
