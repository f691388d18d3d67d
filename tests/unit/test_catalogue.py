"""The catalogue checks itself: facts that contradict each other are all named, each by its id."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import bedplate.catalogue.load as module
from bedplate.catalogue import load_catalogue, read_catalogue
from bedplate.errors import CatalogueError

FACTS = Path(module.__file__).with_name("facts")
KNOWN_ARCHITECTURES = ", ".join(sorted(load_catalogue().architectures))
KNOWN_BRANCHES = ", ".join(sorted(load_catalogue().branches))
KNOWN_SYSTEMS = ", ".join(sorted(load_catalogue().systems))
DRIVER = "driver-packages/debian-12-535.309.01-proprietary"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A copy of the facts, to be spoilt."""
    return shutil.copytree(FACTS, tmp_path / "facts")


def refused(facts: Path) -> list[str]:
    """Return what reading the facts is refused with."""
    with pytest.raises(CatalogueError) as caught:
        read_catalogue(facts)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("file", "old", "new", "messages"),
    [
        pytest.param(
            "gpu-models.yml",
            "architecture: ampere, pci",
            "architecture: amper, pci",
            [
                (
                    "architecture is not in the catalogue — gpu-models.yml gpu/a100-sxm4-80gb — "
                    f"got amper / allowed {KNOWN_ARCHITECTURES} — correct the fact"
                )
            ],
            id="dangling-architecture",
        ),
        pytest.param(
            "driver-packages.yml",
            "os: debian-12\n",
            "os: debian-99\n",
            [
                (
                    f"os is not in the catalogue — driver-packages.yml {DRIVER} — got debian-99 / "
                    f"allowed {KNOWN_SYSTEMS} — correct the fact"
                )
            ],
            id="dangling-system",
        ),
        pytest.param(
            "driver-packages.yml",
            'branch: "535"\n',
            'branch: "536"\n',
            [
                (
                    f"branch is not in the catalogue — driver-packages.yml {DRIVER} — got 536 / "
                    f"allowed {KNOWN_BRANCHES} — correct the fact"
                ),
                (
                    f"driver is not of its branch — driver-packages.yml {DRIVER} — got "
                    "535.309.01 — correct the fact"
                ),
            ],
            id="dangling-branch",
        ),
        pytest.param(
            "gpu-models.yml",
            '  source: {url: "https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/'
            'README.md", read: 2026-11-21}\n',
            "",
            [
                (
                    "fact is malformed — gpu-models.yml gpu/a100-sxm4-80gb — got source: Field "
                    "required — correct the fact"
                )
            ],
            id="no-source",
        ),
        pytest.param(
            "gpu-models.yml",
            "read: 2026-11-21",
            "read: lately",
            [
                (
                    "fact is malformed — gpu-models.yml gpu/a100-sxm4-80gb — got source.read: "
                    "Input should be a valid date or datetime, input is too short — correct the "
                    "fact"
                )
            ],
            id="no-date",
        ),
        pytest.param(
            "gpu-models.yml",
            "sure: vendor",
            "sure: certainly",
            [
                (
                    "fact is malformed — gpu-models.yml gpu/a100-sxm4-80gb — got sure: Input "
                    "should be 'vendor', 'tested', 'secondary' or 'unproved' — correct the fact"
                )
            ],
            id="unknown-certainty",
        ),
        pytest.param(
            "gpu-models.yml",
            "id: gpu/h100-pcie-80gb",
            "id: gpu/t4-16gb",
            [
                (
                    "id is used twice — gpu-models.yml gpu/t4-16gb — got gpu-models.yml — correct "
                    "the fact"
                )
            ],
            id="id-twice",
        ),
        pytest.param(
            "gpu-models.yml",
            "model: h100-pcie-80gb",
            "model: t4-16gb",
            ["two facts say the same — gpu-models.yml t4-16gb — got 2 facts — correct the fact"],
            id="name-twice",
        ),
        pytest.param(
            "gpu-models.yml",
            "10de:2331",
            "10de:20b2",
            [
                (
                    "PCI identifier belongs to two models — gpu-models.yml gpu/h100-pcie-80gb — "
                    "got 10de:20b2 of gpu/a100-sxm4-80gb — correct the fact"
                )
            ],
            id="overlapping-pci",
        ),
        pytest.param(
            "architectures.yml",
            'last_branch: "580"',
            'last_branch: "390"',
            ["range is empty — architectures.yml architecture/volta — got 390 — correct the fact"],
            id="empty-range",
        ),
    ],
)
def test_spoilt_facts(file: str, old: str, new: str, messages: list[str], facts: Path) -> None:
    text = (facts / file).read_text()
    assert old in text, "the case would prove nothing"
    (facts / file).write_text(text.replace(old, new, 1))
    assert refused(facts) == messages


def test_two_package_sets_of_one_driver(facts: Path) -> None:
    path = facts / "driver-packages.yml"
    text = path.read_text()
    first = text[text.index(f"- id: {DRIVER}") :].split("\n- id: ")[0].rstrip()
    path.write_text(f"{text}\n{first.replace(DRIVER, DRIVER + '-again')}\n")
    assert refused(facts) == [
        (
            f"two package sets bring the same driver — driver-packages.yml {DRIVER}-again — got "
            f"{DRIVER} — correct the fact"
        )
    ]


def test_everything_wrong_is_told_at_once(facts: Path) -> None:
    (facts / "systems.yml").write_text("- 1\n- {id: x}\n")
    told = refused(facts)
    assert sum(line.startswith("fact is malformed — systems.yml [0]") for line in told) == 1
    assert sum(line.startswith("fact is malformed — systems.yml x — ") for line in told) == 5
    assert sum(line.startswith("os is not in the catalogue") for line in told) >= 3


def test_the_digest_is_of_what_the_facts_say(facts: Path) -> None:
    """Comments and order do not change it; a value does."""
    before = load_catalogue().digest
    path = facts / "systems.yml"
    path.write_text("# a remark\n" + path.read_text())
    assert read_catalogue(facts).digest == before
    path.write_text(path.read_text().replace("name: ", "name: New ", 1))
    assert read_catalogue(facts).digest != before
