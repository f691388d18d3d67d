"""Datasets that lie elsewhere: each node reads a file once, and from its own disk from then on.

A DaemonSet for each dataset mounts it by rclone (FUSE) below a folder of the node. Students' pods
see that folder, and a mount that is made again appears in pods that run already. Docs: ADR 27.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.components.schedulers.kueue.objects import Object, made
from bedplate.components.schedulers.topology import HOST

if TYPE_CHECKING:
    from bedplate.lock.courses import Volume

#: The catalogue's name of the image.
IMAGE: Final = "data-cache"
#: Below it a folder for each dataset, and in that one the mount: whoever mounts the folder sees the
#: mount come and go.
FOLDER: Final = "/var/lib/bedplate/data"
MOUNTED: Final = "files"
KEPT: Final = "/var/lib/bedplate/cache"
#: How long names and files are believed without asking again. A dataset is what does not change.
BELIEVED: Final = "720h"


def folder(name: str) -> str:
    """Return the folder of a node that has a dataset's mount."""
    return f"{FOLDER}/{name}"


def command(url: str, size: str, kept: str, mount: str) -> list[str]:
    """Return rclone's arguments: everything that was read once is read from `kept`.

    Args:
        url: where a web server lists the files.
        size: how much is kept, as `200Gi`; what was read longest ago goes first.
        kept: folder of the cache.
        mount: the mount point.
    """
    return [
        "mount",
        ":http:",
        mount,
        f"--http-url={url}",
        "--read-only",
        "--allow-other",
        "--vfs-cache-mode=full",
        f"--vfs-cache-max-size={size}",
        f"--vfs-cache-max-age={BELIEVED}",
        f"--dir-cache-time={BELIEVED}",
        "--poll-interval=0",
        f"--cache-dir={kept}",
    ]


def daemon(name: str, volume: Volume, hosts: list[str], image: str, namespace: str) -> Object:
    """Return what mounts a dataset on each of the hosts."""
    if volume.url is None:
        raise AssertionError(f"dataset {name} has no address")
    label = {"bedplate.io/dataset": name}
    mount = f"{folder(name)}/{MOUNTED}"
    there = {"matchExpressions": [{"key": HOST, "operator": "In", "values": hosts}]}
    begin = f'umount -l {mount} 2>/dev/null; mkdir -p {mount}; exec rclone "$@"'
    container: Object = {
        "name": "cache",
        "image": image,
        "command": ["sh", "-c", begin, "cache"],
        "args": command(volume.url, volume.cache, f"{KEPT}/{name}", mount),
        # A mount that other containers are to see can be made by privileged ones alone.
        "securityContext": {"privileged": True},
        "readinessProbe": {"exec": {"command": ["mountpoint", "-q", mount]}, "periodSeconds": 2},
        "lifecycle": {"preStop": {"exec": {"command": ["umount", "-l", mount]}}},
        "volumeMounts": [
            {"name": "data", "mountPath": folder(name), "mountPropagation": "Bidirectional"},
            {"name": "kept", "mountPath": f"{KEPT}/{name}"},
            {"name": "fuse", "mountPath": "/dev/fuse"},
        ],
    }
    places = {"data": folder(name), "kept": f"{KEPT}/{name}"}
    volumes: list[Object] = [
        {"name": one, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for one, path in places.items()
    ]
    volumes.append({"name": "fuse", "hostPath": {"path": "/dev/fuse"}})
    required = {"nodeSelectorTerms": [there]}
    spec = {
        "automountServiceAccountToken": False,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": volumes,
    }
    return made(
        "DaemonSet",
        f"data-{name}",
        f"Dataset {name}, read once by each node.",
        version="apps/v1",
        namespace=namespace,
        spec={
            "selector": {"matchLabels": label},
            "template": {"metadata": {"labels": label}, "spec": spec},
        },
    )
