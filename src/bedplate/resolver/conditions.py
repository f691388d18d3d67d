"""Whether a thing of the catalogue meets a condition of a known-bad combination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bedplate.common.versions import last, number

if TYPE_CHECKING:
    from bedplate.catalogue.facts import Condition

#: The prefixes of facts that a condition of a known-bad combination can be about.
ABOUT = {
    "gpu": ("gpu",),
    "architecture": ("architecture",),
    "os": ("system",),
    "kernel": ("kernel",),
    "source": ("driver",),
    "flavour": ("driver",),
    "branch": ("driver",),
    "driver": ("driver",),
    "fabric": ("driver",),
    "cuda": ("cuda", "framework"),
    "kubernetes": ("kubernetes",),
    "containerd": ("runtime",),
    "nvidia_container_toolkit": ("component",),
    "nvidia_device_plugin": ("component",),
    "framework": ("framework",),
    "addon": ("addon",),
}
#: The field that a condition compares, where it is not the dimension's own name.
FIELDS = {
    "gpu": "model",
    "containerd": "version",
    "nvidia_container_toolkit": "version",
    "nvidia_device_plugin": "version",
    "kubernetes": "version",
    "framework": "version",
    "addon": "version",
    "driver": "version",
    "fabric": "version",
}
#: The field that has to have the condition's name, or the dimension itself.
NAMED = {
    "containerd": "runtime",
    "nvidia_container_toolkit": "component",
    "nvidia_device_plugin": "component",
}


def meets(condition: Condition, value: Any) -> bool:
    """Tell whether a thing meets a condition of a known-bad combination."""
    dimension = condition.dimension
    if (field := NAMED.get(dimension)) and getattr(value, field) != dimension:
        return False
    if condition.name is not None and getattr(value, dimension, None) != condition.name:
        return False
    if dimension == "cuda":
        told = value.cuda if hasattr(value, "cuda") else value.version
        if told is None:  # a build for CPUs
            return False
    else:
        told = str(getattr(value, FIELDS.get(dimension, dimension)))
    if condition.equal is not None:
        return bool(told == condition.equal)
    if condition.prefix is not None:
        return bool(told.startswith(condition.prefix))
    if condition.from_ is not None and number(told) < number(condition.from_):
        return False
    return condition.upto is None or number(told) <= last(condition.upto)
