"""flannel: its published manifest with the site's pod network."""

from __future__ import annotations

import ipaddress
import json
from copy import deepcopy
from typing import Any, Final

import yaml

from bedplate.components import later

SKIP_AWAIT = "pulumi.com/skipAwait"


#: Its interface is that of the node's address; by itself it takes the default route's. Flags by the
#: environment: https://github.com/flannel-io/flannel/blob/master/Documentation/configuration.md
INTERFACE = {
    "name": "FLANNELD_IFACE",
    "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}},
}
#: flannel's own toleration is for NoSchedule alone: a node without it has no network.
STAYS = {"operator": "Exists", "effect": "NoExecute"}

#: What stands for the manifest where it is not fetched: the parts in which something is set.
OUTLINE: Final = f"""\
apiVersion: {later.OUTLINE}
kind: ConfigMap
metadata: {{name: kube-flannel-cfg, namespace: kube-flannel}}
data: {{net-conf.json: "{{}}"}}
---
apiVersion: {later.OUTLINE}
kind: DaemonSet
metadata: {{name: kube-flannel-ds, namespace: kube-flannel}}
spec: {{template: {{spec: {{containers: [{{name: kube-flannel}}]}}}}}}
"""


def objects(
    manifest: str, pod_subnet: str, *, evicting: bool = False, mtu: int | None = None
) -> list[dict[str, Any]]:
    """Return the objects of flannel's manifest for a pod network.

    `evicting` tells whether a node has a taint of effect NoExecute. `mtu` is that of the hosts'
    network: flannel's VXLAN backend takes its own 50 bytes off. The interface is that of each
    node's address.

    Raises ValueError if the manifest has no network configuration: then it is not flannel's. The
    same for a pod network of IPv6, which flannel takes by keys of its own that are not set here.
    """
    if ipaddress.ip_network(pod_subnet).version != 4:
        raise ValueError(f"pod network {pod_subnet} is not IPv4")
    found = [item for item in yaml.safe_load_all(manifest) if item]
    configured = False
    for item in found:
        if item["kind"] == "ConfigMap" and "net-conf.json" in item.get("data", {}):
            network = json.loads(item["data"]["net-conf.json"])
            network["Network"] = pod_subnet
            if mtu is not None:
                network.setdefault("Backend", {})["MTU"] = mtu
            item["data"]["net-conf.json"] = json.dumps(network, indent=2) + "\n"
            configured = True
        if item["kind"] == "DaemonSet":
            # A node that joins is waited for itself; waiting for the pods here would only hold up
            # the joins that they wait for.
            item["metadata"].setdefault("annotations", {})[SKIP_AWAIT] = "true"
            for container in item["spec"]["template"]["spec"]["containers"]:
                container.setdefault("env", []).append(deepcopy(INTERFACE))
            if evicting:
                item["spec"]["template"]["spec"].setdefault("tolerations", []).append(dict(STAYS))
    if not configured:
        raise ValueError("no ConfigMap with net-conf.json in it")
    return found
