"""The recorder of usage: a Deployment, and the namespace that keeps its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

import pulumi

from bedplate.accounting.ending import CLAIMS, JOBS, SHARES
from bedplate.accounting.store import NAMESPACE
from bedplate.accounting.units import units
from bedplate.bill.needs import PYTHON
from bedplate.catalogue import catalogue_of
from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.frameworks import hub_use
from bedplate.components.schedulers.accounting_objects import Object, objects
from bedplate.components.schedulers.kueue import person_limits
from bedplate.pods.remote.objects import TEAM_NAMESPACE

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.accounting import hours, turns
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
    per_user: NotRequired[turns.Limits]
    """Team and what one member of it has at once, by namespace."""
    hours: NotRequired[hours.Limits]
    """Whose limit it is, and GPU-hours that a person has in a week, by queue."""
    readers: NotRequired[list[Object]]
    """The readers of GPUs where no hub brings them, their namespace first."""


class Accounting(pulumi.ComponentResource):  # type: ignore[misc]
    """The recorder. Its records stay when it goes: the namespace is kept."""

    namespace: pulumi.Output[str]

    def __init__(
        self, name: str, args: AccountingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:schedulers:Accounting", name, None, opts)
        space, *others = objects(
            args["python_image"],
            args["units"],
            args["idle"],
            args.get("per_user"),
            args.get("hours"),
        )
        keep = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        first = pulumi.CustomResource(token(space), f"{name}-namespace", space, keep)
        self._within(name, first, others)
        if readers := args.get("readers"):
            space, *others = readers
            below = pulumi.ResourceOptions(parent=self)
            self._within(
                name, pulumi.CustomResource(token(space), f"{name}-use", space, below), others
            )
        self.namespace = pulumi.Output.from_input(space["metadata"]["name"])
        self.register_outputs({"namespace": self.namespace})

    def _within(self, name: str, first: pulumi.Resource, objects_: list[Object]) -> None:
        for found in objects_:
            within = pulumi.ResourceOptions(parent=self, depends_on=[first])
            kind, meta = found["kind"].lower(), found["metadata"]
            inside = meta.get("namespace", NAMESPACE)
            called = meta["name"] if inside == NAMESPACE else f"{inside}-{meta['name']}"
            pulumi.CustomResource(token(found), f"{name}-{kind}-{called}", found, within)


def accounting_args(site: Path, lock: Lock) -> AccountingArgs | None:
    """Return the inputs from a lock; None where neither a hub nor a team needs the recorder.

    Raises:
        StackError: the bill is missing or stale, or does not have the image.
    """
    if lock.cluster is None or not lock.cluster.usage:
        return None
    image = artifact.image(site, lock, PYTHON)
    return {
        "python_image": image,
        "units": units(lock, catalogue_of(site)),
        "idle": idle_of(lock),
        "per_user": person_limits.by_namespace(lock.teams),
        "hours": person_limits.hours(lock),
        # The stack of frameworks makes the hub, which brings them, with the first course.
        "readers": [] if lock.courses else hub_use.for_recorder(lock, image),
    }


def idle_of(lock: Lock) -> Limits:
    """Return after how many seconds what is idle ends, by namespace."""
    found: Limits = {}
    for name, team in sorted(lock.teams.items()):
        if team.idle_timeout_s is not None:
            times = dict.fromkeys((SHARES, JOBS), float(team.idle_timeout_s))
            found |= dict.fromkeys(team.namespaces, times)
            found[TEAM_NAMESPACE.format(name)] = {CLAIMS: float(team.idle_timeout_s)}
    of_courses = sorted(lock.courses.items())
    return found | {name: {SHARES: one.idle_timeout_s} for name, one in of_courses}
