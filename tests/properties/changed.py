"""Sites with a wish taken away, and with their decisions fed back as wishes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.lock import Lock
    from tests.properties.building import Plain

SHARED_PARTS = ("cni_plugins", "cri_tools", "nvidia_container_toolkit", "nvidia_device_plugin")
RUNTIMES = ("containerd", "cri_o", "docker")


def without(plain: Plain, pool: str | None, path: tuple[str | int, ...]) -> Plain | None:
    """Return a site without one wish; None where a site cannot be without it."""
    key, *rest = (str(path[0]).removeprefix("bedplate_"), *path[1:])
    if key in ("host", "kubernetes", "gpu") and rest[-1:] not in (["version"], ["secure_boot"]):
        return None
    own = plain.pools[pool].wishes if pool in plain.pools else plain.control_plane_wishes
    holder = own if key in own and (not rest or _has(own[key], rest)) else plain.shared
    if key not in holder:
        return None
    content = _less(holder[key], rest)
    changed = {k: v for k, v in {**holder, key: content}.items() if v is not None}
    if holder is plain.shared:
        return replace(plain, shared=changed)
    if pool in plain.pools:
        return replace(
            plain, pools={**plain.pools, pool: replace(plain.pools[pool], wishes=changed)}
        )
    return replace(plain, control_plane_wishes=changed)


def _has(value: Any, rest: list[str | int]) -> bool:
    if isinstance(value, list):
        return isinstance(rest[0], int) and rest[0] < len(value)
    return rest[0] in value


def _less(value: Any, rest: list[str | int]) -> Any:
    """Return a value without what a path leads to. A sharing mode goes with its parameters."""
    if not rest or rest == ["mode"] or rest == ["stack"]:
        return None
    first, *deeper = rest
    if isinstance(value, list):
        return [item for index, item in enumerate(value) if index != first]
    left = dict(value)
    left[str(first)] = _less(value[first], deeper) if deeper else None
    return {key: item for key, item in left.items() if item is not None}


def optional(plain: Plain) -> Iterator[tuple[str | None, tuple[str | int, ...]]]:
    """Yield the wishes that only narrow a decision: without one, more goes than with it.

    What allows something is no such wish (forward compatibility, the owner's key, a kubelet
    field), nor is what has a default of its own (kernel, Kubernetes' network, runtime).
    """
    needed = {"hami"} if _modes(plain) & {"hami"} else set()
    for pool, wishes in [(None, plain.shared), *((n, p.wishes) for n, p in plain.pools.items())]:
        for key in ("branch", "flavour", "source"):
            if key in wishes.get("driver", {}):
                yield pool, ("bedplate_driver", key)
        for key in ("cuda", "frameworks", "operators", "schedulers"):
            for index, text in enumerate(wishes.get(key, [])):
                # Others may need an add-on, and a pin of what is not there is refused.
                narrows = key in ("cuda", "frameworks") or not (needed or plain.shared.get("pins"))
                asked_for = text.startswith(("hami", "cert-manager"))  # with a version or without
                if narrows and not asked_for and not _pinned(wishes):
                    yield pool, (f"bedplate_{key}", index)
        for component in wishes.get("pins", {}):
            yield pool, ("bedplate_pins", component)
        if "rdma" in wishes:
            yield pool, ("bedplate_rdma",)
        if "seats" in wishes.get("sharing", {}):
            yield pool, ("bedplate_sharing", "seats")
        if wishes.get("host", {}).get("secure_boot"):
            yield pool, ("bedplate_host", "secure_boot")
        if "version" in wishes.get("kubernetes", {}):
            yield pool, ("bedplate_kubernetes", "version")


def _modes(plain: Plain) -> set[str]:
    sharing = [pool.wishes.get("sharing", {}) for pool in plain.pools.values()]
    return {one.get("mode", "none") for one in sharing if isinstance(one, dict)}


def _pinned(wishes: Mapping[str, Any]) -> bool:
    return bool(wishes.get("pins"))


def fed_back(plain: Plain, lock: Lock) -> Plain:
    """Return the site with every decision of its lock as a pin, or as the exact wish."""
    cluster = lock.cluster
    pins = {part: getattr(cluster, part).version for part in SHARED_PARTS}
    pins |= {"kubernetes": cluster.kubernetes.version, cluster.cni.name: cluster.cni.version}
    engines = {name: getattr(cluster, name) for name in RUNTIMES}
    pins |= {name: engine.version for name, engine in engines.items() if engine is not None}
    wished = {*plain.shared.get("schedulers", []), *plain.shared.get("operators", [])}
    for addon in cluster.addons:
        if any(text == addon.name or text.startswith(f"{addon.name}-") for text in wished):
            pins[addon.name.replace("-", "_")] = addon.version
    found = plain.everywhere(pins=plain.shared.get("pins", {}) | pins)
    for name, pool in lock.pools.items():
        its = plain.pools[name].wishes
        own = dict(its.get("pins", {}))
        if pool.nvidia_driver is not None:
            driver = pool.nvidia_driver
            own["nvidia_driver"] = driver.version
            if pool.nvidia_fabric is not None:
                own["nvidia_fabric"] = pool.nvidia_fabric.version
            exact = {"branch": driver.branch, "flavour": driver.flavour, "source": driver.source}
            found = found.pool(name, driver={**its.get("driver", {}), **exact})
            if its.get("cuda"):
                found = found.pool(name, cuda=pool.cuda_toolkit)
            own |= {one.name.replace("-", "_"): one.version for one in pool.frameworks}
        found = found.pool(name, pins=own or None)
    return found
