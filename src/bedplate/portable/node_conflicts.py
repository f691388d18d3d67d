"""What makes a host no node of this cluster: another Kubernetes, or its pods' network by another.

containerd takes the first configuration in /etc/cni/net.d by name, whoever left it there. A link
that a former pod network left keeps its address: the bridge plugin refuses a cni0 with another one,
and what is sent to an address on kube-ipvs0 never leaves the host.
"""

from fnmatch import fnmatchcase
from typing import Dict, List

from .host import Host
from .message import problem

#: Folders and units of other ways to run Kubernetes.
OTHERS: Dict[str, List[str]] = {
    "k3s": [
        "/var/lib/rancher/k3s",
        "/etc/systemd/system/k3s.service",
        "/etc/systemd/system/k3s-agent.service",
    ],
    "rke2": ["/var/lib/rancher/rke2"],
    "microk8s": ["/var/snap/microk8s", "/snap/microk8s"],
    "k0s": ["/var/lib/k0s"],
    "minikube": ["/var/lib/minikube"],
    "another tool": ["/var/lib/kubelet/kubeconfig"],
}
CNI = "/etc/cni/net.d"
#: What flannel's own pods write there.
OURS = "10-flannel.conflist"
DEVICES = "/sys/class/net"
#: Links as these networks name them. tunl0 is none: the kernel makes it with its module.
LINKS: Dict[str, List[str]] = {
    "flannel": ["cni0", "flannel.[0-9]*", "flannel-v6.[0-9]*", "flannel-wg*"],
    "Calico": ["vxlan*.calico", "w*.cali", "cali" + "[0-9a-f]" * 11],
    "Cilium": ["cilium_*"],
    "Weave Net": ["weave"],
    "Antrea": ["antrea-*"],
    "OVN-Kubernetes": ["ovn-k8s-*"],
    "kube-router": ["kube-bridge", "kube-dummy-if"],
    "kube-proxy": ["kube-ipvs0"],
    "NodeLocal DNSCache": ["nodelocaldns"],
}
_CONFIGURATIONS = (".conf", ".conflist", ".json")


def others(host: Host) -> Dict[str, str]:
    """Other ways of running Kubernetes that are on the host, each with what shows it."""
    found = {name: [path for path in paths if host.exists(path)] for name, paths in OTHERS.items()}
    return {name: paths[0] for name, paths in found.items() if paths}


def configurations(host: Host) -> List[str]:
    """The network configurations that were left by others, in containerd's order."""
    names = [name for name in host.list(CNI) if name.endswith(_CONFIGURATIONS)]
    return [f"{CNI}/{name}" for name in names if name != OURS]


def first(host: Host) -> List[str]:
    """Those of them that containerd takes before flannel's."""
    return [path for path in configurations(host) if path < f"{CNI}/{OURS}"]


def links(host: Host) -> Dict[str, List[str]]:
    """The links on the host that pod networks make, by the network that names them so."""
    names = host.list(DEVICES)
    found = {
        network: [name for name in names if any(fnmatchcase(name, one) for one in patterns)]
        for network, patterns in LINKS.items()
    }
    return {network: mine for network, mine in found.items() if mine}


def check(host: Host, where: str) -> List[str]:
    """Problems of a host that is to join: what nodes have got since is their owner's."""
    problems = [
        problem(
            "another Kubernetes is on the host",
            where,
            f"{name}: {path}",
            "none, or one that kubeadm made",
            "Uninstall it by its own means, or take the host out of the inventory.",
        )
        for name, path in sorted(others(host).items())
    ]
    if not problems:  # another Kubernetes has its links as long as it is there
        problems += [
            problem(
                "links of a former pod network keep its addresses, and pods cannot be reached",
                where,
                f"{', '.join(found)} of {network}",
                "none before the host joins",
                "Reboot the host, or run 'ip link delete' for each; "
                "where they come back, remove what makes them.",
            )
            for network, found in sorted(links(host).items())
        ]
    problems += [
        problem(
            "a network configuration would win over flannel's, and pods get other addresses",
            where,
            path,
            f"no configuration before {OURS}",
            "Move it away, with what writes it.",
        )
        for path in first(host)
    ]
    return problems
