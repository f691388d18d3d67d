"""What a pod asks for in all."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bedplate.pods.packing.shares import RESOURCE, Request, ShareError, request
from bedplate.portable.quantities import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def milli(quantity: str | int) -> int:
    """Return a quantity in thousandths, rounded up."""
    return math.ceil(parse(quantity) * 1000)


def of_pod(spec: Mapping[str, Any]) -> Request:
    """Return what a pod's specification asks for.

    Raises ShareError for amounts that no GPU can give, and where several containers ask: the
    annotation names the GPUs of the pod, so one container must be meant.
    """
    containers = spec.get("containers") or []
    first = spec.get("initContainers") or []
    if any(_asked(container, RESOURCE) for container in first):
        raise ShareError(f"{RESOURCE}: only an ordinary container may ask for it")
    amounts = [amount for c in containers if (amount := _asked(c, RESOURCE))]
    if len(amounts) > 1:
        raise ShareError(f"{RESOURCE}: {len(amounts)} containers ask for it, allowed is one")
    amount = parse(amounts[0]) if amounts else Decimal(0)
    if amount != int(amount):
        raise ShareError(f"{RESOURCE}: {amounts[0]} is no whole number of thousandths")
    return request(int(amount), _cpu(spec, containers, first))


def _asked(container: Mapping[str, Any], name: str) -> Any:
    resources = container.get("resources") or {}
    return (resources.get("requests") or {}).get(name) or (resources.get("limits") or {}).get(name)


def _cpu(
    spec: Mapping[str, Any],
    containers: Iterable[Mapping[str, Any]],
    first: Iterable[Mapping[str, Any]],
) -> int:
    """As kube-scheduler counts: sidecars run beside the containers, init containers before."""
    whole = ((spec.get("resources") or {}).get("requests") or {}).get("cpu")
    overhead = milli((spec.get("overhead") or {}).get("cpu", 0))
    if whole is not None:
        return milli(whole) + overhead
    running = peak = 0
    for container in first:
        cpu = milli(_asked(container, "cpu") or 0)
        if container.get("restartPolicy") == "Always":
            running += cpu
            peak = max(peak, running)
        else:
            peak = max(peak, running + cpu)
    running += sum(milli(_asked(container, "cpu") or 0) for container in containers)
    return max(running, peak) + overhead
