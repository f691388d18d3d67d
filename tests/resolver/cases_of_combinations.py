"""The cases about known-bad combinations and ends of ranges. See `cases` for what they are."""

from __future__ import annotations

from dataclasses import replace

from tests.resolver.cases import CGROUP_1, CGROUP_1_ALLOWED, DEBIAN, Case, driver, one, pins, share

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
