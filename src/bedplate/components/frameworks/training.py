"""A team's job on GPUs, in the form that its framework starts in, through the team's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

import asyncssh
import pulumi

from bedplate.common.errors import BedplateError
from bedplate.components.cluster import artifact
from bedplate.components.cluster.manifest import token
from bedplate.components.config import StackError
from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs import placing
from bedplate.components.frameworks.jobs.model import Form, Request, Volume
from bedplate.components.frameworks.jobs.pods import secret_name
from bedplate.components.frameworks.jobs.time_limits import seconds
from bedplate.components.refs import MANAGED
from bedplate.lock.builds import build_of, notebook
from bedplate.portable.message import problem

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

    site: Path
    """The site's directory, which has the bill."""
    lock: Lock
    """What was decided: teams, pools, frameworks, add-ons and preset."""
    team: str
    """Whose quota it takes."""
    form: NotRequired[Form]
    """Job (default), JobSet, VolcanoGang, MPI or torchrun."""
    framework: NotRequired[str]
    """NAME or NAME-VERSION of a build of the pool: its image runs. This or `image`."""
    image: NotRequired[str]
    """One of the site's bedplate_images by its name, or any image by digest."""
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
        found = jobs.objects(args["lock"], request)
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


def request_of(name: str, args: TrainingJobArgs) -> Request:
    """Return what is asked for, checked against the lock.

    Raises:
        StackError: something is wrong with it; all that is, with what would be right.
    """
    try:
        request = _checked(name, args)
    except BedplateError as error:
        raise StackError(str(error)) from error
    if args.get("image") in placing.images(args["lock"]):
        _accepted(name, args)
    if request.image or request.framework is None:
        return request
    pool = placing.pool(args["lock"], request)
    build = build_of(args["lock"].pools[pool], request.framework) if pool else None
    name_ = notebook(build)
    try:
        image = artifact.image(args["site"], args["lock"], name_)
    except StackError as error:
        raise StackError(
            problem(
                "no image of this framework",
                f"{name}.framework",
                str(request.framework),
                f"a framework whose image {name_} is in the bill",
                "build it from the files of bedplate frameworks SITE --output FOLDER, take it by "
                f"bedplate mirror add, and run bedplate mirror resolve SITE; {error}",
            )
        ) from error
    return jobs.with_image(request, image)


def _accepted(name: str, args: TrainingJobArgs) -> None:
    image = args.get("image", "")
    reason = artifact.refused(args["site"], args["lock"]).get(image)
    if reason is not None:
        allowed = "an image that bedplate mirror resolve accepts"
        fix = "correct the image, and run bedplate mirror resolve SITE"
        raise StackError(
            problem(f"image is refused: {reason}", f"{name}.image", image, allowed, fix)
        )


def _checked(name: str, args: TrainingJobArgs) -> Request:
    limit = args.get("time_limit")
    request = Request(
        name=name,
        team=args["team"],
        image=args.get("image", ""),
        form=args.get("form", "Job"),
        command=tuple(args.get("command", ())),
        pods=args.get("pods", 1),
        gpus=args.get("gpus", 0),
        shares=args.get("shares", 0),
        processes=args.get("processes"),
        pool=args.get("pool"),
        resource=args.get("resource"),
        namespace=args.get("namespace"),
        seconds=None if limit is None else seconds(name, limit),
        volumes=tuple(
            Volume(one["claim"], one["at"], one.get("read_only", True))
            for one in args.get("data", [])
        ),
        environment=dict(args.get("environment", {})),
        framework=args.get("framework"),
    )
    if found := jobs.problems(args["lock"], request):
        raise BedplateError(found)
    return request
