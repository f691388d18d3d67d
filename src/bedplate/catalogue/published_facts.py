"""What upstream publishes, and where: files, images, builds of frameworks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bedplate.catalogue.facts import Chart, ComputeCapability, Value, Version


class Package(Value):
    """A package of a signed apt repository without suites; `{version}` is the component's."""

    name: str
    version: str
    index: Annotated[str, Field(pattern=r"^https://\S+/$")]
    key: Annotated[str, Field(pattern=r"^https://\S+$")]
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]


class ImageLayer(Value):
    """The layer of an image that adds one file, named by its path; `{version}` as elsewhere."""

    image: Annotated[str, Field(pattern=r"^[a-z0-9.-]+\.[a-z]+/[a-z0-9./_-]+:\S+$")]
    adds: Annotated[str, Field(pattern=r"^/\S+$")]


class Artifact(Value):
    """Where upstream publishes a file, and what its digest is read from.

    `{version}` is the component's in the lock. Exactly one of `checksum_file`, `release` (GitHub's
    API), `package`, `chart` (an add-on's) and `layer` is there; the address of the last three
    stands in an index or a manifest. Of a manifest that `names_images`, these are installed too.
    """

    artifact: str
    component: str
    url: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    checksum_file: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    release: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    package: Package | None = None
    chart: Chart | None = None
    layer: ImageLayer | None = None
    names_images: bool = False

    @model_validator(mode="after")
    def _one_source_of_the_digest(self) -> Artifact:
        ways = [self.checksum_file, self.release, self.package, self.chart, self.layer]
        listed = any(way is not None for way in ways[2:])
        if sum(way is not None for way in ways) != 1 or (self.url is None) != listed:
            raise ValueError(
                "its digest is known by one of checksum_file and release, with url, or by one of "
                "package, chart and layer"
            )
        return self


class Image(Value):
    """An image that a cluster runs; `{version}` and `{image_tag}` are the component's in the lock.

    `hosts` are those that have it before they join. A tag that `moves` is one that its maker
    sets anew on purpose: the digest that was found first stays. A `notebook` holds
    this very build, as `pytorch-2.9.1-cu128`; `base` is that of courses without a framework. The
    notebook of a build that no fact names is one that the site builds. `jupyterhub` is the version
    that is in the hub's image.
    """

    image: str
    component: str | None = None
    notebook: str | None = None
    jupyterhub: Version | None = None
    reference: Annotated[str, Field(pattern=r"^[a-z0-9.-]+\.[a-z]+/[a-z0-9./_-]+:\S+$")]
    hosts: Literal["control-plane", "node", "nobody"] = "nobody"
    moves: bool = False


class Registry(Value):
    """A registry whose API answers under another host than its images' names begin with."""

    registry: str
    host: str


class FrameworkBuild(Value):
    """A published build of a framework: what it was compiled with and for.

    `ptx` says that the newest listed architecture is there as PTX too, so that newer chips
    compile it. `default` builds are what an unqualified installation gets. Those for CPUs are
    frameworks of their own, as `jax-cpu`: without CUDA, and compiled for no GPU.
    """

    framework: str
    version: Version
    variant: str
    cuda: Version | None
    cudnn: str | None
    nccl: str | None
    compute_capabilities: list[ComputeCapability]
    ptx: bool
    default: bool
    python_from: Version | None = None
    index: str | None = None

    @model_validator(mode="after")
    def _for_gpus_or_cpus(self) -> FrameworkBuild:
        if bool(self.cuda) != bool(self.compute_capabilities) or (self.ptx and not self.cuda):
            raise ValueError("CUDA and compute capabilities go together: CPU builds have neither")
        return self


class FrameworkLimit(Value):
    """The newest GPUs that a framework's own compiler makes code for while a program runs.

    It is that of releases up to `version_upto`; `capability_upto` counts to its minor number.
    """

    limit: str
    framework: str
    version_upto: Version
    capability_upto: ComputeCapability
    compiler: str


class FrameworkPackage(Value):
    """How builds of a framework are installed; `{version}` and `{variant}` are the build's."""

    framework: str
    requirement: str
    python: Version
    base: str
