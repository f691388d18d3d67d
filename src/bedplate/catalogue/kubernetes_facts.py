"""The kinds of fact about Kubernetes that decide no version: what it takes of a site's settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bedplate.catalogue.facts import Value, Version

Prefix = Annotated[int, Field(ge=0, le=128)]
Form = Literal[
    "text", "path", "cpus", "address", "listener", "cidr", "subnet", "duration", "period",
    "quantity", "size", "number", "whole", "long", "truth", "list", "mapping", "texts", "lists",
    "quantities", "percentages", "amounts", "reclaims", "durations", "sizes", "truths",
]  # fmt: skip


class SubnetLimit(Value):
    """How large a cluster's subnet may be, by what it is of and by IP family.

    `largest` and `smallest` are prefixes. Each node gets a subnet of
    `node_prefix` of the pods'.
    """

    limit: str
    of: Literal["pods", "services"]
    family: Literal[4, 6]
    largest: Prefix
    smallest: Prefix
    node_prefix: Prefix | None = None


class NodeLimit(Value):
    """The most that kubelet lets a node have, where a site does not say it: `most` of something."""

    limit: str
    most: Annotated[int, Field(ge=1)]


class NodeReserve(Value):
    """What a node keeps for itself of a resource: `base`, and `percent` of what it has.

    Memory is in MiB, CPUs are in thousandths.
    """

    resource: Literal["memory", "cpu"]
    base: Annotated[int, Field(ge=0)]
    percent: Annotated[int, Field(ge=0, le=90)]


class OwnPods(Value):
    """Pods of a part of the cluster itself, which users' pods cannot take the places of.

    `each` run on every node that has the part, `once` are in the whole cluster, on any node. One of
    them requests `cpu` thousandths and `memory` MiB, on average.
    """

    part: str
    each: Annotated[int, Field(ge=0)] = 0
    once: Annotated[int, Field(ge=0)] = 0
    cpu: Annotated[int, Field(ge=0)] = 0
    memory: Annotated[int, Field(ge=0)] = 0


class ConfigurationFields(Value):
    """The fields of a configuration document, by the form of their values; it refuses any other.

    They are those of releases from `kubernetes_from` on, up to the next such fact's, or from the
    release in `since`. A field is a path: `a.b` inside a mapping, `a.*` for each entry of a list.
    Plural forms are mappings whose values have the form. `defaults` are what unset fields count as.
    """

    document: Literal["kubelet", "kube_proxy"]
    kubernetes_from: Version
    fields: dict[Form, Annotated[list[str], Field(min_length=1)]]
    since: dict[str, Version] = {}
    defaults: dict[str, Any] = {}


class Limit(Value):
    """What a value has to be, where it is neither one word nor one of some.

    Bounds are numbers, amounts, durations, or the path of another field. `has` and `lacks` are an
    entry of a list, `in` is a mapping that has to have the same keys, `memory_of` are the paths
    whose amounts have to be as much as all memory of a list of reservations.
    """

    least: int | float | str | None = None
    most: int | float | str | None = None
    over: int | float | str | None = None
    under: int | float | str | None = None
    multiple: int | None = None
    matches: str | None = None
    has: str | None = None
    lacks: str | None = None
    in_: Annotated[str | None, Field(alias="in")] = None
    memory_of: list[str] = []


#: `set`, `unset`, `distinct` and `single` entries of a list, or the minor release before.
Asked = bool | Limit | list[str] | Literal["set", "unset", "distinct", "single", "release-before"]


class ConfigurationRule(Value):
    """What a program refuses of the values of its configuration: `allow`, or one of `any`.

    It counts where all of `when` holds, for the releases of its range.
    """

    rule: str
    document: Literal["kubelet", "kube_proxy"]
    when: dict[str, Asked] = {}
    allow: dict[str, Asked] = {}
    any: list[dict[str, Asked]] = []
    kubernetes_from: Version | None = None
    kubernetes_upto: Version | None = None


class FeatureGates(Value):
    """The feature gates of a minor release: by stage, by default, and whether that is locked.

    `needs` are the gates that have to be on where one is.
    """

    kubernetes: Version
    alpha: list[str] = []
    beta_on: list[str] = []
    beta_off: list[str] = []
    default_on: list[str] = []
    default_off: list[str] = []
    locked_on: list[str] = []
    locked_off: list[str] = []
    needs: dict[str, list[str]] = {}


class NodeNeed(Value):
    """What a part of a node asks of its kernel, or of the version of its control groups.

    `of` is that part, in words. It asks for it where `setting`, a path below bedplate_kubernetes,
    is `value`; without a setting, always. `check` is the preflight check of kubeadm that stops
    there, unless the site ignores it. What only `warns` refuses nothing.
    """

    need: str
    of: str
    kernel_from: Version | None = None
    cgroup: Literal[2] | None = None
    kubernetes_from: Version | None = None
    kubernetes_upto: Version | None = None
    setting: list[str] = []
    value: str | bool | None = None
    check: str | None = None
    warns: bool = False

    @property
    def asks(self) -> str:
        """Return what it asks for, in words."""
        return (
            f"kernel {self.kernel_from} or newer" if self.kernel_from else f"cgroup v{self.cgroup}"
        )

    @model_validator(mode="after")
    def _asks_for_one_thing(self) -> Self:
        if (self.kernel_from is None) == (self.cgroup is None):
            raise ValueError("a need is of a kernel or of a version of control groups")
        if bool(self.setting) != (self.value is not None):
            raise ValueError("setting and value go together")
        return self
