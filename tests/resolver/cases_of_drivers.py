"""The cases about drivers, CUDA and frameworks. See `cases` for what they are."""

from __future__ import annotations

from tests.resolver.cases import GUESTLESS, Case, driver, one, pins

DRIVER = "pools.pool_a.nvidia_driver"
OLD_VENDOR = driver("595", "proprietary", "vendor-repo")

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
            "pools.pool_a.nvidia_fabric.kind": "nvswitch",
            "pools.pool_a.nvidia_fabric.version": "580.178.04",
            "pools.pool_a.nvidia_fabric.packages": {"nvidia-fabricmanager": "580.178.04-1"},
        },
    ),
    Case(
        "fabric-packaged",
        "subnet-manager",
        one("b200", 8),
        one("b200", 8, driver=driver("580", source="distro")),
        {
            f"{DRIVER}.source": "vendor-repo",
            "pools.pool_a.nvidia_fabric.kind": "nvlink-5",
            "pools.pool_a.nvidia_fabric.packages.nvlsm": "2025.10.11-1",
        },
    ),
    Case(
        "fabric-packaged",
        "of-this-kind-only",
        one("a100", 8, driver=driver("580", source="distro")),
        one("b200", 8, driver=driver("580", source="distro")),
        {f"{DRIVER}.source": "distro", "pools.pool_a.nvidia_fabric.kind": "nvswitch"},
    ),
    Case(
        "fabric-packaged",
        "not-for-a-few",
        one("b200", 7, driver=driver("580", source="distro")),
        one("b200", 8, driver=driver("580", source="distro")),
        {"pools.pool_a.nvidia_fabric": None},
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
        "for-cpus",
        one("v100", frameworks=["jax-cpu"]),
        one("v100", frameworks=["jax-0.8"]),
        {"pools.pool_a.frameworks.0.cuda": None},
    ),
    Case(
        "framework-gpu",
        "ptx-of-newer-ones-only",
        one("b200", frameworks=["pytorch-2.12"]),
        one("b200", frameworks=["pytorch-2.8"]),
        {"pools.pool_a.frameworks.0.variant": "cu130"},
    ),
]
