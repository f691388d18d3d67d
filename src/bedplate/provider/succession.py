"""A host comes under the name of one that is gone: what the cluster has of that one leaves first.

kubeadm takes neither away. It refuses a name that a Ready node has, and a control plane whose
address etcd still counts as a member's would start as that member, with none of its data.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bedplate.provider.cluster_api import not_ready_reasons
from bedplate.provider.errors import ProviderError, message
from bedplate.provider.resource import pause

if TYPE_CHECKING:
    from bedplate.provider.cluster_api import ClusterApi
    from bedplate.provider.deadline import Deadline
    from bedplate.provider.model import Machine

#: Longer than the API takes to notice that a kubelet is gone: 50 s by default
#: (kube-controller-manager's --node-monitor-grace-period, Kubernetes 1.32 and newer).
NOTICE_SECONDS = 75.0


def is_still(name: str, found: dict[str, Any]) -> bool:
    """Say whether a machine is the host of this name; *found* is `access`'s answer.

    It may have come into the cluster again under another name since.
    """
    return found["name"] in ("", name)


async def refuse_if_elsewhere(
    api: ClusterApi, name: str, found: dict[str, Any], deadline: Deadline
) -> None:
    """Refuse that a node leaves which runs on another machine than the one at its address.

    *found* is `access`'s answer of that one.

    Raises:
        ProviderError: the node is Ready, and stays so.
    """
    if not is_still(name, found) and not await _missed(api, name, deadline):
        raise ProviderError(
            message(
                "the node runs on another machine than the one at its address",
                name,
                f"a node that is Ready, and a host that is {found['name']}",
                "the node's own address",
                "correct ansible_host in the inventory, run bedplate plan and pulumi up; then take "
                "it out",
            )
        )


async def _missed(api: ClusterApi, name: str, deadline: Deadline) -> bool:
    """Say whether a node is not Ready, or there is none: the API needs a while to notice it."""
    until = time.monotonic() + NOTICE_SECONDS
    while not not_ready_reasons(await api.node(name), name):
        if time.monotonic() > until or deadline.over():
            return False
        await pause()
    return True


async def make_room(
    api: ClusterApi,
    host: Machine,
    endpoint: str,
    found: dict[str, Any],
    deadline: Deadline,
    *,
    control_plane: bool = False,
) -> None:
    """Remove what the cluster has of an earlier host of this name; *found* is `access`'s answer.

    A host that is in a cluster, or was on its way into that at *endpoint*, is no successor.

    Raises:
        ProviderError: another machine under this name is in service, or etcd refuses.
    """
    if found["member"] or (found["phase"], found["endpoint"]) == ("begun", endpoint):
        return
    if not await _missed(api, host.name, deadline):
        raise ProviderError(
            message(
                "another machine is in service under this name",
                host.name,
                "a node that is Ready, while this host is in no cluster",
                "a name that no node has, or one whose machine is gone",
                "switch off the other machine, or give this one another name, and run pulumi up "
                "again",
            )
        )
    if control_plane:
        await api.leave_etcd(host, deadline, for_another=True)
    if await api.node(host.name) is not None:
        await api.forget(host.name, deadline)
