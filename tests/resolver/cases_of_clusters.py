"""The cases about what a cluster shares, and about its hosts. See `cases` for what they are."""

from __future__ import annotations

from dataclasses import replace

from tests.properties.building import ENDPOINT
from tests.resolver.cases import (
    CGROUP_1,
    CGROUP_1_ALLOWED,
    DEBIAN,
    GUESTLESS,
    Case,
    driver,
    one,
    pins,
    share,
)

GIVEN = ["0000:17:00.0", "0000:65:00.0"]


def hypervisor(groups: list[list[str]], **wishes: object):
    """Return a site whose pool gives its GPUs to guests."""
    given = {"devices": GIVEN, "iommu_groups": groups}
    kind = {"kind": "hypervisor"}
    return one(host=kind, parent="hypervisors", passthrough=given, **wishes)


SEPARATE = [[GIVEN[0]], [GIVEN[1]], ["0000:00:1f.0", "0000:00:1f.3"]]


def networks(hosts: int = 1, **settings: str):
    """Return a site of a control plane and some workers with networks of their own."""
    return one(hosts=hosts, shared={"kubernetes": {"endpoint": ENDPOINT, **settings}})


DOCKER = {"container_runtime": {"name": "docker"}}
#: Servers of the site's own, of which only Docker's user and containerd can make use.
OWN = {"mode": "mirror", "files": "https://files.example/bedplate", "registry": "r.example/gpu"}


def by_docker(name: str = "docker", shared: object = (), **wishes: object):
    """Return a site of GPU hosts without Kubernetes and its settings."""
    site = one(shared={"container_runtime": {"name": name}, **dict(shared)}, **wishes)
    return replace(site.everywhere(kubernetes=None), control_plane=0)


def numbered(**settings: str):
    """Return a site whose control plane is known by its address."""
    return replace(networks(**settings), numbered=True)


SHARED = [
    Case(
        "subnet-size",
        "pods-too-large",
        networks(pod_subnet="10.244.0.0/16"),
        networks(pod_subnet="10.244.0.0/15"),
    ),
    Case(
        "subnet-size",
        "pods-too-small",
        networks(pod_subnet="10.244.0.0/22"),
        networks(pod_subnet="10.244.0.0/23"),
    ),
    Case(
        "subnet-size",
        "services-too-large",
        networks(service_subnet="172.16.0.0/12"),
        networks(service_subnet="172.0.0.0/11"),
    ),
    Case(
        "subnet-size",
        "services-too-small",
        networks(service_subnet="10.96.0.0/28"),
        networks(service_subnet="10.96.0.0/29"),
    ),
    Case(
        "subnet-nodes",
        "a-node-more",
        networks(3, pod_subnet="10.244.0.0/22"),
        networks(4, pod_subnet="10.244.0.0/22"),
    ),
    Case(
        "subnet-overlap",
        "a-host-among-pods",
        numbered(pod_subnet="192.1.0.0/22"),
        numbered(pod_subnet="192.0.0.0/22"),
    ),
    Case(
        "subnet-family",
        "a-control-plane-of-the-other",
        networks(service_subnet="fd01::/112", pod_subnet="fd00::/48", cni="cilium"),
        numbered(service_subnet="fd01::/112", pod_subnet="fd00::/48", cni="cilium"),
    ),
    Case(
        "configuration-field",
        "later-than-this-release",
        one(kubernetes="1.36", kubelet={"memoryReservationPolicy": "None"}),
        one(kubernetes="1.35", kubelet={"memoryReservationPolicy": "None"}),
    ),
    Case(
        "configuration-value",
        "a-mapping-of-text",
        one(kubernetes="1.36", kubelet={"evictionHard": {"memory.available": "5%"}}),
        one(kubernetes="1.36", kubelet={"evictionHard": {"memory.available": 5}}),
    ),
    Case(
        "addon-kubernetes",
        "too-new",
        one(kubernetes="1.35", shared={"schedulers": ["kueue-0.14"]}),
        one(kubernetes="1.36", shared={"schedulers": ["kueue-0.14"]}),
    ),
    Case(
        "addon-kubernetes",
        "too-old",
        one(kubernetes="1.35", shared={"schedulers": ["kueue-0.17"]}),
        one(kubernetes="1.34", shared={"schedulers": ["kueue-0.17"]}),
    ),
    Case(
        "addon-driver",
        "driver-from",
        one(shared={"operators": ["dra-driver"]}, pins=pins(nvidia_driver="580.178.04")),
        one(shared={"operators": ["dra-driver"]}, pins=pins(nvidia_driver="580.65.06")),
    ),
    Case(
        "addon-needs",
        "needs",
        one(shared={"operators": ["slinky", "cert-manager"]}),
        one(shared={"operators": ["slinky"]}),
    ),
    Case(
        "addon-excludes",
        "excludes",
        one(shared={"schedulers": ["volcano"]}),
        one(shared={"schedulers": ["volcano", "kueue"]}),
    ),
    *(
        Case(
            "runtime-kubernetes",
            f"{name}-{wrong}",
            one(kubernetes=right, shared={"container_runtime": {"name": name}}, pins=pinned),
            one(kubernetes=wrong, shared={"container_runtime": {"name": name}}, pins=pinned),
        )
        for name, pinned, right, wrong in (
            ("cri-o", {"cri_o": "1.35.2"}, "1.35", "1.36"),
            ("cri-o", {"cri_o": "1.35.2"}, "1.35", "1.34"),
            ("containerd", {"containerd": "1.7.29"}, "1.35", "1.36"),
            ("containerd", {"containerd": "2.2.1"}, "1.35", "1.34"),
        )
    ),
    Case(
        "docker-kubernetes",
        "docker-below-kubelet",
        by_docker(),
        one(kubernetes="1.34", shared=DOCKER),
        {
            "containers.docker.version": "29.1.0",
            "containers.docker.source": "archive",
            "containers.nvidia_container_toolkit.source": "archive",
            "pools.pool_a.sharing.mode": "none",
        },
        silent="Kubernetes",
    ),
    Case(
        "docker-kubernetes",
        "podman-below-kubelet",
        by_docker(),
        one(kubernetes="1.34", shared={"container_runtime": {"name": "podman"}}),
    ),
    Case(
        "docker-shares",
        "mps",
        by_docker(sharing=share("mig", profile="1g.10gb")),
        by_docker(sharing=share("mps", replicas=4)),
        {"pools.pool_a.sharing.profile": "1g.10gb"},
    ),
    Case(
        "docker-shares",
        "seats",
        by_docker(sharing=share("none")),
        by_docker(sharing=share("none", seats=4)),
    ),
    Case(
        "runtime-unused",
        "docker-in-slurm",
        by_docker("containerd", parent="slurm"),
        by_docker(parent="slurm"),
    ),
    Case(
        "runtime-unused",
        "cri-o-in-slurm",
        by_docker("containerd", parent="slurm"),
        by_docker("cri-o", parent="slurm"),
    ),
    # Hosts that run no containers pull none from them, either.
    Case(
        "runtime-unused",
        "cri-o-in-slurm-with-own-servers",
        by_docker(shared={"sources": OWN}),
        by_docker("cri-o", shared={"sources": OWN}, parent="slurm"),
    ),
    Case(
        "runtime-packaged",
        "docker-of-another-system",
        by_docker(os=DEBIAN, pins={"docker": "20.10.24"}),
        by_docker(pins={"docker": "20.10.24"}),
        {"containers.docker.source": "distro"},
    ),
    Case(
        "component-driver",
        "toolkit-with-docker",
        by_docker(pins=pins(nvidia_container_toolkit="1.20.1"), driver=driver("570")),
        by_docker(pins=pins(nvidia_container_toolkit="1.20.1"), driver=driver("535")),
    ),
    Case(
        "runtime-cdi",
        "cdi",
        one(os=DEBIAN, shared={"container_runtime": {"source": "archive"}}),
        one(os=DEBIAN, shared={"container_runtime": {"source": "distro"}}),
    ),
    Case(
        "runtime-packaged",
        "packaged",
        one(os=DEBIAN, shared={"container_runtime": {"name": "cri-o", "source": "distro"}}),
        one(shared={"container_runtime": {"name": "cri-o", "source": "distro"}}),
        {"cluster.cri_o.version": "1.35.0", "cluster.cri_o.source": "distro"},
    ),
    Case(
        "component-kubernetes",
        "cilium",
        one(kubernetes="1.35", cni="cilium"),
        one(kubernetes="1.36", cni="cilium"),
        {"cluster.cni": {"name": "cilium", "version": "1.18.4"}},
    ),
    *(
        Case(
            "component-kubernetes",
            f"{component}-{wrong}",
            one(kubernetes=right, pins={component: version}),
            one(kubernetes=wrong, pins={component: version}),
        )
        for component, version, right, wrong in (
            ("flannel", "0.26.7", "1.35", "1.36"),
            ("cri_tools", "1.34.0", "1.35", "1.36"),
            ("cri_tools", "1.36.0", "1.35", "1.34"),
            ("nvidia_device_plugin", "0.17.0", "1.35", "1.36"),
        )
    ),
    Case(
        "component-driver",
        "toolkit",
        one(pins=pins(nvidia_container_toolkit="1.20.1"), driver=driver("570")),
        one(pins=pins(nvidia_container_toolkit="1.20.1"), driver=driver("535")),
    ),
    Case(
        "cgroup-v1",
        "allowed",
        one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED),
        one(os=CGROUP_1, kubernetes="1.36"),
        {"cluster.kubernetes.version": "1.36.3"},
    ),
    Case(
        "cgroup-v1",
        "before-it-was-switched-off",
        one(os=CGROUP_1, kubernetes="1.34"),
        one(os=CGROUP_1, kubernetes="1.35"),
    ),
    Case(
        "node-needs",
        "kernel-of-kubeadm",
        one(os=CGROUP_1, kubernetes="1.34"),
        one(os=CGROUP_1, kubernetes="1.34", ignored=["Swap"]),
        warned="kubeadm asks for kernel 4.19 or newer, and there is kernel 4.18.0-553",
    ),
    Case(
        "node-needs",
        "cgroup-of-kubeadm",
        one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, ignored=["all"]),
        one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, kubernetes="1.36", ignored=[]),
        {"cluster.kubernetes.version": "1.36.3"},
    ),
    Case(
        "node-needs",
        "kernel-of-a-setting",
        one(os=DEBIAN, kube_proxy={"mode": "nftables"}),
        one(os=CGROUP_1, kube_proxy={"mode": "nftables"}, ignored=["all"]),
    ),
    Case(
        "node-needs",
        "of-no-other-value",
        one(os=CGROUP_1, kube_proxy={"mode": "iptables"}),
        one(os=CGROUP_1, kube_proxy={"mode": "nftables"}),
    ),
    Case(
        "node-needs",
        "not-in-slurm",
        one(os=DEBIAN, parent="slurm", kube_proxy={"mode": "nftables"}),
        one(os=CGROUP_1, kube_proxy={"mode": "nftables"}),
    ),
    Case(
        "node-needs",
        "warned-of-only",
        one(os=DEBIAN, kubelet={"failSwapOn": False}),
        one(os=CGROUP_1, kubelet={"failSwapOn": False}, ignored=[]),
        warned="a node with swap asks for kernel 6.3 or newer, and there is kernel 6.1.0-50-amd64",
    ),
]

BESIDE_GEFORCE = [{"model": "rtx-4090", "count": 2}, {"model": "a6000", "count": 2}]
HOSTS = [
    Case(
        "rdma-path",
        "flavour",
        one(rdma={"stack": "inbox"}, driver=driver(flavour="open")),
        one(rdma={"stack": "inbox"}, driver=driver(flavour="proprietary")),
        {"pools.pool_a.rdma.stack": "inbox", "pools.pool_a.rdma.method": "dma-buf"},
    ),
    Case(
        "rdma-path",
        "architecture",
        one("v100", rdma={"stack": "doca"}),
        one("v100", rdma={"stack": "inbox"}),
        {"pools.pool_a.rdma.method": "peermem"},
    ),
    Case(
        "rdma-path",
        "geforce-by-host-memory",
        one("rtx-4090", rdma={"stack": "inbox"}),
        one("rtx-4090", rdma={"stack": "doca"}),
        {"pools.pool_a.rdma.stack": "inbox", "pools.pool_a.rdma.method": "host-memory"},
        warned="GeForce GPUs have no GPUDirect RDMA: network cards reach the memory of rtx-4090",
    ),
    Case(
        "rdma-path",
        "a-geforce-next-to-another-gpu",
        one(BESIDE_GEFORCE, rdma={"stack": "inbox"}),
        one(BESIDE_GEFORCE, rdma={"stack": "doca"}),
        {"pools.pool_a.rdma.method": "host-memory"},
    ),
    Case(
        "rdma-path",
        "workstation-gpus-have-gpudirect",
        one("a6000", rdma={"stack": "inbox"}),
        one("a6000", rdma={"stack": "inbox"}, driver=driver(flavour="proprietary")),
        {"pools.pool_a.rdma.method": "dma-buf"},
        silent="GPUDirect",
    ),
    Case(
        "rdma-path",
        "architecture-alone",
        one(rdma={"stack": "doca"}),
        one("next", rdma={"stack": "doca"}),
    ),
    Case(
        "rdma-path",
        "kernel",
        one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, rdma={"stack": "doca"}),
        one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, rdma={"stack": "inbox"}),
        {"pools.pool_a.rdma.method": "peermem"},
    ),
    Case(
        "rdma-path",
        "driver's-cuda",
        one(rdma={"stack": "inbox"}, driver=driver("570")),
        one(rdma={"stack": "inbox"}, driver=driver("535", "open")),
    ),
    Case(
        "guest-os",
        "guest",
        one(os=GUESTLESS),
        one(os=GUESTLESS, host={"kind": "passthrough"}),
    ),
    Case(
        "iommu-groups",
        "apart",
        hypervisor(SEPARATE),
        hypervisor([[GIVEN[0]], [GIVEN[1], "0000:65:00.1"]]),
        {"pools.pool_a.nvidia_driver": None, "pools.pool_a.expects": None},
    ),
    Case(
        "iommu-groups",
        "in-no-group",
        hypervisor(SEPARATE),
        hypervisor([[GIVEN[0]], ["0000:00:1f.0", "0000:00:1f.3"]]),
    ),
    Case("hypervisor-bare", "cuda", hypervisor(SEPARATE), hypervisor(SEPARATE, cuda=["12.9"])),
    *(
        Case(
            "slurm-or-kubernetes",
            mode,
            one(parent="slurm", sharing=share("mig", profile="1g.10gb")),
            one(parent="slurm", sharing=share(mode, replicas=4), shared=shared),
            {
                "pools.pool_a.expects": {
                    "resource": "nvidia.com/gpu",
                    "count": 28,
                    "also": {},
                    "by": "slurm",
                }
            },
        )
        for mode, shared in (
            ("mps", {}),
            ("hami", {"schedulers": ["hami"]}),
        )
    ),
    Case(
        "slurm-or-kubernetes",
        "shards",
        one(parent="slurm", sharing=share("time-slicing", replicas=4)),
        one(parent="slurm", sharing=share("mps", replicas=4)),
        {
            "pools.pool_a.sharing.mode": "time-slicing",
            "pools.pool_a.sharing.replicas": 4,
            "pools.pool_a.expects": {
                "resource": "nvidia.com/gpu",
                "count": 16,
                "also": {},
                "by": "slurm",
            },
        },
    ),
    Case(
        "share-divides",
        "shards-of-slurm",
        one(parent="slurm", sharing=share("time-slicing", share=0.25, seats=16)),
        one(parent="slurm", sharing=share("time-slicing", share=0.25, seats=17)),
    ),
]
