"""The job of the preflight as objects of Kubernetes: a pure function of the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.common import shipped
from bedplate.components.frameworks import jobs
from bedplate.components.schedulers.topology import HOST
from bedplate.lock.taints import tolerations
from bedplate.site.site import NODES

if TYPE_CHECKING:
    from bedplate.components.frameworks.jobs.pods import Object
    from bedplate.lock import Lock

NAMESPACE: Final = "bedplate-preflight"
NAME: Final = "preflight"
PROGRAM: Final = "pingpong.py"
#: On each node: the first pair is inside one pod.
PROCESSES: Final = 2
#: Kubernetes keeps 4096 bytes of a container's last words, some 50 for a node.
MOST: Final = 64
LABEL: Final = {"job": NAME}
SETTINGS: Final = {
    # A container may not read another process' memory, which Open MPI would try first.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    # Those that wait for their turn leave the processors to the pair that is measured.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def nodes_of(lock: Lock) -> list[str]:
    """Return the nodes of all pools by name, as many as one job can report on."""
    found = [
        name
        for name, host in sorted(lock.hosts.items())
        if host.pool is not None and set(NODES) & set(host.groups)
    ]
    return found[:MOST]


def objects(lock: Lock, image: str, key: str, seconds: int) -> list[Object]:
    """Return namespace, key, scripts and job; `key` is a private key of OpenSSH's.

    The job is one of MPI as teams have them, but for the queue: it asks for no GPU, and its
    namespace is no team's.
    """
    nodes = nodes_of(lock)
    request = jobs.Request(
        name=NAME,
        team=NAME,
        image=image,
        form="MPI",
        command=("python3", f"/etc/bedplate/job/{PROGRAM}"),
        pods=len(nodes),
        processes=PROCESSES,
        pool=next(iter(lock.pools)),
        namespace=NAMESPACE,
        seconds=seconds,
        environment=SETTINGS,
    )
    found = jobs.objects(jobs.jobs_args(lock), request)
    for one in found:
        one["metadata"].pop("labels", None)
        if one["kind"] == "ConfigMap":
            one["data"][PROGRAM] = (shipped.templates("preflight") / PROGRAM).read_text()
        if one["kind"] == "Job":
            _spread(lock, one, nodes)
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{NAME}-ssh", "namespace": NAMESPACE},
        "stringData": {"ssh-privatekey": key},
    }
    space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [space, secret, *found]


def _spread(lock: Lock, job: Object, nodes: list[str]) -> None:
    """Put one pod on each of the nodes, whatever pool they are of."""
    template = job["spec"]["template"]
    template["metadata"] = {"labels": LABEL}
    spec = template["spec"]
    spec.pop("nodeSelector", None)
    spec.pop("schedulerName", None)
    if found := tolerations(lock, lock.pools):
        spec["tolerations"] = found
    there = {"matchExpressions": [{"key": HOST, "operator": "In", "values": nodes}]}
    spec["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [there]}
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": LABEL}, "topologyKey": HOST}
            ]
        },
    }
    (container,) = spec["containers"]
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container["env"].append(node)
