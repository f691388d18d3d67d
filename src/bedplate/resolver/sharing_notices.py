"""What a plan says of what a sharing mode does not hold back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver.outcome import Notice
from bedplate.resolver.sharing_words import mode_fact
from bedplate.resolver.wishes import DRA_DRIVER
from bedplate.versions import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.lock.model import Pool
    from bedplate.resolver.candidates import Candidates

#: By who gets round a limit.
LIFTED = {
    "any-client": "any program that reaches {of} gets round the limits of all shares",
    "root": "a program that is root and reaches {of} gets round the limits of all shares",
}
OF = {"mps": "MPS's pipe", "hami": "the GPU without HAMi's library"}
STRONGER = "where users are not trusted, take mig or whole GPUs"


def of(
    name: str, pool: Pool, shared: Mapping[str, str], candidates: Candidates
) -> Iterator[Notice]:
    """Yield the notices about a pool's sharing mode."""
    driver, sharing = pool.nvidia_driver, pool.sharing
    if driver is None:
        return
    limits = sharing.mode == "dra" and sharing.memory == "limited"
    fact = mode_fact(sharing.mode, driver.branch, candidates.catalogue, limits=limits)
    if fact is None:
        return
    source = fact.source.url if fact.source.url.startswith("http") else ""
    if sharing.memory == "counted":
        text = f"{sharing.mode}, memory counted: nothing holds back what a share allocates"
        yield Notice(text, name, hint=STRONGER, source=source)
    if (lifted := fact.value.lifted_by) in LIFTED:
        how = LIFTED[lifted].format(of=OF[sharing.mode])
        text = f"{sharing.mode}, memory limited on R{driver.branch}: {how}"
        yield Notice(text, name, hint=STRONGER, source=source)
    if sharing.mode == "mps":
        text = "mps limits each client process: a share with two of them has twice its memory"
        yield Notice(text, name)
    if limits:
        text = "dra, memory limited: memory that CUDA manages (cudaMallocManaged) is not held back"
        yield Notice(text, name, hint=STRONGER, source=source)
    if sharing.mode == "dra":
        yield from _driver(name, driver.version, shared, candidates)


def _driver(
    name: str, version: str, shared: Mapping[str, str], candidates: Candidates
) -> Iterator[Notice]:
    """Report a driver that is older than what the DRA driver's maker supports."""
    if DRA_DRIVER not in shared:
        return
    fact = candidates.facts[shared[DRA_DRIVER]]
    floor = fact.value.driver_from
    if floor is not None and number(version) < number(floor):
        text = (
            f"NVIDIA supports its DRA driver {fact.value.version} from driver {floor} on; with "
            f"{version} it is taken because it ran with {fact.value.driver_seen} on simulated GPUs"
        )
        yield Notice(text, name, source=fact.source.url)
