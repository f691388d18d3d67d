"""`bedplate gpus [WORD]`: the GPU models of the catalogue, and how they are spelt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.catalogue import load_catalogue
from bedplate.common import terminal
from bedplate.common.errors import Problem, SiteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.hardware_facts import GpuModel

HEAD = ("MODEL", "NAME", "MEMORY", "ARCHITECTURE", "CAPABILITY", "PCI", "HOSTS")


def run(word: str | None, form: str) -> int:
    """List the models that *word* names, all without it. Raises SiteError if there is none."""
    catalogue = load_catalogue()
    models = {name: fact.value for name, fact in catalogue.gpu_models.items()}
    chosen = found(word, catalogue)
    if not chosen:
        if others := planned_only(word or "", catalogue):
            raise SiteError(others)
        problem = Problem(
            "no such GPU",
            got=word,
            allowed=f"a word of the {len(models)} models' names, or a PCI identifier",
            fix="list them all with `bedplate gpus`: what is not there is not supported",
            rule="gpu-known",
        )
        raise SiteError([problem])
    if form == "table":
        rows = (_row(models[name], catalogue) for name in chosen)
        terminal.show(terminal.table(HEAD, rows))
    else:
        terminal.document([_content(models[name], catalogue) for name in chosen], form)
    return 0


def planned_only(word: str, catalogue: Catalogue) -> list[Problem]:
    """Return that GPUs of other makers, which a word means, are known and only planned."""
    known = [fact.value for fact in catalogue.accelerators.values()]
    text = word.lower()
    return [
        Problem(
            f"{one.name} is planned and not installed by this version",
            got=one.accelerator,
            fix="to plan it, write bedplate_accelerator: "
            f"{{vendor: {one.vendor}, model: {one.accelerator}, count: NUMBER}}",
            rule="gpu-known",
        )
        for one in known
        if any(text in name for name in (one.accelerator, one.name.lower(), *one.pci))
    ]


def found(word: str | None, catalogue: Catalogue) -> Sequence[str]:
    """Return the names of the models that *word* means, in order."""
    if not word:
        return sorted(catalogue.gpu_models)
    close = catalogue.gpus_like(word)
    text = word.lower()
    has = []
    for name, fact in catalogue.gpu_models.items():
        model = fact.value
        words = (name, model.name.lower(), model.architecture, *model.aliases, *model.pci)
        if any(text in one for one in words):
            has.append(name)
    return close or sorted(has)


def cpus(catalogue: Catalogue) -> Sequence[str]:
    """Return the CPUs of hosts that this version installs."""
    fact = catalogue.installable.get("cpu")
    return (*fact.value.values, *fact.value.stand_in, *fact.value.unproved) if fact else ()


def not_installed(model: GpuModel, catalogue: Catalogue) -> str | None:
    """Return the CPU for which this version installs no host of a GPU; None where it does."""
    cpu = model.host_cpu
    return cpu if cpu is not None and cpu not in cpus(catalogue) else None


def _content(model: GpuModel, catalogue: Catalogue) -> dict[str, Any]:
    return {
        "model": model.model,
        "name": model.name,
        "memory_gib": model.memory_gib,
        "architecture": model.architecture,
        "compute_capability": str(model.compute_capability),
        "pci": list(model.pci),
        "installed": not_installed(model, catalogue) is None,
    }


def _row(model: GpuModel, catalogue: Catalogue) -> tuple[str, ...]:
    cpu = not_installed(model, catalogue)
    memory = f"{model.memory_gib} GiB" if model.memory_gib is not None else "-"
    capability = str(model.compute_capability)
    return (
        model.model,
        model.name,
        memory,
        model.architecture,
        capability,
        " ".join(model.pci),
        f"{cpu}: not installed by this version" if cpu else "",
    )
