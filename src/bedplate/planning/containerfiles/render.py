"""The files from which an image of a framework is built: pure functions of lock and catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bedplate.bill.needs import jupyterhub_of
from bedplate.common import shipped
from bedplate.lock.builds import FOR_CPUS, notebook_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.published_facts import FrameworkBuild, FrameworkPackage
    from bedplate.lock import Lock
    from bedplate.lock.model import Sources


@dataclass(frozen=True)
class Build:
    """A build of a framework, how it is installed, its pools, and the hub of its notebook."""

    fact: FrameworkBuild
    package: FrameworkPackage
    pools: tuple[str, ...]
    jupyterhub: str

    @property
    def name(self) -> str:
        """Return the name of its folder, which is good as a tag too."""
        return f"{self.fact.framework}-{self.fact.version}-{self.fact.variant}"

    @property
    def requirement(self) -> str:
        """Return what pip installs."""
        text = self.package.requirement.replace("{version}", self.fact.version)
        return text.replace("{variant}", self.fact.variant)


def builds_of(lock: Lock, catalogue: Catalogue) -> list[Build]:
    """Return each build that pools of a lock run, once."""
    pools: dict[tuple[str, str, str], list[str]] = {}
    for name, pool in sorted(lock.pools.items()):
        for one in pool.frameworks:
            pools.setdefault((one.name, one.version, one.variant), []).append(name)
    return [
        Build(
            catalogue.frameworks["-".join(identity)].value,
            catalogue.framework_packages[identity[0]].value,
            tuple(names),
            jupyterhub_of(catalogue),
        )
        for identity, names in sorted(pools.items())
    ]


def index_words(build: Build, sources: Sources) -> str:
    """Return pip's words for a framework's own index.

    A lock names none: as constraints of another lock, uv would take its indexes too, and a maker's
    has no JupyterHub.
    """
    if build.fact.index is None:
        return ""
    return f" --{'extra-' if sources.pip else ''}index-url {build.fact.index}"


def files_of(build: Build, sources: Sources, base: str | None = None) -> dict[str, str]:
    """Return the files of a build's folder, by name.

    Args:
        build: what is installed.
        sources: of the lock: the site's package mirrors, where it has them.
        base: the image to build on; the catalogue's otherwise.
    """
    values: dict[str, Any] = {
        "base": base or build.package.base,
        "build": build,
        "notebook": notebook_of(build.fact.framework, build.fact.version, build.fact.variant),
        "sources": sources,
        # A mirror of Bedplate's has no wheels: a maker's own index keeps its address.
        "index": build.fact.index,
        "indexes": index_words(build, sources),
        "capabilities": " ".join(build.fact.compute_capabilities),
    }
    names: Mapping[str, bool] = {
        "Containerfile": True,
        "requirements.in": True,
        "notebook.in": True,
        "smoke.py": True,
        "pip.conf": sources.pip is not None,
        "condarc": sources.conda is not None,
    }
    smoke = f"{build.fact.framework.removesuffix(FOR_CPUS)}.py"
    return {
        name: rendered(smoke if name == "smoke.py" else name, values)
        for name, there in names.items()
        if there
    }


def rendered(name: str, values: Mapping[str, Any]) -> str:
    """Return a file by its template's name."""
    environment = Environment(  # noqa: S701 - no HTML
        loader=FileSystemLoader(shipped.templates("containerfiles")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{name}.j2").render(values)
