"""The pods of a job: image, command, GPUs, data, and how they find each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bedplate.components.frameworks.jobs import placing
from bedplate.components.schedulers.topology import POOL_LABEL
from bedplate.lock.rdma import settings_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bedplate.components.frameworks.jobs.args import JobsArgs
    from bedplate.components.frameworks.jobs.model import Request

Object = dict[str, Any]

#: Where processes of several pods meet; any free port of a pod would do.
PORT: Final = 29400
INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: Where the files of the job's own ConfigMap and Secret lie.
OURS: Final = "/etc/bedplate/job"
KEY: Final = "/etc/bedplate/key"
HOME: Final = "/home/job"
USER: Final = 1000


def template(
    args: JobsArgs, request: Request, meeting: str, *, index: str = INDEX
) -> dict[str, Object]:
    """Return metadata and specification of each pod.

    Args:
        args: teams, pools and add-ons.
        request: what is asked for; it has no problems.
        meeting: host name of the first pod.
        index: the label that has the pod's number.
    """
    container: Object = {"name": "main", "image": placing.image(args, request)}
    if command := _command(request):
        container["command"] = command
    environment = [
        *([] if request.pods == 1 and request.form == "Job" else _meeting(request, meeting, index)),
        *({"name": name, "value": value} for name, value in sorted(request.environment.items())),
    ]
    if environment:
        container["env"] = environment
    pool = placing.pool(args, request)
    if request.devices and pool is not None:
        asked = {placing.resource(args, request, pool): str(request.devices)}
        if request.gpus and request.pods > 1 and (devices := args.pools[pool].rdma):
            # Memory is locked without a capability: the runtime's limit of it is raised.
            asked |= dict.fromkeys(devices, "1")
            container["envFrom"] = [{"configMapRef": {"name": settings_name(pool)}}]
        container["resources"] = {"limits": asked}
    mounts, volumes = _volumes(request)
    container["volumeMounts"] = mounts
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": volumes,
    }
    if pool is not None:
        spec["nodeSelector"] = {POOL_LABEL: pool}
    if found := (args if pool is None else args.pools[pool]).tolerations:
        spec["tolerations"] = list(found)
    if request.form == "MPI":
        _without_root(request, spec, container)
    return {"metadata": {}, "spec": spec}


def _command(request: Request) -> list[str]:
    own = list(request.command)
    if request.form == "torchrun":
        return [  # PyTorch before 2.0 knows no hyphens in these options
            "torchrun",
            "--nnodes=$(NNODES)",
            "--node_rank=$(NODE_RANK)",
            f"--nproc_per_node={request.ranks_per_pod}",
            "--master_addr=$(MASTER_ADDR)",
            "--master_port=$(MASTER_PORT)",
            *own,
        ]
    if request.form == "MPI":
        script = [request.name, str(request.pods), str(request.ranks_per_pod)]
        return ["/bin/sh", f"{OURS}/mpi.sh", *script, *own]
    return own


def _meeting(request: Request, meeting: str, index: str) -> list[Object]:
    """Return the variables by which processes of several pods find each other.

    Each is there before those that name it: Kubernetes reads them in this order.
    """
    number = {"fieldRef": {"fieldPath": f"metadata.labels['{index}']"}}
    told: Mapping[str, str] = {
        "NNODES": str(request.pods),
        "MASTER_ADDR": meeting,
        "MASTER_PORT": str(PORT),
    }
    return [
        {"name": "NODE_RANK", "valueFrom": number},
        *({"name": name, "value": value} for name, value in told.items()),
    ]


def _volumes(request: Request) -> tuple[list[Object], list[Object]]:
    """Return mounts and volumes: data, and shared memory, of which a runtime gives 64 MiB only."""
    mounts: list[Object] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108 - in the pod
    volumes: list[Object] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    for number, data in enumerate(request.volumes):
        name = f"data-{number}"
        claim = {"claimName": data.claim, "readOnly": data.read_only}
        mounts.append({"name": name, "mountPath": data.at, "readOnly": data.read_only})
        volumes.append({"name": name, "persistentVolumeClaim": claim})
    return mounts, volumes


def _without_root(request: Request, spec: Object, container: Object) -> None:
    """Let SSH run as a user that the image need not have, with the job's key."""
    container["env"] += [
        {"name": "HOME", "value": HOME},
        {"name": "JOB_KEY", "value": f"{KEY}/ssh-privatekey"},
    ]
    container["volumeMounts"] += [
        {"name": "home", "mountPath": HOME},
        {"name": "job", "mountPath": OURS, "readOnly": True},
        {"name": "job", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True},
        {"name": "key", "mountPath": KEY, "readOnly": True},
    ]
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    spec["volumes"] += [
        {"name": "home", "emptyDir": {}},
        {"name": "job", "configMap": {"name": request.name}},
        {"name": "key", "secret": {"secretName": secret_name(request), "defaultMode": 0o440}},
    ]
    spec["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
    }


def secret_name(request: Request) -> str:
    """Return the name of the Secret that has the key of an MPI job."""
    return f"{request.name}-ssh"
