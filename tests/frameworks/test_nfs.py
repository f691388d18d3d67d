"""Homes and datasets on an NFS server, by the parameters of the rendered volumes.

The kernel of this machine may have no NFS: server and client run in an emulated one.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from bedplate.components.frameworks import volumes
from tests.frameworks import emulated
from tests.schedulers.test_homes import COURSE, locked

HOMES, SQUASHED, DATA = "/export/homes", "/export/squashed", "/export/mnist"
EXPORTS = f"""\
{HOMES} *(rw,no_root_squash,no_subtree_check)
{SQUASHED} *(rw,root_squash,no_subtree_check)
{DATA} *(rw,no_root_squash,no_subtree_check)
"""
SERVER = f"""
modprobe nfs
modprobe nfsd
mount -t nfsd nfsd /proc/fs/nfsd
echo '127.0.0.1 localhost nas' > /etc/hosts
mkdir -p {HOMES} {SQUASHED} {DATA}
printf %s {shlex.quote(EXPORTS)} > /etc/exports
echo digits > {DATA}/train
exportfs -ra
serve() {{
  rpc.nfsd --no-nfs-version 3 4
  echo Y > /proc/fs/nfsd/v4_end_grace
}}
serve
rpc.mountd --no-nfs-version 3
student() {{ setpriv --reuid 1000 --regid {volumes.GROUP} --clear-groups "$@"; }}
"""


def nfs(folder: str = HOMES) -> list[dict[str, Any]]:
    """Return the objects of a site whose homes and dataset are on the server."""
    lock = locked(
        {"nfs": {"server": "nas", "path": folder}},
        hosts=2,
        dataset={"nfs": {"server": "nas", "path": DATA}},
    )
    return volumes.objects(volumes.volumes_args(lock), "debian")


def mount(spec: dict[str, Any], target: str, *options: str) -> str:
    """Return how kubelet mounts a volume: by its options, `ro` where its source says so."""
    source = spec["nfs"]
    wanted = [*spec.get("mountOptions", []), *(["ro"] if source.get("readOnly") else []), *options]
    by = f"-o {','.join(wanted)} " if wanted else ""
    return f"mkdir -p {target}; mount -t nfs {by}{source['server']}:{source['path']} {target}\n"


def unguarded(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a volume without the options that defend hosts and data."""
    return {"nfs": {**spec["nfs"], "readOnly": False}}


def makes_folder(objects: list[dict[str, Any]], name: str) -> str:
    """Return the run of the job that makes the course's folder, with its rights alone."""
    (job,) = (one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Job")
    (container,), (volume,) = job["containers"], job["volumes"]
    (mounted,) = container["volumeMounts"]
    rights = container["securityContext"]["capabilities"]["add"]
    bounds = ",".join(["-all", *(f"+{one.lower()}" for one in rights)])
    command = ["setpriv", f"--bounding-set={bounds}", f"--inh-caps={bounds}", *container["command"]]
    target = mounted["mountPath"]
    return f"{mount(volume, target)}try {name} {shlex.join(command)}\numount {target}\n"


def volume(objects: list[dict[str, Any]], what: str) -> dict[str, Any]:
    """Return the spec of the volume of homes or of data."""
    (found,) = (
        one["spec"]
        for one in objects
        if one["kind"] == "PersistentVolume"
        and one["metadata"]["name"].startswith(f"bedplate-{what}-")
    )
    return dict(found)


@pytest.mark.prove
def test_homes_and_datasets_on_a_real_server() -> None:
    """Attacks are shown with the defence off, too; two mounts stand for two nodes."""
    objects = nfs()
    homes, data = volume(objects, volumes.HOMES), volume(objects, volumes.DATA)
    on_server = f"{HOMES}/{COURSE}"
    home, first, second = volumes.HOME, "/node-a/homes", "/node-b/homes"
    script = "".join(
        [
            SERVER,
            makes_folder(objects, "folder"),
            makes_folder(objects, "folder_again"),
            makes_folder(nfs(SQUASHED), "squashed"),
            f"try owner stat -c '%u:%g %a' {on_server}\n",
            mount(homes, first),
            mount(homes, second, "nosharecache"),
            f"try options sh -c \"grep ' {first} ' /proc/mounts\"\n",
            # kubelet makes a home, and the pod sees it alone.
            f"mkdir -m 2770 {first}/bob; mkdir -p {home}; mount --bind {first}/bob {home}\n",
            f"try write student sh -c 'echo kept > {home}/work'\n",
            f"try kept cat {on_server}/bob/work\n",
            f"try whose stat -c %u:%g {on_server}/bob/work\n",
            f"try other_node student cat {second}/bob/work\n",
            # What an attacker left on the server: a program of root's, and a device.
            f"cp /usr/bin/id {on_server}/bob/root-id; chmod 4755 {on_server}/bob/root-id\n",
            f"mknod -m 666 {on_server}/bob/zero c 1 5\n",
            mount(unguarded(homes), "/unguarded"),
            f"try rooted student {home}/root-id -u\n",
            "try rooted_unguarded student /unguarded/bob/root-id -u\n",
            f"try device student head -c1 {home}/zero\n",
            "try device_unguarded student head -c1 /unguarded/bob/zero\n",
            mount(data, "/data/mnist"),
            mount(unguarded(data), "/unguarded-data"),
            "try read student cat /data/mnist/train\n",
            "try written touch /data/mnist/planted\n",
            "try written_unguarded touch /unguarded-data/planted\n",
            # The server is away while a student writes.
            "rpc.nfsd 0\n",
            f"(sleep 3; serve) & try away student sh -c 'echo later >> {home}/work; sync'\n",
            f"umount {home} {first} {second}\n",
            mount(homes, first),
            f"try survives cat {first}/bob/work\n",
        ]
    )
    tried = emulated.ran(script, ["nfs-kernel-server"])
    tried.well("folder")
    tried.well("folder_again")
    assert tried.well("owner") == f"0:{volumes.GROUP} 2770"
    assert "Permission denied" in tried.badly("squashed")
    mounted = tried.well("options").split()
    assert mounted[2] == "nfs4"
    assert {"nosuid", "nodev", "hard"} <= {*mounted[3].split(",")}
    tried.well("write")
    assert tried.well("kept") == tried.well("other_node") == "kept"
    assert tried.well("whose") == f"1000:{volumes.GROUP}"
    assert tried.well("rooted") == "1000"
    assert tried.well("rooted_unguarded") == "0"
    assert "Permission denied" in tried.badly("device")
    tried.well("device_unguarded")
    assert tried.well("read") == "digits"
    assert "Read-only file system" in tried.badly("written")
    tried.well("written_unguarded")
    tried.well("away")
    assert tried.well("survives") == "kept later"
