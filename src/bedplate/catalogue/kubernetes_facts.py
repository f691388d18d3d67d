"""The kinds of fact about Kubernetes that decide no version: what it takes of a site's settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bedplate.catalogue.facts import Value, Version

Prefix = Annotated[int, Field(ge=0, le=128)]
Form = Literal["text", "number", "whole", "truth", "list", "mapping", "texts", "truths"]


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

    `each` run on every node that has the part, `once` are in the whole cluster, on any node.
    """

    part: str
    each: Annotated[int, Field(ge=0)] = 0
    once: Annotated[int, Field(ge=0)] = 0


class ConfigurationFields(Value):
    """The fields of a configuration document, by the form of their values; it refuses any other.

    They are those of releases from `kubernetes_from` on, up to the next such fact's. `whole` are
    whole numbers; `texts` and `truths` are mappings whose values are text, or true or false.
    `ranges` are the least and the most of numbers, where the program names them.
    """

    document: Literal["kubelet", "kube_proxy"]
    kubernetes_from: Version
    fields: dict[Form, Annotated[list[str], Field(min_length=1)]]
    ranges: dict[str, tuple[int, int | None]] = {}
