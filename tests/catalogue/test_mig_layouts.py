"""The vendor's own layouts of MIG, against the places that the catalogue gives to profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bedplate.catalogue import load_catalogue
from bedplate.common.versions import number
from bedplate.resolver.conditions import meets
from bedplate.resolver.mig_layouts import fits, places_known, shapes_of

DATA = Path(__file__).with_name("data") / "mig-layouts.yml"
#: An H100 of 96 GB that no list of GPUs of a driver has.
NO_MODEL = {"10de:233d", "10de:20b1"}


def told() -> dict[str, Any]:
    """Return the committed excerpts."""
    content: dict[str, Any] = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return content


def test_mig_managers_own_layout_fits_on_every_gpu_that_it_is_for() -> None:
    """A layout that the vendor ships is never refused for want of places."""
    catalogue = load_catalogue()
    wrong, unknown, compared = [], set(), 0
    for entry in told()["balanced"]:
        for identifier in entry["of"]:
            facts = catalogue.gpu_models.values()
            models = [one.value.model for one in facts if identifier in one.value.pci]
            unknown |= {identifier} if not models else set()
            for model in models:
                shapes, cut = shapes_of(model, catalogue), entry["cut"]
                compared += 1
                if set(cut) - set(shapes) or not places_known(cut, shapes) or not fits(cut, shapes):
                    wrong.append(f"{model}: {cut}")
    assert wrong == []
    assert unknown == NO_MODEL
    assert compared > len(told()["balanced"])


def test_gpus_of_nvidias_list_have_as_many_instances() -> None:
    """Each GPU that NVIDIA lists has profiles, the smallest of them as often as the list says."""
    catalogue = load_catalogue()
    most = {
        model: max((s.value.instances for s in shapes_of(model, catalogue).values()), default=0)
        for model in told()["instances"]
    }
    assert most == told()["instances"]


def test_no_driver_divides_a_gpu_before_its_first_one_with_mig() -> None:
    """Drivers of the catalogue that are older are refused, by the GPU's facts or as broken."""
    catalogue = load_catalogue()
    for model, first in told()["drivers"].items():
        gpu = catalogue.gpu_models[model].value
        least = catalogue.architectures[gpu.architecture].value.first_branch
        floors = [number(one) for one in (least, gpu.open_from, gpu.driver_from) if one]
        bad = [
            fact.value.all
            for fact in catalogue.known_bad.values()
            if any((one.dimension, one.equal) == ("sharing", "mig") for one in fact.value.all)
            and all(meets(one, gpu) for one in fact.value.all if one.dimension == "gpu")
        ]
        for fact in catalogue.driver_packages.values():
            driver = fact.value
            if number(driver.version) >= number(first) or driver.flavour not in gpu.flavours:
                continue
            older = any(number(driver.version) < floor for floor in floors)
            of_drivers = [one for some in bad for one in some if one.dimension == "driver"]
            broken = any(meets(one, driver) for one in of_drivers)
            assert older or broken, f"{model} with {driver.version} and MIG"
