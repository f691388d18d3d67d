"""Whether a condition of a combination that was reported as broken is met by a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.plain import between

if TYPE_CHECKING:
    from tests.properties.plain import Row
    from tests.properties.view import View


def met(condition: Row, view: View) -> bool:
    """Tell whether any of the pool's values in the condition's dimension meets it."""
    values = _values(condition["dimension"], view)
    if (name := condition.get("name")) is not None:
        values = [(its, text) for its, text in values if its == name]
    return any(_meets(condition, text) for _, text in values)


def _meets(condition: Row, text: str) -> bool:
    if condition.get("equal") is not None:
        return text == condition["equal"]
    if condition.get("prefix") is not None:
        return text.startswith(condition["prefix"])
    return between(text, condition.get("from"), condition.get("upto"))


def _values(dimension: str, view: View) -> list[tuple[str, str]]:
    """Return names and values: frameworks and add-ons have names, everything else only a value."""
    driver = view.driver or {}
    match dimension:
        case "gpu":
            found = [model["model"] for model, _ in view.gpus]
        case "architecture":
            found = [model["architecture"] for model, _ in view.gpus]
        case "os" | "kind":
            found = [view.pool[dimension]]
        case "kernel":
            found = [view.kernel]
        case "source" | "flavour" | "branch":
            found = [driver.get(dimension)]
        case "driver":
            found = [driver.get("version")]
        case "fabric":
            found = [(view.pool.get("nvidia_fabric") or {}).get("version")]
        case "cuda":
            found = [*view.pool.get("cuda_toolkit", []), *(row["cuda"] for row in view.builds)]
        case "sharing":
            found = [view.sharing["mode"]]
        case "framework":
            rows = view.pool.get("frameworks", [])
            return [(row["name"], row["version"]) for row in rows]
        case "addon":
            rows = [] if view.outside else view.cluster.get("addons", [])
            return [(row["name"], row["version"]) for row in rows]
        case _:
            row = None if view.outside else view.cluster.get(dimension)
            found = [(row or {}).get("version")]
    return [("", text) for text in found if text is not None]
