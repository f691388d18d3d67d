"""The cases by rule. See `cases` for what they are."""

from __future__ import annotations

from dataclasses import replace

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

DRIVER = "pools.pool_a.nvidia_driver"
OLD_VENDOR = driver("595", "proprietary", "vendor-repo")
TWO_BOARDS = [{"model": "a100", "count": 4}, {"model": "b200", "count": 4}]
SEATS = {"share": 0.08}
GIVEN = ["0000:17:00.0", "0000:65:00.0"]


def hypervisor(groups: list[list[str]], **wishes: object):
    """Return a site whose pool gives its GPUs to guests."""
    given = {"devices": GIVEN, "iommu_groups": groups}
    kind = {"kind": "hypervisor"}
    return one(host=kind, parent="hypervisors", passthrough=given, **wishes)


SEPARATE = [[GIVEN[0]], [GIVEN[1]], ["0000:00:1f.0", "0000:00:1f.3"]]

DRIVERS = [
    Case(
        "gpu-branch",
        "legacy-branch-first",
        one("v100", driver=driver("580", "proprietary", "vendor-repo")),
        one("v100", driver=OLD_VENDOR),
        {f"{DRIVER}.version": "580.178.04", f"{DRIVER}.flavour": "proprietary"},
    ),
    Case(
        "gpu-branch",
        "first-branch",
        one("next", driver=driver("580")),
        one("next", driver=driver("570")),
    ),
    Case(
        "gpu-branch",
        "mixed-generations",
        one([{"model": "v100", "count": 1}, {"model": "a100", "count": 1}]),
        one([{"model": "v100", "count": 1}, {"model": "a100", "count": 1}], driver=OLD_VENDOR),
        {f"{DRIVER}.branch": "580", f"{DRIVER}.flavour": "proprietary"},
    ),
    Case(
        "gpu-flavour",
        "closed-only",
        one("v100", driver=driver(flavour="proprietary")),
        one("v100", driver=driver(flavour="open")),
    ),
    Case(
        "gpu-flavour",
        "open-required",
        one("b200", driver=driver(flavour="open")),
        one("b200", driver=driver(flavour="proprietary")),
        {f"{DRIVER}.version": "580.178.04"},
    ),
    Case(
        "gpu-flavour",
        "open-from",
        one("t4", pins=pins(nvidia_driver="580.65.06")),
        one("t4", driver=driver("570", "open")),
        {f"{DRIVER}.flavour": "open"},
    ),
    Case(
        "gpu-flavour",
        "open-required-beside-closed-only",
        one([{"model": "b200", "count": 1}, {"model": "a100", "count": 1}]),
        one([{"model": "b200", "count": 1}, {"model": "v100", "count": 1}]),
    ),
    Case(
        "gpu-qualified",
        "qualified-from",
        one("pro-4500", pins=pins(nvidia_driver="595.91.07")),
        one("pro-4500", pins=pins(nvidia_driver="595.45.04")),
        {f"{DRIVER}.source": "vendor-repo"},
    ),
    Case(
        "fabric-packaged",
        "nvswitch",
        one("a100", 7, driver=OLD_VENDOR),
        one("a100", 8, driver=OLD_VENDOR),
        {"pools.pool_a.nvidia_fabric": None},
    ),
    Case(
        "fabric-packaged",
        "nvlink-5",
        one("b200", 7, driver=driver(source="runfile")),
        one("b200", 8, driver=driver(source="runfile")),
    ),
    Case(
        "fabric-packaged",
        "to-the-last-digit",
        one("a100", 8),
        one("a100", 8, driver=driver(source="precompiled")),
        {
            "pools.pool_a.nvidia_fabric.version": "580.178.04",
            "pools.pool_a.nvidia_fabric.packages": {"nvidia-fabricmanager": "580.178.04-1"},
        },
    ),
    Case(
        "secure-boot",
        "signed",
        one(host={"secure_boot": True}),
        one(host={"secure_boot": True}, driver=driver(source="vendor-repo")),
        {f"{DRIVER}.source": "distro"},
    ),
    Case(
        "secure-boot",
        "owner's-key",
        one(host={"secure_boot": True, "module_signing": "mok"}, driver=driver("615")),
        one(host={"secure_boot": True}, driver=driver("615")),
    ),
    Case(
        "driver-packaged",
        "packaged",
        one(os=GUESTLESS, driver=driver("580", "open", "vendor-repo")),
        one(os=GUESTLESS, driver=driver("595")),
    ),
    Case(
        "kernel-headers",
        "headers",
        one(host={"kernel": "6.17.0-5-generic"}),
        one(host={"kernel": "6.8.0-31-generic"}),
        {"pools.pool_a.kernel": "6.17.0-5-generic"},
    ),
    Case(
        "kernel-headers",
        "precompiled",
        one(driver=driver(source="precompiled")),
        one(driver=driver(source="precompiled"), host={"kernel": "6.17.0-5-generic"}),
    ),
]

CUDA = [
    Case(
        "cuda-driver",
        "minor-version-compatibility",
        one(cuda=["13.0"], pins=pins(nvidia_driver="580.65.06")),
        one(cuda=["13.0"], driver=driver("570")),
        {"pools.pool_a.cuda_toolkit": ["13.0.2"]},
        warned="13.0.2",
    ),
    Case(
        "cuda-driver",
        "floor-of-the-major-12",
        one(cuda=["12.9"], driver=driver("535")),
        one(cuda=["13.2"], driver=driver("535"), forward_compatibility=True),
        warned="12.9.1",
    ),
    Case(
        "cuda-driver",
        "forward-compatibility",
        one(cuda=["13.0"], driver=driver("535"), forward_compatibility=True),
        one(cuda=["13.0"], driver=driver("535")),
    ),
    Case(
        "cuda-driver",
        "forward-compatibility-by-branch",
        one("a16", cuda=["13.0"], driver=driver("535"), forward_compatibility=True),
        one("a16", cuda=["13.0"], driver=driver("570"), forward_compatibility=True),
    ),
    Case(
        "cuda-driver",
        "forward-compatibility-only-in-data-centres",
        one("a2", cuda=["13.0"], driver=driver("535"), forward_compatibility=True),
        one("a6000", cuda=["13.0"], driver=driver("535"), forward_compatibility=True),
    ),
    Case("cuda-gpu", "last", one("v100", cuda=["12.9.1"]), one("v100", cuda=["13.0"])),
    Case("cuda-gpu", "first", one("b200", cuda=["12.9.0"]), one("b200", cuda=["12.2"])),
    Case("cuda-gpu", "first-of-old-ones", one("t4", cuda=["11.8"]), one("next", cuda=["11.8"])),
    Case("cuda-gpu", "first-of-ampere", one(cuda=["11.8"]), one("b200", cuda=["11.8", "12.9"])),
]

FRAMEWORKS = [
    Case(
        "framework-driver",
        "floor-of-the-major",
        one(frameworks=["jax-0.8"], pins=pins(nvidia_driver="580.65.06")),
        one(frameworks=["jax-0.8"], driver=driver("570")),
        {"pools.pool_a.frameworks.0.variant": "cuda13", "pools.pool_a.frameworks.0.cuda": "13.0"},
    ),
    Case(
        "framework-driver",
        "forward-compatibility",
        one(frameworks=["jax-0.8"], driver=driver("535"), forward_compatibility=True),
        one(frameworks=["jax-0.8"], driver=driver("535")),
    ),
    Case(
        "framework-gpu",
        "compute-capability",
        one("v100", frameworks=["pytorch-2.8"]),
        one("v100", frameworks=["pytorch-2.12"]),
        {"pools.pool_a.frameworks.0.version": "2.8.0"},
    ),
    Case(
        "framework-gpu",
        "same-major",
        one("a16", frameworks=["jax-0.8"]),
        one("v100", frameworks=["jax-0.8"]),
    ),
    Case(
        "framework-gpu",
        "ptx",
        one("pro-4500", frameworks=["tensorflow-2.20"]),
        one("pro-4500", frameworks=["jax-0.8"]),
    ),
    Case(
        "framework-gpu",
        "ptx-of-newer-ones-only",
        one("b200", frameworks=["pytorch-2.12"]),
        one("b200", frameworks=["pytorch-2.8"]),
        {"pools.pool_a.frameworks.0.variant": "cu130"},
    ),
]

SHARING = [
    Case(
        "mps-clients",
        "by-architecture",
        one("v100", sharing=share("mps", replicas=48)),
        one("v100", sharing=share("mps", replicas=49)),
        {"pools.pool_a.expects": {"resource": "nvidia.com/gpu", "count": 192, "by": "cluster"}},
    ),
    Case(
        "mps-clients",
        "by-cuda-13",
        one(sharing=share("mps", replicas=60)),
        one(sharing=share("mps", replicas=61)),
    ),
    Case(
        "mps-clients",
        "by-cuda-12",
        one(sharing=share("mps", replicas=48), driver=driver("570")),
        one(sharing=share("mps", replicas=49), driver=driver("570")),
    ),
    Case(
        "mig-geometry",
        "of-the-board",
        one(sharing=share("mig", profile="1g.10gb")),
        one(sharing=share("mig", profile="1g.23gb")),
        {"pools.pool_a.expects.count": 28},
    ),
    Case(
        "mig-geometry",
        "of-every-board",
        one(TWO_BOARDS, sharing=share("mig", profile="3g.40gb")),
        one(TWO_BOARDS, sharing=share("mig", profile="1g.23gb")),
        {"pools.pool_a.expects.count": 20},
    ),
    Case(
        "mig-geometry",
        "of-the-newer-board",
        one("b200", sharing=share("mig", profile="1g.23gb")),
        one("b200", sharing=share("mig", profile="1g.10gb")),
        {"pools.pool_a.expects.count": 28},
    ),
    *(
        Case(
            "sharing-parameters",
            f"{mode}-{'-'.join(wrong) or 'nothing'}",
            one(sharing=share(mode, **right)),
            one(sharing=share(mode, **wrong)),
        )
        for mode, right, wrong in (
            ("time-slicing", {"replicas": 4}, {}),
            ("mps", {"share": 0.25}, {"profile": "1g.10gb"}),
            ("time-slicing", {"share": 0.25}, {"share": 0.25, "replicas": 4}),
            ("mig", {"profile": "1g.10gb"}, {}),
            ("mig", {"profile": "1g.10gb"}, {"profile": "1g.10gb", "replicas": 7}),
            ("none", {}, {"replicas": 2}),
        )
    ),
    Case(
        "share-divides",
        "fifty-students-on-four-cards",
        one(sharing=share("time-slicing", seats=48, **SEATS)),
        one(sharing=share("time-slicing", seats=50, **SEATS)),
        {"pools.pool_a.sharing.replicas": 12, "pools.pool_a.expects.count": 48},
    ),
    Case(
        "share-divides",
        "mps",
        one(sharing=share("mps", replicas=2, seats=8)),
        one(sharing=share("mps", replicas=2, seats=9)),
    ),
    Case(
        "share-divides",
        "hami",
        one(sharing=share("hami", replicas=2, seats=8), shared={"schedulers": ["hami"]}),
        one(sharing=share("hami", replicas=2, seats=9), shared={"schedulers": ["hami"]}),
    ),
    Case(
        "share-divides",
        "whole-cards-of-two-hosts",
        one(hosts=2, sharing=share("none", seats=8)),
        one(hosts=2, sharing=share("none", seats=9)),
    ),
    Case(
        "share-divides",
        "instances",
        one(sharing=share("mig", profile="3g.40gb", seats=8)),
        one(sharing=share("mig", profile="3g.40gb", seats=9)),
    ),
    Case(
        "sharing-scheduler",
        "hami",
        one(sharing=share("hami", replicas=4), shared={"schedulers": ["hami"]}),
        one(sharing=share("hami", replicas=4)),
        {"pools.pool_a.expects": {"resource": "nvidia.com/gpu", "count": 16, "by": "schedulers"}},
    ),
    Case(
        "resource-owner",
        "operator-beside-plugin",
        one(shared={"schedulers": ["hami"]}),
        one(shared={"operators": ["gpu-operator"]}),
        {"pools.pool_a.expects.by": "cluster"},
    ),
    Case(
        "resource-owner",
        "operator-beside-hami",
        one(sharing=share("hami", replicas=2), shared={"schedulers": ["hami"]}),
        one(
            sharing=share("hami", replicas=2),
            shared={"schedulers": ["hami"], "operators": ["gpu-operator"]},
        ),
    ),
    Case(
        "resource-owner",
        "another-resource",
        one(shared={"operators": ["network-operator"]}),
        one(shared={"operators": ["network-operator", "rdma-plugin"]}),
    ),
]

SHARED = [
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
            ("docker", {}, "1.34", "1.35"),
            ("containerd", {"containerd": "1.7.29"}, "1.35", "1.36"),
            ("containerd", {"containerd": "2.2.1"}, "1.35", "1.34"),
        )
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
        {"cluster.cri_o": {"version": "1.35.0", "source": "distro"}},
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
]

HOSTS = [
    Case(
        "rdma-path",
        "flavour",
        one(rdma={"stack": "inbox"}, driver=driver(flavour="open")),
        one(rdma={"stack": "inbox"}, driver=driver(flavour="proprietary")),
        {"pools.pool_a.rdma": {"stack": "inbox", "method": "dma-buf"}},
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
    Case("hypervisor-bare", "cuda", hypervisor(SEPARATE), hypervisor(SEPARATE, cuda=["12.9"])),
    Case(
        "slurm-or-kubernetes",
        "both",
        one(parent="slurm", sharing=share("mps", replicas=4)),
        one(parent="slurm", sharing=share("time-slicing", replicas=4)),
        {"pools.pool_a.expects.by": "slurm"},
    ),
]

KNOWN_BAD = [
    Case("known-bad", name, right, wrong)
    for name, right, wrong in (
        (
            "kernel",
            one(os=DEBIAN, driver=driver(source="distro")),
            one(os=DEBIAN, driver=driver(source="distro"), host={"kernel": "6.12.9-amd64"}),
        ),
        (
            "source",
            one(os=DEBIAN, driver=driver(source="vendor-repo"), host={"kernel": "6.12.9-amd64"}),
            one(os=DEBIAN, driver=driver("535"), host={"kernel": "6.12.9-amd64"}),
        ),
        ("flavour", one("t4", driver=driver("595")), one("t4", driver=driver("595", "open"))),
        (
            "gpu",
            one("a100", driver=driver("595", "open")),
            one("t4", driver=driver("595", "open")),
        ),
        ("branch", one("t4", driver=driver("610")), one("t4", driver=driver("595", "open"))),
        *(
            (
                f"architecture-{right}-{'-'.join(ours.values())}",
                one(right, kubernetes="1.35", pins=pins(**ours)),
                one(
                    "t4",
                    kubernetes="1.35",
                    pins=pins(nvidia_container_toolkit="1.20.1", nvidia_device_plugin="0.17.0"),
                ),
            )
            for right, ours in (
                ("a100", {"nvidia_container_toolkit": "1.20.1", "nvidia_device_plugin": "0.17.0"}),
                ("t4", {"nvidia_container_toolkit": "1.17.8", "nvidia_device_plugin": "0.17.0"}),
                ("t4", {"nvidia_container_toolkit": "1.20.1", "nvidia_device_plugin": "0.19.1"}),
            )
        ),
        ("fabric", one(count=7, driver=driver("570")), one(count=8, driver=driver("570"))),
        ("driver", one(count=8, driver=driver("535")), one(count=8, driver=driver("570"))),
        ("cuda", *(one(host={"kind": "passthrough"}, cuda=[v]) for v in ("12.9.1", "12.9.0"))),
        (
            "cuda-of-a-framework",
            one(frameworks=["tensorflow"]),
            one(frameworks=["tensorflow"], host={"kind": "passthrough"}),
        ),
        ("kind", one(cuda=["12.9.0"]), one(host={"kind": "passthrough"}, cuda=["12.9.0"])),
        *(
            (
                f"sharing-{mode}-{runtime}",
                one(
                    kubernetes="1.35",
                    sharing=share(mode, replicas=2),
                    pins=pins(containerd=runtime),
                ),
                one(
                    kubernetes="1.35",
                    sharing=share("mps", replicas=2),
                    pins=pins(containerd="1.7.29"),
                ),
            )
            for mode, runtime in (("time-slicing", "1.7.29"), ("mps", "2.2.1"))
        ),
        *(
            (
                f"addon-{version}-{addon}",
                one(kubernetes=version, shared={"schedulers": [addon]}),
                one(kubernetes="1.36.2", shared={"schedulers": ["kueue-0.17"]}),
            )
            for version, addon in (("1.36.3", "kueue"), ("1.36.2", "volcano"))
        ),
        *(
            (
                f"framework-{framework}",
                one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, frameworks=[framework]),
                one(os=CGROUP_1, kubelet=CGROUP_1_ALLOWED, frameworks=["jax-0.8"]),
            )
            for framework in ("tensorflow",)
        ),
    )
]

EXACT = [
    Case(
        "kernel-known",
        "of-another-system",
        one(os=DEBIAN, host={"kernel": "6.1.0-50-amd64"}),
        one(os=DEBIAN, host={"kernel": "6.8.0-90-generic"}),
    ),
    Case(
        "gpu-known",
        "subsystem",
        one([{"pci": "10de:25b6", "subsystem": "10de:157e", "count": 1}]),
        one([{"pci": "10de:25b6", "count": 1}]),
        {"pools.pool_a.gpu.0.model": "a2"},
    ),
    Case("gpu-known", "model", one("a16"), one("a17")),
    Case("system-known", "os", one(), replace(one(), control_plane_wishes={"host": {"os": "x"}})),
]

CASES = [*DRIVERS, *CUDA, *FRAMEWORKS, *SHARING, *SHARED, *HOSTS, *KNOWN_BAD, *EXACT]
