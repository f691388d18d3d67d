"""A control plane for each name in PLANES, and a worker with four GPUs for each in WORKERS.

FORGOTTEN, if not empty, names a resource that is given no provider. KUBERNETES is its version.
"""

import os

import pulumi

from bedplate.provider import sdk

VERSION, ENDPOINT = os.environ["KUBERNETES"], "192.0.2.1:6443"


def machine(name: str) -> sdk.MachineArgs:
    """Return a host's connection data."""
    return {"name": name, "address": f"{name}.example"}


hosts = sdk.Provider("hosts", site=os.environ["SITE"])
below = pulumi.ResourceOptions(provider=hosts)
planes: list[sdk.ControlPlane] = []
for name in os.environ["PLANES"].split():
    inputs: sdk.ControlPlaneArgs = {
        "host": machine(name),
        "version": VERSION,
        "endpoint": ENDPOINT,
        "podSubnet": "10.244.0.0/16",
        "serviceSubnet": "10.96.0.0/12",
        "etcdImageTag": "3.6.8-0",
        "dnsImageTag": "v1.14.2",
    }
    if planes:
        inputs["join"] = planes[0].host
    after = pulumi.ResourceOptions(provider=hosts, depends_on=planes[-1:])
    planes.append(sdk.ControlPlane(name, inputs, after))
control_plane = planes[0]
for name in os.environ["WORKERS"].split():
    node = sdk.Node(
        name,
        {
            "host": machine(name),
            "controlPlane": control_plane.host,
            "version": VERSION,
            "endpoint": ENDPOINT,
        },
        below,
    )
    sdk.GpuReady(
        f"{name}-gpus",
        {"host": machine(name), "controlPlane": control_plane.host, "count": 4},
        pulumi.ResourceOptions(provider=hosts, depends_on=[node], deleted_with=node),
    )
if os.environ["FORGOTTEN"]:
    sdk.GpuReady(
        os.environ["FORGOTTEN"],
        {"host": machine("w1"), "controlPlane": machine("cp1"), "count": 4},
    )
pulumi.export("kubeconfig", control_plane.kubeconfig)
