"""What a plan says of what a sharing mode does not hold back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common.versions import number
from bedplate.resolver.outcome import Notice
from bedplate.resolver.sharing_words import mode_fact
from bedplate.resolver.wishes import DRA_DRIVER

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
#: What docs/sharing.md says in the same words.
EFFECTS = {
    "one-user": "programs of one user at a time have a GPU; one of another user waits, without a "
    "word, until the last of the first has ended",
    "shared-faults": "a program that faults, as by writing where it has no memory, ends the others "
    "on its GPU",
}
ONE_USER = "give all pods of the pool one runAsUser"
#: The user of notebooks is the hub's.
OF_NOTEBOOKS = (
    "notebooks of courses are all user 1000 and run side by side: give other pods of the pool "
    "runAsUser: 1000"
)
#: What takes the place of the GPU's use.
BY_PROGRAMS = "notebooks are idle by their kernels and programs, and usage has no idle GPU-hours"
STRONGER = "where users are not trusted, take mig or whole GPUs"


def of(
    name: str,
    pool: Pool,
    shared: Mapping[str, str],
    candidates: Candidates,
    *,
    courses: bool,
) -> Iterator[Notice]:
    """Yield the notices about a pool's sharing mode; *courses* are taught in it."""
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
        if sharing.mode == "mps":
            text = (
                f"mps, memory counted on R{driver.branch}: its limits were never measured there, "
                "and a program may go over them"
            )
        yield Notice(text, name, hint=STRONGER, source=source)
    if (lifted := fact.value.lifted_by) in LIFTED:
        how = LIFTED[lifted].format(of=OF[sharing.mode])
        text = f"{sharing.mode}, memory limited on R{driver.branch}: {how}"
        yield Notice(text, name, hint=STRONGER, source=source)
    if sharing.mode == "mps":
        text = "mps limits each client process: a share with two of them has twice its memory"
        yield Notice(text, name)
        hints = {"one-user": OF_NOTEBOOKS if courses else ONE_USER, "shared-faults": STRONGER}
        for one in candidates.catalogue.mps_effects.values():
            found, effect = one.source.url, one.value.effect
            web = found if found.startswith("http") else ""
            yield Notice(f"mps: {EFFECTS[effect]}", name, hint=hints[effect], source=web)
    if limits:
        text = "dra, memory limited: memory that CUDA manages (cudaMallocManaged) is not held back"
        yield Notice(text, name, hint=STRONGER, source=source)
    if courses and (unmeasured := candidates.catalogue.unmeasured_modes.get(sharing.mode)):
        text = f"{sharing.mode}: idle shares cannot be measured: {BY_PROGRAMS}"
        yield Notice(text, name, source=unmeasured.source.url)
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
