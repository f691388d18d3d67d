"""Boards against sources that nobody here wrote: Debian's pci.ids and lists of nvidia-detect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.common.versions import number
from tests.catalogue.debian import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.catalogue.hardware_facts import Architecture, GpuModel

    Figures = dict[str, dict[str, float]]

RELEASE = "trixie"
PACKAGES = {"pci.ids": "main", "nvidia-detect": "non-free"}

#: Newest driver of each branch that was out on 2025-06-09, the date of that release's pci.ids.
#: Boards that a later driver was the first to list need not be in it.
KNOWN_UPTO = {"570": "570.153.02", "575": "575.57.08"}

#: What says nothing about which board it is: pci.ids writes Mobile for the vendor's Laptop GPU.
COMMON = re.compile(r"nvidia|tesla|geforce|quadro|amd|instinct|mobile|laptop|gpu|max|q|with|design")

#: Architecture and compute capability by what a chip's name begins with; the first that fits.
CHIPS = (
    ("GM10", ("maxwell", "5.0")),
    ("GM20", ("maxwell", "5.2")),
    ("GP100", ("pascal", "6.0")),
    ("GP10", ("pascal", "6.1")),
    ("GV100", ("volta", "7.0")),
    ("TU1", ("turing", "7.5")),
    ("GA100", ("ampere", "8.0")),
    ("GA10", ("ampere", "8.6")),
    ("AD10", ("ada", "8.9")),
    ("GH100", ("hopper", "9.0")),
    ("GB10", ("blackwell", "10.0")),
    ("GB11", ("blackwell", "10.3")),
    ("GB20B", ("blackwell", "12.1")),
    ("GB20", ("blackwell", "12.0")),
)

#: Where the vendor's table and pci.ids name one identifier differently, with the reason.
OTHER_NAMES = {
    **dict.fromkeys(
        [
            "a100-pg509-200 10de:20b0",
            "a800-40gb-active 10de:20f6",
            "dgx-display 10de:1fb0",
            "eizo-quadro-med-xn92 10de:1eb1",
            "matrox-d-series-d2450 10de:1f76",
            "matrox-d-series-d2480 10de:1f76",
            "pg509-210 10de:20b2",
            "rtx-3060-laptop-by-subsystem 10de:249c",
            "rtx-3060-laptop-by-subsystem 10de:24a0",
            "rtx-3060-laptop-by-subsystem 10de:25a0",
            "rtx-3060-laptop-by-subsystem 10de:25a2",
        ],
        "told apart by its subsystem, while pci.ids names the main board of the identifier",
    ),
    "h100-sxm5-80gb 10de:2330": "HBM3 is the board with the socket SXM5",
    "h20-3e-sxm5-141gb 10de:232c": "3e is short for HBM3e",
    "h100-nvl-94gb 10de:2321": "pci.ids calls the pair for NVLink H100L",
    "h800-nvl-94gb 10de:233a": "pci.ids calls the pair for NVLink H800L",
    "rtx-2050 10de:25a7": "sold as GeForce MX570 before",
}

#: Lists of nvidia-detect: the branch of each, and the driver whose identifiers it has.
LISTS = {
    "nvidia-legacy-340xx": ("340", "340.108"),
    "nvidia-legacy-390xx": ("390", "390.157"),
    "nvidia-legacy-390xx-amd64": ("390", "390.157"),
    "nvidia-tesla-418": ("418", "418.226.00"),
    "nvidia-tesla-440": ("440", "440.118.02"),
    "nvidia-tesla-450": ("450", "450.248.02"),
    "nvidia-tesla-460": ("460", "460.106.00"),
    "nvidia-tesla-470": ("470", "470.57.02"),
    "nvidia-tesla-535": ("535", "535.216.01"),
    "nvidia": ("550", "550.163.01"),
}
#: Lists that have every board of their driver, not only what changed since an older one.
WHOLE_LISTS = ("nvidia-tesla-470", "nvidia-tesla-535", "nvidia")

#: Identifiers of boards that those lists leave out, and what else is known of it.
NOT_LISTED = {
    "10de:13bd": "M10: in no whole list",
    "10de:1b01": "GeForce GTX 1080 Ti 10GB: in no whole list",
    "10de:1b07": "P102-100: in no whole list",
    "10de:1b39": "P10: in no whole list",
    "10de:1bb3": "P4: in the list of 470, not in those after it",
    "10de:1db2": "V100-DGXS-16GB: in no whole list",
    "10de:1df5": "second identifier of V100-SXM2-16GB: in the list of 470, not in those after it",
    "10de:2336": "H100 80GB HBM2e: in no whole list",
    "10de:2685": "GeForce RTX 4090 D: younger than the list of 535",
}
#: Debian's open module lists it at 535, the vendor's table of the open module from 575 on. The
#: vendor's holds.
OPEN_IN_DEBIAN_ONLY = {"10de:1eb8": "T4"}


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the packages of a newer Debian than the oldest supported one are unpacked."""
    return unpack(tmp_path_factory.mktemp("debian"), RELEASE, PACKAGES)


@pytest.fixture(scope="module")
def names(debian: Path) -> dict[str, str]:
    """Names by vendor and device identifier, out of pci.ids: `GV100GL [Tesla V100 SXM2 32GB]`."""
    found = {}
    vendor = ""
    for line in (debian / "usr/share/misc/pci.ids").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([0-9a-f]{4})  ", line):
            vendor = match[1]
        elif match := re.match(r"\t([0-9a-f]{4})  (.+)", line):
            found[f"{vendor}:{match[1]}"] = match[2]
    return found


@pytest.fixture(scope="module")
def lists(debian: Path) -> dict[str, set[str]]:
    """Identifiers by list of nvidia-detect."""
    return {
        path.stem: {f"{x[:4]}:{x[4:]}".lower() for x in path.read_text().split()}
        for path in (debian / "usr/share/nvidia").glob("*.ids")
    }


def boards() -> Iterator[tuple[str, GpuModel, Architecture]]:
    """Return every identifier with its model and architecture."""
    catalogue = load_catalogue()
    for fact in catalogue.gpu_models.values():
        architecture = catalogue.architectures[fact.value.architecture].value
        for pci in fact.value.pci:
            yield pci, fact.value, architecture


def sold(name: str) -> str:
    """Return what stands in brackets after the chip."""
    return (re.findall(r"\[(.+)]", name) or [name])[0]


def words(name: str) -> set[str]:
    """Return what tells a board from others, in lower case."""
    name = re.sub(r"(?<=\d)(?=ti\b)", " ", name.lower())
    return {word for word in re.findall(r"[a-z0-9]+", name) if not COMMON.fullmatch(word)}


def agree(ours: str, theirs: str) -> bool:
    """Tell whether one name says all that the other says: `A2` and `A2 / A16` agree."""
    return bool(words(ours)) and (words(ours) <= words(theirs) or words(theirs) <= words(ours))


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("Tesla V100-SXM2-32GB", "Tesla V100 SXM2 32GB", True),
        ("NVIDIA A2", "A2 / A16", True),
        ("NVIDIA GeForce RTX 3050Ti Laptop GPU", "GeForce RTX 3050 Ti Mobile", True),
        ("Tesla V100-SXM2-32GB", "Tesla V100 SXM2 16GB", False),
        ("NVIDIA L40", "L40S", False),
        ("NVIDIA GeForce", "Tesla T4", False),
    ],
)
def test_what_counts_as_the_same_name(ours: str, theirs: str, *, same: bool) -> None:
    assert agree(ours, theirs) == same


def out_by_then(model: GpuModel) -> bool:
    """Tell whether a board was listed by a driver that was out when pci.ids was made."""
    if model.open_from is None:
        return True
    branch = model.open_from.split(".")[0]
    if branch in KNOWN_UPTO:
        return number(model.open_from) <= number(KNOWN_UPTO[branch])
    return branch < max(KNOWN_UPTO)


def test_boards_are_in_pci_ids(names: dict[str, str], figures: Figures) -> None:
    wrong = []
    different = set()
    compared = 0
    for pci, model, _ in boards():
        if pci not in names:
            if out_by_then(model):
                wrong.append(f"{model.model} {pci} is not in pci.ids")
            continue
        compared += 1
        if agree(model.name, sold(names[pci])):
            continue
        different.add(f"{model.model} {pci}")
        if f"{model.model} {pci}" not in OTHER_NAMES:
            wrong.append(f"{model.model} {pci}: {model.name}, in pci.ids {names[pci]}")
    figures["boards against Debian's pci.ids: rows"] = {
        "compared by name": compared,
        "named differently, with a reason": len(different),
        "younger than pci.ids": sum(pci not in names for pci, _, _ in boards()),
    }
    assert wrong == []
    assert sorted(set(OTHER_NAMES) - different) == [], "reasons for what is not different"
    assert compared > 300


def test_chips_tell_architecture_and_compute_capability(
    names: dict[str, str], figures: Figures
) -> None:
    wrong = []
    compared = 0
    for pci, model, _ in boards():
        if chip := re.match(r"[A-Z]{2}[0-9A-F]{3}", names.get(pci, "")):
            compared += 1
            said = (model.architecture, model.compute_capability)
            expected = next(value for start, value in CHIPS if chip[0].startswith(start))
            if said != expected:
                wrong.append(f"{model.model} {pci}: {said}, {chip[0]} is {expected}")
    figures["chips of Debian's pci.ids: rows"] = {"compared": compared}
    assert wrong == []
    assert compared > 300


def test_other_makers_boards_are_in_pci_ids(names: dict[str, str], figures: Figures) -> None:
    rows = [
        (fact.value, pci)
        for fact in load_catalogue().accelerators.values()
        for pci in fact.value.pci
        if fact.sure != "unproved"
    ]
    wrong = [
        f"{a.accelerator} {pci}" for a, pci in rows if not agree(a.name, sold(names.get(pci, "")))
    ]
    figures["other makers' boards against Debian's pci.ids: rows"] = {"compared": len(rows)}
    assert wrong == []
    assert len(rows) > 0


def test_lists_of_branches_agree_with_architectures(
    lists: dict[str, set[str]], figures: Figures
) -> None:
    """What a branch's list has is driven by the branch."""
    wrong = []
    rows = figures["boards against the lists of nvidia-detect: rows"] = {}
    for name, (branch, _) in LISTS.items():
        listed = [(pci, m, a) for pci, m, a in boards() if pci in lists[name]]
        rows[f"in {name}"] = len(listed)
        wrong += [
            f"{model.model} {pci} is in {name}, not between {a.first_branch} and {a.last_branch}"
            for pci, model, a in listed
            if not a.first_branch <= branch <= (a.last_branch or branch)
        ]
    assert wrong == []
    assert [name for name, compared in rows.items() if compared == 0] == []


def test_architectures_agree_with_lists_of_branches(
    lists: dict[str, set[str]], figures: Figures
) -> None:
    """What a branch drives by its architecture is in the branch's list."""
    missing: dict[str, list[str]] = {}
    rows = figures["architectures against the lists of nvidia-detect: rows"] = {}
    for name in WHOLE_LISTS:
        branch, version = LISTS[name]
        driven = [
            (pci, model)
            for pci, model, a in boards()
            if a.first_branch <= branch <= (a.last_branch or branch)
            and (model.open_from is None or number(model.open_from) <= number(version))
        ]
        rows[f"driven by {branch}"] = len(driven)
        for pci, model in driven:
            if pci not in lists[name]:
                missing.setdefault(pci, []).append(f"{model.model} not in {name}")
    assert {pci: told for pci, told in missing.items() if pci not in NOT_LISTED} == {}
    assert sorted(set(NOT_LISTED) - set(missing)) == [], "reasons for what is listed"
    assert min(rows.values()) > 0


def test_open_module_agrees_with_debian(lists: dict[str, set[str]], figures: Figures) -> None:
    """What Debian's open module lists may have it, from a driver on that Debian ships or older."""
    _, version = LISTS["nvidia"]
    listed = [(pci, model) for pci, model, _ in boards() if pci in lists["nvidia-open"]]
    disagree = {
        pci
        for pci, model in listed
        if "open" not in model.flavours
        or model.open_from is None
        or number(model.open_from) > number(version)
    }
    figures["open module against the list of nvidia-detect: rows"] = {"compared": len(listed)}
    assert disagree == set(OPEN_IN_DEBIAN_ONLY)
    assert len(listed) > 0


def test_old_boards_never_get_the_open_module_or_a_newer_branch(
    lists: dict[str, set[str]], figures: Figures
) -> None:
    """Newer drivers' lists mark them for the open module, which two vendors took for true."""
    old = [row for row in boards() if number(row[1].compute_capability) < number("7.5")]
    figures["boards older than Turing: rows"] = {"compared": len(old)}
    assert [m.model for _, m, _ in old if m.flavours != ["proprietary"] or m.open_from] == []
    assert {a.last_branch for _, _, a in old} == {"580"}
    assert {tuple(a.flavours) for _, _, a in old} == {("proprietary",)}
    assert [m.model for pci, m, _ in old if pci in lists["nvidia-open"]] == []
    assert {a.architecture for _, _, a in old} == {"maxwell", "pascal", "volta"}
    assert {"v100-sxm2-16gb", "v100-sxm2-32gb", "p40", "m60"} <= {m.model for _, m, _ in old}


def test_profiles_fit_on_their_boards(figures: Figures) -> None:
    """Instances of a profile take no more slices and no more memory than the board has."""
    catalogue = load_catalogue()
    compared = 0
    wrong = []
    geometries = [fact.value for fact in catalogue.mig_geometries.values()]
    for geometry in geometries:
        slices, gib = map(int, re.findall(r"^(\d)g\.(\d+)gb", geometry.profile)[0])
        for name in geometry.models:
            model = catalogue.gpu_models[name].value
            whole = max(g.instances for g in geometries if name in g.models)
            compared += 1
            if geometry.instances * slices > whole:
                wrong.append(f"{name} {geometry.profile}: more than {whole} slices")
            # A profile's name rounds up.
            if geometry.instances * (gib - 1) >= (model.memory_gib or 1000):
                wrong.append(f"{name} {geometry.profile}: more than {model.memory_gib} GiB")
            if number(model.compute_capability) < number("8.0"):
                wrong.append(f"{name} has no MIG")
    figures["MIG profiles against the boards' memory: rows"] = {"compared": compared}
    assert wrong == []
    assert compared > 0
