"""What a refusal may propose to write: every word of it can be written in a site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from bedplate.catalogue import load_catalogue
from bedplate.common.versions import minor
from bedplate.site.hosts import Gpu
from bedplate.site.model import Component, Exact
from bedplate.site.patterns import Named

if TYPE_CHECKING:
    from collections.abc import Iterable

CATALOGUE = load_catalogue()
ADDONS = [fact.value for fact in CATALOGUE.addons.values()]
BUILDS = [fact.value for fact in CATALOGUE.frameworks.values()]
NAMED = sorted(
    {addon.addon for addon in ADDONS}
    | {f"{addon.addon}-{addon.version}" for addon in ADDONS}
    | {build.framework for build in BUILDS}
    | {f"{build.framework}-{minor(build.version)}" for build in BUILDS}
    | {f"{build.framework}-{build.version}" for build in BUILDS}
)
PINNED = sorted(
    {
        *((addon.addon.replace("-", "_"), addon.version) for addon in ADDONS),
        *((build.framework.replace("-", "_"), build.version) for build in BUILDS),
        *((fact.value.component, fact.value.version) for fact in CATALOGUE.components.values()),
    }
)


def refused(kind: Any, words: Iterable[Any]) -> list[Any]:
    """Return the words that the site's model does not take."""
    adapter, found = TypeAdapter(kind), []
    for word in words:
        try:
            adapter.validate_python(word)
        except ValidationError:
            found.append(word)
    return found


def test_addons_and_frameworks_can_be_wished_for() -> None:
    assert len(NAMED) > len(ADDONS)
    assert refused(Named, NAMED) == []


def test_boards_can_be_wished_for() -> None:
    boards = [{"model": model, "count": 1} for model in CATALOGUE.gpu_models]
    assert refused(Gpu, boards) == []


def test_versions_can_be_pinned() -> None:
    assert refused(dict[Component, Exact], [{name: version} for name, version in PINNED]) == []


def test_a_word_that_cannot_be_written_is_found() -> None:
    assert refused(Named, ["kueue", "dcgm-exporter-4.6.0-4.8.3"]) == ["dcgm-exporter-4.6.0-4.8.3"]
