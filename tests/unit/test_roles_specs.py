"""A role says what it takes in three places: specs, defaults and README. They must not drift apart.

README: a table with the columns variable, type, default and meaning, one row for each variable of
any entry point, the default as YAML in backquotes or the word *required*.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
ROW = re.compile(
    r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \| (?P<default>required|`.*?`) \| (?P<text>.+) \|$"
)

ENTRIES = {"main", "validate", "install", "configure", "verify"}
#: The entry points that a role has no use for, and why.
WITHOUT = {
    "gpu_verify": {"validate", "install", "configure"},  # it only looks, and changes nothing
    "hpc_tools": {"configure"},  # programs to be started by hand or by jobs
    "package_mirror": {"install"},  # files alone, before anything is installed
    "host_proxy": {"validate", "install"},  # files alone, for whatever is installed or will be
}


def specs(role: Path) -> dict[str, dict[str, Any]]:
    """Read the entry points of a role."""
    text = (role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["argument_specs"]


def options(role: Path) -> dict[str, dict[str, Any]]:
    """Read the variables of all entry points of a role."""
    return {
        name: option
        for entry in specs(role).values()
        for name, option in entry.get("options", {}).items()
    }


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_there_are_roles() -> None:
    assert len(ROLES) >= 7


def test_defaults_are_those_of_the_specs(role: Path) -> None:
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8")) or {}
    stated = {name: o["default"] for name, o in options(role).items() if "default" in o}
    assert defaults == stated


def test_every_variable_is_required_or_has_a_default(role: Path) -> None:
    for name, option in options(role).items():
        assert option.get("required", False) != ("default" in option), name


def test_variables_carry_the_name_of_their_role(role: Path) -> None:
    assert all(name.startswith(f"{role.name}_") for name in options(role))


def test_one_variable_has_one_meaning_in_all_entry_points(role: Path) -> None:
    for entry, spec in specs(role).items():
        for name, option in spec.get("options", {}).items():
            assert option == options(role)[name], f"{entry}: {name}"


def test_every_role_has_the_entry_points_and_each_its_tasks(role: Path) -> None:
    entries = set(specs(role))
    assert ENTRIES - entries == WITHOUT.get(role.name, set())
    for entry in entries:
        assert (role / "tasks" / f"{entry}.yml").is_file(), entry


def test_the_readme_says_what_the_specs_say(role: Path) -> None:
    text = (role / "README.md").read_text(encoding="utf-8")
    rows = {found["name"]: found for line in text.splitlines() if (found := ROW.match(line))}
    assert set(rows) == set(options(role))
    for name, option in options(role).items():
        row = rows[name]
        assert row["type"] == option["type"], name
        if option.get("required"):
            assert row["default"] == "required", name
        else:
            assert yaml.safe_load(row["default"].strip("`")) == option["default"], name


def test_every_variable_of_the_lock_is_one_of_a_role() -> None:
    files = [ROOT / "playbooks" / "vars" / name for name in ("from_lock.yml", "access.yml")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    names = [name for text in texts for name in yaml.safe_load(text)]
    taken = {name for name in names if not name.startswith("__")}
    known = {name for role in ROLES for name in options(role)}
    assert taken
    assert taken <= known
    required = {name for role in ROLES for name, o in options(role).items() if o.get("required")}
    assert required <= taken
