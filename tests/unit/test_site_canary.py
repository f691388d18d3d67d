"""The internal API of ansible-core that positions lean on, and what is generated from the model."""

from __future__ import annotations

from pathlib import Path

from bedplate.catalogue import load_catalogue
from bedplate.site import load_site, schema
from bedplate.site.places import Place

DEMO = Path(__file__).parents[2] / "inventories" / "demo"


def test_origin_tags_give_file_line_and_column() -> None:
    places = load_site(DEMO).hosts["gpu-a"].places
    file = str(DEMO / "group_vars" / "all" / "bedplate.yml")
    assert places.of(("bedplate_host", "kind")) == Place(file, 1, 32)
    assert places.of(("bedplate_kubernetes",)) == Place(file, 4, 1)
    assert places.of(("bedplate_kubernetes", "version")) == Place(file, 5, 3)
    assert places.of(("bedplate_gpu", "model")).file.endswith("group_vars/pool_train.yml")


def test_schema_is_generated_from_the_model() -> None:
    assert schema.PATH.read_text(encoding="utf-8") == schema.text()


def test_catalogue_checks_itself() -> None:
    catalogue = load_catalogue()
    assert catalogue.branches["535"].value.type == "lts"
    assert len(catalogue.drivers) >= 3
