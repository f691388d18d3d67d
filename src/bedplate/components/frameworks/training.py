"""A team's job on GPUs, in the form that its framework starts in, through the team's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict

import asyncssh
import pulumi

from bedplate.common.errors import BedplateError
from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.config import StackError
from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs import Form, JobsArgs, Request, Volume
from bedplate.components.frameworks.jobs.pods import secret_name
from bedplate.components.frameworks.jobs.time_limits import seconds
from bedplate.components.refs import MANAGED
from bedplate.lock.builds import notebook

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.components.frameworks.jobs.pods import Object
    from bedplate.lock import Lock

#: A job waits in the queue for as long as it must: the stack is done when it is submitted.
NO_WAIT: Final = {"pulumi.com/skipAwait": "true"}
KEY: Final = "ssh-privatekey"


class DataArgs(TypedDict):
    """A volume with data."""

    claim: str
    """PersistentVolumeClaim of the job's namespace."""
    at: str
    """Where containers find it."""
    read_only: NotRequired[bool]
    """Default true."""


class TrainingJobArgs(TypedDict):
    """Inputs of a TrainingJob."""

    cluster: JobsArgs
    """Teams, pools and add-ons, by which a job is checked and placed."""
    team: str
    """Whose quota it takes."""
    form: NotRequired[Form]
    """Job (default), JobSet, VolcanoGang, MPI or torchrun."""
    framework: NotRequired[str]
    """NAME or NAME-VERSION of a build of the pool: its image runs. This or `image`."""
    image: NotRequired[str]
    """An own image of a pool by its name, or any image by digest."""
    command: NotRequired[list[str]]
    """What the containers run; the image's own by default. Of torchrun: script and arguments."""
    pods: NotRequired[int]
    """Number of pods; default 1."""
    processes: NotRequired[int]
    """Processes in each pod, of MPI and torchrun; by default one for each GPU."""
    gpus: NotRequired[int]
    """Whole GPUs of each pod."""
    shares: NotRequired[int]
    """Shares of GPUs of each pod, in a pool that divides its GPUs."""
    pool: NotRequired[str]
    """Pool; by default the only one that the team has a quota of."""
    resource: NotRequired[str]
    """Resource, where the pool's GPUs are cut in several ways."""
    namespace: NotRequired[str]
    """Namespace of the team; its first by default."""
    time_limit: NotRequired[str]
    """Longest running time, as 90s, 30m, 8h or 2d. Waiting is not counted."""
    data: NotRequired[list[DataArgs]]
    """Volumes with data."""
    environment: NotRequired[dict[str, str]]
    """Further variables."""


class TrainingJob(pulumi.ComponentResource):  # type: ignore[misc]
    """A job and what it needs; wrong inputs are refused before anything is made."""

    job: pulumi.Output[str]
    """`kind/namespace/name` of what is in the queue."""

    def __init__(
        self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        request = request_of(name, args)
        super().__init__("bedplate:frameworks:TrainingJob", name, None, opts)
        found = jobs.objects(args["cluster"], request)
        before: list[pulumi.Resource] = []
        if request.form == "MPI":
            namespace = found[-1]["metadata"]["namespace"]
            before.append(self._key(name, secret_name(request), namespace))
        for one in found:
            before.append(self._made(name, one, before))
        metadata = found[-1]["metadata"]
        self.job = pulumi.Output.from_input(
            f"{found[-1]['kind'].lower()}/{metadata['namespace']}/{metadata['name']}"
        )
        self.register_outputs({"job": self.job})

    def _made(self, name: str, found: Object, before: list[pulumi.Resource]) -> pulumi.Resource:
        metadata = found["metadata"]
        whole = {
            **found,
            "metadata": {
                **metadata,
                "labels": {**MANAGED, **metadata.get("labels", {})},
                "annotations": {**NO_WAIT, **metadata.get("annotations", {})},
            },
        }
        kind = found["kind"].lower()
        below = pulumi.ResourceOptions(parent=self, depends_on=list(before))
        return pulumi.CustomResource(token(found), f"{name}-{kind}", whole, below)

    def _key(self, name: str, secret: str, namespace: str) -> pulumi.Resource:
        """Make the job's key once: later runs of the stack leave it as it is."""
        key = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
        return pulumi.CustomResource(
            "kubernetes:core/v1:Secret",
            f"{name}-key",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": secret, "namespace": namespace, "labels": dict(MANAGED)},
                "stringData": {KEY: pulumi.Output.secret(key)},
            },
            pulumi.ResourceOptions(parent=self, ignore_changes=["data", "stringData"]),
        )


def training_args(site: Path, lock: Lock) -> JobsArgs:
    """Return the cluster that a lock decides, with the images of its bill.

    Raises StackError as `artifact.bill_of`.
    """
    images = artifact.images(site, lock)
    builds = [build for pool in lock.pools.values() for build in pool.frameworks]
    built = {one.identity: images[notebook(one)] for one in builds if notebook(one) in images}
    return jobs.jobs_args(lock, built, artifact.refused(site, lock))


def request_of(name: str, args: TrainingJobArgs) -> Request:
    """Return what is asked for, checked against the cluster.

    Raises:
        StackError: something is wrong with it; all that is, with what would be right.
    """
    given: dict[str, Any] = {**args}
    wrong = jobs.names(name, given, TrainingJobArgs.__annotations__, ("cluster", "team"))
    for one in given.get("data", ()):
        wrong += jobs.names(f"{name}.data", one, DataArgs.__annotations__, ("claim", "at"))
    if wrong:
        raise StackError(str(BedplateError(wrong)))
    cluster, limit = given.pop("cluster"), given.pop("time_limit", None)
    given["volumes"] = tuple(Volume(**one) for one in given.pop("data", ()))
    given["command"] = tuple(given.get("command", ()))
    try:
        request = Request(name, seconds=None if limit is None else seconds(name, limit), **given)
    except BedplateError as error:
        raise StackError(str(error)) from error
    if found := jobs.problems(cluster, request):
        raise StackError(str(BedplateError(found)))
    return request
