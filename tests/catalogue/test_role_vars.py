"""What the roles' data by system says is what the catalogue says, system by system."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from jinja2.nativetypes import NativeEnvironment

from bedplate.catalogue.load import load_catalogue

ROOT = Path(__file__).parents[2]


def data(role: str, system: str) -> dict[str, Any]:
    """Read a role's data for a system."""
    loaded: dict[str, Any] = yaml.safe_load(
        (ROOT / "roles" / role / "vars" / f"{system}.yml").read_text()
    )
    return loaded


def rendered(text: Any, **variables: Any) -> Any:
    """What a template of a role's data comes to."""
    return NativeEnvironment().from_string(text).render(**variables)


def test_every_system_of_the_catalogue_has_its_data() -> None:
    systems = {fact.value.os for fact in load_catalogue().systems.values()}
    for role in ("host_baseline", "nvidia_driver"):
        folder = ROOT / "roles" / role / "vars"
        assert {path.stem for path in folder.glob("*-*.yml")} == systems, role


def test_the_vendors_repositories_are_the_catalogues(figures: dict[str, dict[str, float]]) -> None:
    compared: Counter[str] = Counter()
    for fact in load_catalogue().repositories.values():
        value = fact.value
        said = data("nvidia_driver", value.os).get("__nvidia_driver_repository", {})
        wanted: dict[str, Any] = {
            "url": value.url,
            "key": value.url + value.key,
            "fingerprint": value.fingerprint,
            "origin": value.origin,
        }
        if value.module:
            wanted |= {"module": value.module, "streams": value.streams}
        assert said == wanted, fact.id
        compared["repositories"] += 1
        compared["lines of them"] += len(wanted)
    figures["roles' repositories against the catalogue"] = dict(compared)
    assert compared["repositories"] == len(load_catalogue().systems)


def test_the_toolkits_repository_is_the_catalogues() -> None:
    path = ROOT / "roles/nvidia_container_toolkit/vars/main.yml"
    said: dict[str, Any] = yaml.safe_load(path.read_text())
    signed = said["__nvidia_container_toolkit_signed"]
    names = ("nvidia-container-toolkit-base", "nvidia-container-toolkit")
    for name in names:
        package = load_catalogue().artifacts[name].value.package
        assert package is not None
        assert said["__nvidia_container_toolkit_repositories"]["Debian"]["url"] == package.index
        assert (signed["key"], signed["fingerprint"]) == (package.key, package.fingerprint)
    assert set(names) < set(said["__nvidia_container_toolkit_names"])


def test_the_runtimes_repositories_are_the_catalogues(
    figures: dict[str, dict[str, float]],
) -> None:
    catalogue = load_catalogue()
    said = data("container_runtime", "main")["__container_runtime_repositories"]
    compared = 0
    for fact in catalogue.runtime_repositories.values():
        value = fact.value
        named = ("url", "suite", "components", "key", "fingerprint", "origin")
        wanted = {name: getattr(value, name) for name in named if getattr(value, name)}
        assert said[value.vendor][value.os] == wanted, fact.id
        compared += 1
    assert compared == sum(map(len, said.values()))
    assert set(said["docker"]) == {fact.value.os for fact in catalogue.systems.values()}
    packages = data("container_runtime", "main")["__container_runtime_vendor"]
    for runtime in catalogue.container_runtimes.values():
        if runtime.value.source == "vendor-repo":
            assert list(runtime.value.packages) == packages[runtime.value.runtime], runtime.id
    figures["runtimes' repositories against the catalogue"] = {"repositories": compared}


def test_streams_are_of_every_branch_that_has_packages() -> None:
    catalogue = load_catalogue()
    for fact in catalogue.driver_packages.values():
        value = fact.value
        repository = catalogue.repositories.get(f"{value.os}-vendor-repo")
        if value.source != "vendor-repo" or repository is None or not repository.value.module:
            continue
        stream = repository.value.streams[value.flavour].format(branch=value.branch)
        assert stream == f"{value.branch}-{'open' if value.flavour == 'open' else 'dkms'}"


def test_kernels_are_named_as_in_the_catalogue(figures: dict[str, dict[str, float]]) -> None:
    compared: Counter[str] = Counter()
    for fact in load_catalogue().kernels.values():
        value = fact.value
        template = data("host_baseline", value.os)["__host_baseline_kernel_packages"]
        names = rendered(
            template, host_baseline_kernel=value.kernel, __host_baseline_kernel_headers=True
        )
        assert names[-1] == value.headers, fact.id
        without = rendered(
            template, host_baseline_kernel=value.kernel, __host_baseline_kernel_headers=False
        )
        assert without == names[:-1]
        compared[f"kernels of {value.os}"] += 1
    figures["roles' kernel packages against the catalogue"] = dict(compared)
    assert len(compared) == len(load_catalogue().systems)
