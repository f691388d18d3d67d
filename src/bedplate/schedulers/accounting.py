"""The recorder of usage: a Deployment, and the namespace that keeps its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import pulumi

from bedplate.accounting.ending import SHARES
from bedplate.accounting.store import NAMESPACE
from bedplate.accounting.units import units
from bedplate.catalogue import catalogue_of
from bedplate.cluster import artifact
from bedplate.cluster.manifest import token
from bedplate.schedulers.accounting_objects import objects

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.accounting.ending import Limits
    from bedplate.accounting.records import Units
    from bedplate.lock import Lock


class AccountingArgs(TypedDict):
    """Inputs of an Accounting."""

    python_image: str
    """An image with Python 3.11 or newer as `python3`; nothing else of it is used."""
    units: Units
    """GPUs by unit of a resource, by pool and resource."""
    idle: Limits
    """Seconds after which what is idle ends, by namespace; those are there before."""


class Accounting(pulumi.ComponentResource):  # type: ignore[misc]
    """The recorder. Its records stay when it goes: the namespace is kept."""

    namespace: pulumi.Output[str]

    def __init__(
        self, name: str, args: AccountingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Accounting", name, None, opts)
        space, *others = objects(args["python_image"], args["units"], args["idle"])
        keep = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        first = pulumi.CustomResource(token(space), f"{name}-namespace", space, keep)
        for found in others:
            within = pulumi.ResourceOptions(parent=self, depends_on=[first])
            kind, meta = found["kind"].lower(), found["metadata"]
            inside = meta.get("namespace", NAMESPACE)
            called = meta["name"] if inside == NAMESPACE else f"{inside}-{meta['name']}"
            pulumi.CustomResource(token(found), f"{name}-{kind}-{called}", found, within)
        self.namespace = pulumi.Output.from_input(space["metadata"]["name"])
        self.register_outputs({"namespace": self.namespace})


def accounting_args(site: Path, lock: Lock) -> AccountingArgs | None:
    """Return the inputs from a lock; None without a hub, whose image has the Python.

    Raises:
        StackError: the bill is missing or stale, or does not have the image.
    """
    if lock.cluster is None or lock.cluster.hub is None:
        return None
    return {
        "python_image": artifact.image(site, lock, "hub"),
        "units": units(lock, catalogue_of(site)),
        "idle": idle_of(lock),
    }


def idle_of(lock: Lock) -> Limits:
    """Return after how many seconds shares on request end that are idle, by namespace."""
    courses = lock.cluster.courses if lock.cluster else {}
    return {name: {SHARES: course.idle_timeout_s} for name, course in sorted(courses.items())}
