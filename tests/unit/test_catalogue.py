"""The catalogue checks itself: facts that contradict each other are all named, each by its id."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from bedplate.catalogue import load_catalogue, read_catalogue
from bedplate.catalogue.check import DIMENSIONS, NAMES, REFERENCES, WORDS
from bedplate.catalogue.facts import Condition
from bedplate.catalogue.load import KINDS
from bedplate.common.errors import CatalogueError
from bedplate.site import model

DATA = Path(__file__).parents[1] / "catalogue" / "data"
SOUND: dict[str, list[dict[str, Any]]] = yaml.safe_load((DATA / "sound.yml").read_text())
SPOILT: list[dict[str, Any]] = yaml.safe_load((DATA / "spoilt.yml").read_text())
REST = {
    "reason": "For the test.",
    "source": {"url": "https://example.com/", "read": "2026-11-21"},
    "sure": "vendor",
}


def write(folder: Path, facts: dict[str, Any]) -> Path:
    """Write facts as files: lists of values, or whole entries where one says what it is."""
    for file in KINDS:
        values = facts.get(file, [])
        entries = values if values and "values" in values[0] else [{"values": values, **REST}]
        (folder / f"{file}.yml").write_text(yaml.safe_dump(entries))
    return folder


def refused(folder: Path) -> list[str]:
    """Return what reading the facts is refused with."""
    with pytest.raises(CatalogueError) as caught:
        read_catalogue(folder)
    return str(caught.value).splitlines()


def test_sound_facts(tmp_path: Path) -> None:
    catalogue = read_catalogue(write(tmp_path, SOUND))
    assert sorted(catalogue.gpu_models) == ["a100", "a16", "a2", "v100"]
    assert catalogue.fact("gpu/v100").value.name == "V100"
    for missing in ("gpu/v1000", "board/v100"):
        with pytest.raises(KeyError):
            catalogue.fact(missing)


@pytest.mark.parametrize("spoilt", SPOILT, ids=lambda spoilt: spoilt["case"])
def test_spoilt_facts(spoilt: dict[str, Any], tmp_path: Path) -> None:
    facts = deepcopy(SOUND)
    facts[spoilt["file"]][spoilt["value"]] |= spoilt["change"]
    told = [f"{message} — correct the fact" for message in spoilt["told"]]
    assert refused(write(tmp_path, facts)) == told


def test_every_reference_is_spoilt_once() -> None:
    spoilt = {(case["file"], field) for case in SPOILT for field in case["change"]}
    assert {(file, field) for file, field, _, _ in REFERENCES} <= spoilt
    conditions = [one for case in SPOILT for one in case["change"].get("all", [])]
    assert {name for name, _, _ in DIMENSIONS} | set(WORDS) <= {
        one["dimension"] for one in conditions if set(one) == {"dimension", "equal"}
    }
    assert set(NAMES) <= {one["dimension"] for one in conditions if "name" in one}


def test_conditions_know_the_words_of_wishes() -> None:
    """They stand twice, because facts are read without the wishes' model."""
    assert WORDS["kind"] == set(get_args(model.Host.model_fields["kind"].annotation))
    assert WORDS["sharing"] == set(get_args(model.Sharing.model_fields["mode"].annotation))


def test_every_dimension_of_a_condition_is_compared_with_the_catalogue() -> None:
    every = get_args(Condition.model_fields["dimension"].annotation)
    assert {name for name, _, _ in DIMENSIONS} | set(WORDS) == set(every)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source": None}, "source: Input should be a valid dictionary or instance of Source"),
        ({"source": {"url": "https://example.com/"}}, "source.read: Field required"),
        (
            {"source": {"url": "https://example.com/", "read": "lately"}},
            "source.read: Input should be a valid date or datetime, input is too short",
        ),
        (
            {"source": {"url": "somewhere", "read": "2026-11-21"}},
            r"source.url: String should match pattern '^(https?://|tests/|docs/)\S+$'",
        ),
        (
            {"sure": "certainly"},
            "sure: Input should be 'vendor', 'tested', 'secondary', 'unproved' or 'site'",
        ),
        ({"reason": ""}, "reason: String should have at least 1 character"),
    ],
)
def test_facts_without_source(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    entry = {"values": SOUND["mps-limits"], **REST, **changes}
    assert refused(write(tmp_path, SOUND | {"mps-limits": [entry]})) == [
        f"fact is malformed — mps-limits.yml mps/{limit} — got {told} — correct the fact"
        for limit in ("newer", "older")
    ]


def test_an_id_twice_across_files(tmp_path: Path) -> None:
    entry = {"values": SOUND["mps-limits"][:1], **REST, "id": "gpu/a100"}
    assert refused(write(tmp_path, SOUND | {"mps-limits": [entry]})) == [
        "id is used twice — mps-limits.yml gpu/a100 — got gpu-models.yml — correct the fact"
    ]


def test_two_package_sets_of_one_driver(tmp_path: Path) -> None:
    facts = deepcopy(SOUND)
    facts["driver-packages"].append(facts["driver-packages"][0] | {"signed": True})
    name = "driver/debian-12-distro-580.95.05-proprietary"
    assert refused(write(tmp_path, facts)) == [
        (
            f"id is used twice — driver-packages.yml {name} — got driver-packages.yml — correct "
            "the fact"
        )
    ]


def test_what_values_share_stands_once(tmp_path: Path) -> None:
    older, newer = SOUND["mps-limits"]
    entry = {
        "each": {"clients": 48, "cuda_upto": None},
        "values": [
            {key: older[key] for key in ("limit", "cuda_from", "cuda_upto")},
            {key: newer[key] for key in ("limit", "cuda_from")},
        ],
        **REST,
    }
    limits = read_catalogue(write(tmp_path, SOUND | {"mps-limits": [entry]})).mps_limits
    assert {name: fact.value.clients for name, fact in limits.items()} == {"older": 48, "newer": 48}
    assert limits["older"].value.cuda_upto == "13.0"


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, SOUND)
    (tmp_path / "systems.yml").write_text("- 1\n- {id: x}\n")
    told = refused(tmp_path)
    wrong = {" — ".join(line.split(" — ")[:2]) for line in told}
    assert wrong == {
        "fact is malformed — systems.yml [0]",
        "fact is malformed — systems.yml x",
        *(
            f"os is not in the catalogue — {fact}"
            for fact in (
                "driver-packages.yml driver/debian-12-distro-580.95.05-proprietary",
                "kernels.yml kernel/debian-12-6.1.0-50",
                "container-runtimes.yml runtime/containerd-1.7.24-debian-12",
                "container-runtimes.yml runtime/containerd-2.2.6-debian-12",
                "runtime-repositories.yml runtime-repository/docker-debian-12",
                "hpc-tools.yml tool/mpi",
                "repositories.yml repository/debian-12-vendor-repo",
                "distribution-archives.yml archive/debian-12",
                "host-packages.yml host-packages/debian-12-docker",
            )
        ),
    }


def test_the_digest_is_of_the_files(tmp_path: Path) -> None:
    before = read_catalogue(write(tmp_path, SOUND)).digest
    assert read_catalogue(tmp_path).digest == before
    facts = deepcopy(SOUND)
    facts["gpu-models"][3]["memory_gib"] = 32
    assert read_catalogue(write(tmp_path, facts)).digest != before


def test_bedplates_own_facts(figures: dict[str, dict[str, float]]) -> None:
    """Reading them is the check."""
    catalogue = load_catalogue()
    tables = catalogue.tables()
    figures["facts in the catalogue"] = {file: len(table) for file, table in tables.items()}
    assert set(tables) == set(KINDS)
    assert [file for file, table in tables.items() if not table] == []
    for table in tables.values():
        for fact in table.values():
            assert catalogue.fact(fact.id) is fact
