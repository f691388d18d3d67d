"""The internal API of ansible-core that positions lean on, and what is generated from the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible import constants
from ansible.plugins.loader import PluginLoader, become_loader, connection_loader

from bedplate.site import load_site, reach, schema
from bedplate.site.model import KEYS
from bedplate.site.places import Place

DEMO = Path(__file__).parents[2] / "inventories" / "demo"


def test_origin_tags_give_file_line_and_column() -> None:
    places = load_site(DEMO).hosts["gpu-b"].places
    path = DEMO / "group_vars" / "all" / "bedplate.yml"
    lines = path.read_text(encoding="utf-8").splitlines()
    host = next(number for number, line in enumerate(lines, 1) if line.startswith("bedplate_host:"))
    column = lines[host - 1].index("kind:") + 1
    assert places.of(("bedplate_host", "kind")) == Place(str(path), host, column)
    shared = lines.index("bedplate_kubernetes:") + 1
    assert places.of(("bedplate_kubernetes",)) == Place(str(path), shared, 1)
    assert places.of(("bedplate_kubernetes", "version")) == Place(str(path), shared + 1, 3)
    assert places.of(("bedplate_gpu", "model")).file.endswith("group_vars/pool_class.yml")


@pytest.mark.parametrize(
    ("kind", "name", "loader", "options"),
    [
        ("connection", "ssh", connection_loader, reach.SSH),
        ("become", "sudo", become_loader, reach.SUDO),
    ],
)
def test_documented_options_are_those_that_ansible_loads(
    kind: str, name: str, loader: PluginLoader, options: tuple[str, ...]
) -> None:
    """They are read without importing the plugin."""
    assert loader.get(name, class_only=True)
    loaded = constants.config.get_configuration_definitions(kind, name)
    documented = reach.documented(kind, name)
    for option in options:
        for source in ("vars", "env", "ini"):
            wanted = [entry.items() for entry in loaded[option].get(source, [])]
            found = [entry.items() for entry in documented[option].get(source, [])]
            assert found == wanted, (option, source)


def test_schema_is_generated_from_the_model() -> None:
    assert schema.PATH.read_text(encoding="utf-8") == schema.text()


def test_schema_knows_every_wish() -> None:
    """Each has its type, and what is misspelt inside one is known as wrong."""
    properties = json.loads(schema.text())["properties"]
    assert properties.keys() == set(KEYS)
    assert len(properties) > 10
    for name, part in json.loads(schema.text())["$defs"].items():
        assert part.get("additionalProperties") is False, name
