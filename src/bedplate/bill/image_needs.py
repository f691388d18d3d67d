"""What an image asks of driver and GPUs, as its configuration says, and whether machines have it.

Images built by Bedplate's Containerfiles, and on them, have labels `io.bedplate.*`. NVIDIA's say it
in variables of their environment: `CUDA_VERSION`, and `NVIDIA_REQUIRE_*`,
whose words are alternatives of terms joined by commas
(https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html).
Containers that get their GPUs by CDI are started without a check of them: it is made here, before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bedplate.bill.errors import ResolveError, refused
from bedplate.bill.registry import built, configuration
from bedplate.common.versions import parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.bill.places import Places
    from bedplate.bill.web import Web
    from bedplate.catalogue import Catalogue
    from bedplate.lock.model import Pool

REQUIRE, DISABLE = "NVIDIA_REQUIRE_", "NVIDIA_DISABLE_REQUIRE"
TERM = re.compile(r"(cuda|driver|arch|brand)(>=|<=|!=|=|>|<)(\S+)")
#: PyTorch's images have the chips that their extensions are built for: `7.0 7.5 8.0+PTX`.
BUILT_FOR = "TORCH_CUDA_ARCH_LIST"
LABEL = "io.bedplate."
CAPABILITY = re.compile(r"(\d+\.\d)[a-z]?(\+PTX)?")
#: NVML's names of markets that have one name. Boards for workstations have several.
BRANDS = {"data-centre": "tesla", "geforce": "geforce"}
PLATFORM = "linux/amd64"


@dataclass(frozen=True)
class Asks:
    """What an image says of itself.

    Attributes:
        platform: as `linux/amd64`.
        cuda: the CUDA that it has, to the minor version; None where it says nothing.
        built_for: compute capabilities that it has code for; none where it says nothing.
        ptx: whether newer chips can compile its code.
        constraints: the texts of `NVIDIA_REQUIRE_*`, by variable; all must hold.
    """

    platform: str
    cuda: str | None = None
    built_for: tuple[str, ...] = ()
    ptx: bool = False
    constraints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Machine:
    """The driver and one model of GPU of a pool.

    Attributes:
        driver: its version.
        cuda: the newest CUDA that the driver has; None where the catalogue does not say.
        majors: the majors of CUDA that it runs by minor-version compatibility.
        capability: the GPU's compute capability.
        brand: NVML's name of its market; None where that is not one.
        gpu: the catalogue's name of the model.
    """

    driver: str
    cuda: str | None
    majors: frozenset[int]
    capability: str
    brand: str | None = None
    gpu: str = ""


@dataclass(frozen=True)
class Mismatch:
    """What does not go together, what the image has or asks for, and what the machine has."""

    what: str
    got: str
    allowed: str


def asked(web: Web, places: Places, reference: str) -> tuple[str, Asks]:
    """Return the digest of an image's build for this platform, and what it asks for.

    Args:
        web: the client.
        places: where registries are asked.
        reference: `HOST/NAME:TAG`, `HOST/NAME@sha256:…`, or both.

    Raises:
        ResolveError: the registry does not give manifest or configuration.
    """
    where, chosen, _, configuration = read(web, places, reference)
    try:
        return chosen, asks_of(configuration)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _no_configuration(reference, where) from error


def read(
    web: Web, places: Places, reference: str
) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Return where an image lies, its digest for this platform, manifest and configuration.

    Raises:
        ResolveError: the registry does not give manifest or configuration.
    """
    what = f"image {reference} is not found"
    name, _, digest = reference.partition("@")
    where = places.repository(name if ":" in name.rpartition("/")[2] else f"{name}:")
    _, chosen, manifest, _ = built(web, where, reference, what, digest or None)
    try:
        return where, chosen, manifest, configuration(web, where, manifest, what)
    except (KeyError, TypeError, ValueError) as error:
        raise _no_configuration(reference, where) from error


def _no_configuration(reference: str, where: str) -> ResolveError:
    return refused(f"image {reference} is not found", where, "no image configuration")


def asks_of(configuration: Mapping[str, Any]) -> Asks:
    """Return what an image's configuration says (OCI's image specification, `config.Env`)."""
    inner = configuration.get("config") or {}
    pairs = (str(text).partition("=") for text in inner.get("Env") or ())
    environment = {name: value for name, _, value in pairs}
    named = [f"{configuration.get(key, 'unknown')}" for key in ("os", "architecture")]
    labels = {key: str(value) for key, value in (inner.get("Labels") or {}).items()}
    named_chips = labels.get(f"{LABEL}compute-capabilities", environment.get(BUILT_FOR, ""))
    found = CAPABILITY.findall(named_chips)
    off = environment.get(DISABLE, "").lower() not in {"", "0", "false"}
    constraints = () if off else sorted(environment.items())
    said = labels.get(f"{LABEL}cuda", environment.get("CUDA_VERSION", ""))
    version = re.match(r"\d+\.\d+", said)
    return Asks(
        platform="/".join(named),
        cuda=version[0] if version else None,
        built_for=tuple(capability for capability, _ in found),
        ptx=any(ptx for _, ptx in found) or labels.get(f"{LABEL}ptx") == "true",
        constraints=tuple(
            (name, text) for name, text in constraints if name.startswith(REQUIRE) and text.strip()
        ),
    )


def mismatches(asks: Asks, machine: Machine) -> Iterator[Mismatch]:
    """Yield what keeps an image from running on a machine; nothing where it runs."""
    if asks.platform != PLATFORM:
        yield Mismatch("image is for another platform", asks.platform, PLATFORM)
    cuda_major = int(asks.cuda.partition(".")[0]) if asks.cuda else None
    if cuda_major is not None and cuda_major not in machine.majors:
        yield Mismatch(
            "driver is too old for the image's CUDA",
            f"CUDA {asks.cuda}",
            f"CUDA {' or '.join(map(str, sorted(machine.majors)))} with driver {machine.driver}",
        )
    else:
        for name, text in asks.constraints:
            if not satisfied(text, machine):
                has = f"driver {machine.driver}, CUDA {machine.cuda or 'unknown'}"
                yield Mismatch(f"driver does not meet {name}", _short(text), has)
    if asks.built_for and not _has_code(asks, machine.capability):
        yield Mismatch(
            "image has no code for the GPU",
            f"compute capabilities {', '.join(asks.built_for)}{' and newer' if asks.ptx else ''}",
            f"{machine.capability} ({machine.gpu})",
        )


def satisfied(text: str, machine: Machine) -> bool:
    """Tell whether a machine meets a text of `NVIDIA_REQUIRE_*`.

    Words are alternatives, the terms of a word must all hold. A term of something that is not
    known of the machine does not hold, but for brands; a word that is no term is left out.
    """
    words = [word.split(",") for word in text.split()]
    terms = [[TERM.fullmatch(term) for term in word] for word in words]
    known = [word for word in terms if all(word)]
    return not known or any(all(_holds(term, machine) for term in word if term) for word in known)


def machines(pool: Pool, catalogue: Catalogue) -> list[Machine]:
    """Return the driver with each model of GPU that a pool of a lock has."""
    driver = pool.nvidia_driver
    if driver is None:
        return []
    cuda = next(
        (
            one.value.cuda
            for one in catalogue.driver_branches.values()
            if one.value.branch == driver.branch
        ),
        None,
    )
    majors = frozenset(
        int(one.value.major)
        for one in catalogue.cuda_majors.values()
        if parts(one.value.driver_from) <= parts(driver.version)
    )
    models = {fact.value.model: fact.value for fact in catalogue.gpu_models.values()}
    return [
        Machine(
            driver=driver.version,
            cuda=cuda,
            majors=majors,
            capability=models[gpu.model].compute_capability,
            brand=BRANDS.get(models[gpu.model].market),
            gpu=gpu.model,
        )
        for gpu in pool.gpu
    ]


def _holds(term: re.Match[str], machine: Machine) -> bool:
    what, operator, value = term.groups()
    if what == "brand":
        if machine.brand is None:
            return True
        return (machine.brand == value) is (operator == "=")
    has = {"cuda": machine.cuda, "driver": machine.driver, "arch": machine.capability}[what]
    if has is None or not re.fullmatch(r"[\d.]+", value):
        return False
    ours, wanted = _padded(has), _padded(value)
    return {
        ">=": ours >= wanted,
        "<=": ours <= wanted,
        ">": ours > wanted,
        "<": ours < wanted,
        "=": ours == wanted,
        "!=": ours != wanted,
    }[operator]


def _padded(version: str) -> tuple[int, ...]:
    """Return a version's numbers, with zeros to the length at which all compare."""
    numbers = [int(part) for part in version.split(".") if part]
    return tuple([*numbers, 0, 0, 0][:3])


def _has_code(asks: Asks, capability: str) -> bool:
    """Tell whether there is machine code for a chip, or PTX of an older one to compile."""
    ours = _padded(capability)
    built = [_padded(one) for one in asks.built_for]
    return any(one[0] == ours[0] and one <= ours for one in built) or (
        asks.ptx and max(built) <= ours
    )


def _short(text: str) -> str:
    """Return the first alternatives of a constraint, which may have fifty."""
    words = text.split()
    return " or ".join(words[:3]) + (f" or {len(words) - 3} more" if len(words) > 3 else "")
