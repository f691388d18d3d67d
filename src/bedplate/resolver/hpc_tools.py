"""Which tools for trying and measuring a pool's hosts get, and why others are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.lock.model import HpcTools
from bedplate.resolver.outcome import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.catalogue.driver_facts import DriverPackages
    from bedplate.catalogue.system_facts import HpcTool
    from bedplate.site.model import Wishes


def decided(wishes: Wishes, driver: DriverPackages | None, catalogue: Catalogue) -> HpcTools | None:
    """Return the tools of a pool's hosts; None where the site leaves them out.

    Hypervisors get none: what is measured there is a guest's. NVIDIA's tools are no matter of hosts
    without its driver.
    """
    host = wishes.bedplate_host
    if not wishes.bedplate_hpc_tools or host.kind == "hypervisor":
        return None
    packages: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, fact in sorted(catalogue.hpc_tools.items()):
        tool = fact.value
        if not tool.default or (tool.source != "distro" and driver is None):
            continue
        package = _package(tool, host.os, driver, catalogue)
        if package is not None:
            packages[name] = package
        else:
            left[name] = _why(tool, host.os)
    return HpcTools(packages=packages, left=left) if packages or left else None


def reasons(name: str, tools: HpcTools | None) -> Iterator[Reason]:
    """Yield what a pool's hosts get, and why a tool is left out."""
    if tools is None:
        return
    told = ", ".join(tools.packages) or "none"
    yield Reason(name, "hpc_tools", told, "by default; bedplate_hpc_tools: false leaves them out")
    for tool, why in tools.left.items():
        yield Reason(name, tool, "left out", why)


def _package(
    tool: HpcTool, system: str, driver: DriverPackages | None, catalogue: Catalogue
) -> str | None:
    if tool.source == "distro":
        return tool.packages.get(system)
    if tool.source == "vendor-repo" and driver is not None and driver.source == "vendor-repo":
        branch = catalogue.driver_branches[driver.branch].value
        return tool.by_cuda.get(branch.cuda.partition(".")[0])
    return None


def _why(tool: HpcTool, system: str) -> str:
    match tool.source:
        case "distro":
            return f"no package of {system} is known"
        case "vendor-repo":
            return "hosts have the vendor's repository only where their driver comes from it"
        case "source":
            return f"published as source only, {tool.address}"
