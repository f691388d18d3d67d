"""`bedplate gpus [WORD]`: the GPU models of the catalogue, and how they are spelt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.errors import Problem, SiteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.hardware_facts import GpuModel

HEAD = ("MODEL", "NAME", "MEMORY", "ARCHITECTURE", "CAPABILITY", "PCI")


def run(word: str | None) -> int:
    """Print the models that *word* names, all without it. Raises SiteError if there is none."""
    catalogue = load_catalogue()
    models = {name: fact.value for name, fact in catalogue.gpu_models.items()}
    chosen = found(word, catalogue)
    if not chosen:
        problem = Problem(
            "no such GPU",
            got=word,
            allowed=f"a word of the {len(models)} models' names, or a PCI identifier",
            fix="list them all with `bedplate gpus`: what is not there is not supported",
            rule="gpu-known",
        )
        raise SiteError([problem])
    rows = [HEAD, *(_row(models[name]) for name in chosen)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


def found(word: str | None, catalogue: Catalogue) -> Sequence[str]:
    """Return the names of the models that *word* means, in order."""
    if not word:
        return sorted(catalogue.gpu_models)
    close = catalogue.gpus_like(word)
    text = word.lower()
    has = []
    for name, fact in catalogue.gpu_models.items():
        model = fact.value
        if any(text in one for one in (name, model.name.lower(), model.architecture, *model.pci)):
            has.append(name)
    return close or sorted(has)


def _row(model: GpuModel) -> tuple[str, ...]:
    memory = f"{model.memory_gib} GiB" if model.memory_gib is not None else "-"
    capability = str(model.compute_capability)
    return (
        model.model,
        model.name,
        memory,
        model.architecture,
        capability,
        " ".join(model.pci),
    )
