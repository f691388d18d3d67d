"""What a plan says of GPUs that lack something which others have, or need something first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.common.versions import last, number
from bedplate.resolver.outcome import Notice, Stops

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.hardware_facts import GpuModel
    from bedplate.lock.model import Framework, Pool


def of(name: str, pool: Pool, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield the notices about a pool's GPU models."""
    models = [catalogue.gpu_models[gpu.model].value for gpu in pool.gpu]
    yield from _without_gpudirect(name, pool, catalogue)
    for model in models:
        yield from _mig(name, pool, model, catalogue)
        yield from _targets(name, pool.cuda_toolkit, model, catalogue)
        for build in (one for one in pool.frameworks if one.cuda):
            yield from _compiled(name, build, model, catalogue)


def _without_gpudirect(name: str, pool: Pool, catalogue: Catalogue) -> Iterator[Notice]:
    if pool.rdma is None or pool.rdma.method != "host-memory":
        return
    ways = (fact for fact in catalogue.rdma_paths.values() if fact.value.method == "host-memory")
    models = ", ".join(gpu.model for gpu in pool.gpu)
    text = (
        f"GeForce GPUs have no GPUDirect RDMA: network cards reach the memory of {models} through "
        "the host's memory"
    )
    hint = "give each model a pool of its own" if pool.gpu[1:] else ""
    yield Notice(text, name, hint=hint, source=next(ways).source.url)


def _mig(name: str, pool: Pool, model: GpuModel, catalogue: Catalogue) -> Iterator[Notice]:
    """Yield what has to be done to a GPU before MIG can be enabled."""
    fact = catalogue.mig_conditions.get(model.model)
    if fact is None or pool.sharing.mode != "mig":
        return
    needs = []
    if fact.value.display_mode is not None:
        needs.append(f"display mode {fact.value.display_mode}")
    if fact.value.firmware_from is not None:
        needs.append(f"VBIOS {fact.value.firmware_from} or newer")
    text = f"MIG on {model.model} needs {' and '.join(needs)}"
    hint = "see nvidia-smi --query-gpu=vbios_version --format=csv on each host"
    if fact.value.display_mode is not None:
        hint = (
            "they are delivered in another mode: set it on each host by displaymodeselector "
            f"--gpumode {fact.value.display_mode}, and reboot; displays at the GPU then stay dark"
        )
    yield Notice(text, name, hint=hint, source=fact.source.url, stops=Stops.SITE_YML)


def _targets(
    name: str, toolkits: Sequence[str], model: GpuModel, catalogue: Catalogue
) -> Iterator[Notice]:
    """Yield toolkits without a target for a GPU: they make code for an older capability."""
    capability = model.compute_capability
    fact = catalogue.cuda_targets.get(capability)
    for version in toolkits if fact is not None else ():
        if fact is None or number(version) >= number(fact.value.cuda_from):
            continue
        text = (
            f"CUDA {version} does not compile for {model.model}, of compute capability "
            f"{capability}: only code for {capability.partition('.')[0]}.0 runs there"
        )
        hint = f'CUDA {fact.value.cuda_from} is the first that does: write "{fact.value.cuda_from}"'
        yield Notice(text, name, hint=hint, source=fact.source.url)


def _compiled(
    name: str, build: Framework, model: GpuModel, catalogue: Catalogue
) -> Iterator[Notice]:
    """Yield what a framework compiles again, or cannot compile, for a GPU."""
    fact = catalogue.frameworks[f"{build.name}-{build.version}-{build.variant}"]
    capability = model.compute_capability
    major, known = capability.partition(".")[0], fact.value.compute_capabilities
    if any(one.partition(".")[0] == major and number(one) <= number(capability) for one in known):
        return
    text = (
        f"{build.name} {build.version} has no code for {model.model}, of compute capability "
        f"{capability}: it is compiled from PTX at the first start"
    )
    yield Notice(text, name, source=fact.source.url)
    for limit in catalogue.framework_limits.values():
        its = limit.value
        if (
            its.framework == build.name
            and number(build.version) <= last(its.version_upto)
            and number(capability) > last(its.capability_upto)
        ):
            text = (
                f"{build.name} {build.version}: what {its.compiler} compiles at run time fails on "
                f"{model.model}, of compute capability {capability}"
            )
            hint = f"run a program without {its.compiler}, or take another framework"
            yield Notice(text, name, hint=hint, source=limit.source.url)
