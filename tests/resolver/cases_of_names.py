"""The cases about names, sums and what contradicts itself. See `cases` for what they are."""

from __future__ import annotations

from dataclasses import replace

from tests.resolver.cases import Case, driver, one, pins

MI300X = {"vendor": "amd", "model": "mi300x", "count": 8}
MIRROR = {"mode": "mirror", "url": "http://mirror.example:5080"}
OWN = {"mode": "mirror", "files": "https://files.example/bedplate", "registry": "r.example/gpu"}
VOLCANO = {"schedulers": ["volcano"]}
LOGIN = {"user": "reader", "password": "not-shown-7"}


def reached(endpoint: str):
    """Return a site whose cluster is reached by an endpoint."""
    return one(shared={"kubernetes": {"endpoint": endpoint}})


def shared_by(endpoint: str, by: str = "keepalived", *, numbered: bool = True):
    """Return a site whose endpoint is an address that moves between its control planes."""
    wished = {"kubernetes": {"endpoint": endpoint, "endpoint_by": by}}
    return replace(one(shared=wished), numbered=numbered)


def board(model: str, count: int):
    """Return a wish for GPUs, one of a list."""
    return {"model": model, "count": count}


NAMES = [
    Case(
        "accelerator-known",
        "model",
        one([], accelerator=MI300X),
        one([], accelerator={**MI300X, "model": "mi300y"}),
        {"pools.pool_a.accelerator.model": "mi300x", "pools.pool_a.nvidia_driver": None},
    ),
    Case(
        "accelerator-known",
        "beside-gpus",
        one([], accelerator=MI300X),
        one(accelerator=MI300X),
    ),
    Case(
        "addon-known",
        "name",
        one(kubernetes="1.35", shared={"schedulers": ["kueue-0.14"]}),
        one(kubernetes="1.35", shared={"schedulers": ["kueue-0.99"]}),
    ),
    Case("branch-known", "branch", one(driver=driver("580")), one(driver=driver("581"))),
    Case("cuda-known", "minor", one(cuda=["12.9"]), one(cuda=["12.10"])),
    Case("cuda-twice", "minor", one(cuda=["12.9", "13.0"]), one(cuda=["12.9.0", "12.9.1"])),
    Case(
        "framework-known",
        "version",
        one(frameworks=["jax-0.8"]),
        one(frameworks=["jax-0.9"]),
    ),
    Case(
        "gpu-count",
        "one-model-twice",
        one([board("a100", 1), board("t4", 1)]),
        one([board("a100", 1), board("a100", 1)]),
    ),
    Case("gpu-count", "none", one([board("a100", 1)]), one([])),
    Case(
        "pin-known",
        "version",
        one(pins=pins(nvidia_driver="580.178.04")),
        one(pins=pins(nvidia_driver="580.178.05")),
    ),
]

SITES = [
    Case("endpoint-is-host", "a-node", reached("cp0:6443"), reached("a00:6443")),
    Case("endpoint-address", "a-name", shared_by("192.0.2.9:6443"), shared_by("api.example:6443")),
    Case("endpoint-address", "a-hosts", shared_by("192.0.2.9:6443"), shared_by("192.0.2.1:6443")),
    Case("endpoint-address", "a-pods", shared_by("192.0.2.9:6443"), shared_by("10.244.0.9:6443")),
    Case("endpoint-address", "port", shared_by("192.0.2.9:6443"), shared_by("192.0.2.9:8443")),
    Case(
        "endpoint-address",
        "control-planes-by-name",
        shared_by("192.0.2.9:6443"),
        shared_by("192.0.2.9:6443", numbered=False),
    ),
    Case(
        "endpoint-address",
        "port-of-an-api-server",
        shared_by("192.0.2.9:8443", "haproxy"),
        shared_by("192.0.2.9:6443", "haproxy"),
    ),
    Case(
        "login-nowhere",
        "with-a-mirror",
        one(shared={"sources": OWN, "sources_login": LOGIN}),
        one(shared={"sources": MIRROR, "sources_login": LOGIN}),
        {"sources.registry": "r.example/gpu", "sources.files": "https://files.example/bedplate"},
    ),
    Case(
        "login-unencrypted",
        "files",
        one(shared={"sources": OWN, "sources_login": LOGIN}),
        one(shared={"sources": {**OWN, "files": "http://f.example"}, "sources_login": LOGIN}),
    ),
    Case(
        "taints-leave-room",
        "of-the-only-pool",
        one(taints=[{"key": "example.com/gpu", "effect": "PreferNoSchedule"}], shared=VOLCANO),
        one(taints=[{"key": "example.com/gpu", "effect": "NoSchedule"}], shared=VOLCANO),
    ),
    Case(
        "own-runtime",
        "cri-o",
        one(shared={"sources": MIRROR, "container_runtime": {"name": "cri-o"}}),
        one(shared={"sources": OWN, "container_runtime": {"name": "cri-o"}}),
    ),
    Case(
        "mirror-half",
        "without-files",
        one(shared={"sources": OWN}),
        one(shared={"sources": {"mode": "mirror", "registry": "r.example"}}),
    ),
    Case(
        "mirror-two",
        "url-and-registry",
        one(shared={"sources": OWN}),
        one(shared={"sources": {**OWN, **MIRROR}}),
    ),
    Case(
        "upstream-url",
        "without-a-mirror",
        one(shared={"sources": MIRROR}),
        one(shared={"sources": {**MIRROR, "mode": "upstream"}}),
        {"sources.url": "http://mirror.example:5080"},
    ),
    Case(
        "wishes-contradict",
        "a-version-and-a-pin",
        one(kubernetes="1.36", pins=pins(kubernetes="1.36.2")),
        one(kubernetes="1.35", pins=pins(kubernetes="1.36.2")),
        {"cluster.kubernetes.version": "1.36.2"},
    ),
]
