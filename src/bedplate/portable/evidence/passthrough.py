"""Evidence of a hypervisor: IOMMU, what vfio-pci holds, shares of cards, huge pages, domains."""

from typing import Any, Dict, List, Mapping

from .. import nvidia
from ..host import Host
from ..passthrough import functions as passthrough
from ..passthrough import kernel, libvirt_domain, libvirt_guests, pages, vgpu
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

REBOOT = "Reboot the host, or set gpu_passthrough_reboot_allowed and run the play again."
#: A boot gives what is listed to vfio-pci again: the list comes first.
RELEASE = (
    "Run bedplate.gpu.site for this host again, and reboot it or "
    "set gpu_passthrough_reboot_allowed."
)


def _next_boot(host: Host, boot_loader: str, arguments: List[str]) -> Dict[str, Any]:
    what = "next boot's kernel gets parameters of IOMMU and huge pages"
    if boot_loader == "none":
        reason = "the boot loader is not managed by Bedplate"
        return skipped("passthrough.boot", what, reason)
    kept, reason = kernel.next_boot(host, arguments)
    if kept is None:
        return skipped("passthrough.boot", what, reason)
    return check("passthrough.boot", what, arguments, kept, AGAIN)


def _iommu(host: Host, wish: kernel.Wish, boot_loader: str, to: Collected) -> None:
    arguments = kernel.arguments(host, wish.page_size, wish.pages)
    missing = kernel.missing_arguments(host, arguments)
    what = "running kernel has parameters of IOMMU and huge pages"
    reason = "reboot required" if missing else ""
    found = [argument for argument in arguments if argument not in missing]
    to.checks.append(check("passthrough.arguments", what, arguments, found, REBOOT, reason))
    to.checks.append(_next_boot(host, boot_loader, arguments))
    fix = "Switch on VT-d, AMD-Vi or SMMU in the firmware, and reboot."
    on = "on" if passthrough.active(host) else "off"
    to.checks.append(check("passthrough.iommu", "IOMMU is in use", "on", on, fix))


def _devices(
    host: Host, wish: Mapping[str, Any], left: List[passthrough.Function], to: Collected
) -> None:
    """What vfio-pci has, and is to have; ``left`` is what it still has from before."""
    present = passthrough.functions(host)
    devices = [str(address).lower() for address in wish.get("devices") or ()]
    if devices:
        said = passthrough.problems(present, devices, wish.get("iommu_groups") or [], "the host")
        what = "functions can be given away with their whole groups"
        fix = "Run the play again: it says what can be done."
        to.checks.append(check("passthrough.groups", what, [], said, fix))
    held = {a: present[a].driver or "no driver" for a in devices if a in present}
    held.update({one.address: one.driver or "" for one in left})
    wished = dict.fromkeys(devices, passthrough.DRIVER)
    wished.update({one.address: "no longer given away" for one in left})
    if not wished:
        return
    what = "functions for guests are held by vfio-pci"
    taken = any(driver not in ("no driver", passthrough.DRIVER) for driver in held.values())
    fix = RELEASE if left else REBOOT if taken else AGAIN
    reason = "reboot required" if left else ""
    to.checks.append(check("passthrough.bound", what, wished, held, fix, reason))
    to.facts["passthrough"] = {
        a: {"group": present[a].group, "node": present[a].node} for a in devices if a in present
    }


def _kept(host: Host, wish: kernel.Wish, to: Collected) -> None:
    what = "configuration of vfio-pci is ours and unchanged"
    placing = pages.files(host, wish)
    texts = {**kernel.files(wish.binding), **placing}
    changed = [path for path, (text, _) in texts.items() if host.read(path) != text]
    to.checks.append(check("passthrough.configuration", what, [], sorted(changed), AGAIN))
    state = host.run(["systemctl", "is-enabled", kernel.UNIT]).out.strip() or "absent"
    what = "functions are bound by address at every boot"
    to.checks.append(check("passthrough.unit", what, "enabled", state, AGAIN))
    if placing:
        what = "huge pages are placed on NUMA nodes at every boot"
        state = host.run(["systemctl", "is-enabled", pages.UNIT]).out.strip() or "absent"
        to.checks.append(check("passthrough.pages_unit", what, "enabled", state, AGAIN))


def _pages(host: Host, wish: kernel.Wish, to: Collected) -> None:
    what = "huge pages for the guests' memory"
    if not wish.page_size or not wish.pages:
        to.checks.append(skipped("passthrough.pages", what, "the guests use small pages"))
        return
    arguments = kernel.arguments(host, wish.page_size, wish.pages)
    found, wished = pages.counted(host, wish), pages.wished(wish)
    enough = {node: max(found[node] or 0, count) for node, count in wished.items()}
    # What the running kernel was told, it can be asked for again.
    fix = REBOOT if kernel.missing_arguments(host, arguments) else AGAIN
    if wish.places:
        shown = [{f"node {n}": have[n] or 0 for n in wished} for have in (enough, found)]
        to.checks.append(check("passthrough.pages", what, shown[0], shown[1], fix))
    else:
        to.checks.append(check("passthrough.pages", what, enough[None], found[None], fix))


def _guests(host: Host, wish: Mapping[str, Any], to: Collected) -> None:
    what = "guests are defined as requested"
    if not wish.get("guests"):
        to.checks.append(skipped("passthrough.guests", what, "the site asks for no guests here"))
        return
    settings = libvirt_guests.Settings(
        "the host", wish["connection"], wish["kind"], wish["page_size"], wish.get("devices") or []
    )
    domains, reason = libvirt_guests.Libvirt(host, settings).domains()
    if reason is not None:
        fix = "See 'systemctl status libvirtd' on the host."
        to.checks.append(failed("passthrough.guests", what, reason, fix, "an answer"))
        return
    said, made = libvirt_guests.foreign(domains, wish["guests"], settings), vgpu.of_guests(host)
    for name, one in sorted(wish["guests"].items()):
        if name not in domains:
            said.append(f"{name} is not defined")
            continue
        if [share.profile for share in made.get(name, [])] != list(one.get("vgpu") or []):
            said.append(f"{name}: its shares of GPUs were not made")
            continue
        wanted = libvirt_domain.xml(libvirt_guests.guest(host, name, one, settings))
        have, aim = libvirt_domain.essence(domains[name]), libvirt_domain.essence(wanted)
        said += [f"{name}: {line}" for line in libvirt_domain.differences(have, aim)]
    to.checks.append(check("passthrough.guests", what, [], said, AGAIN))


def _shares(host: Host, wish: Mapping[str, Any], to: Collected) -> None:
    """The vGPU manager, and the shares that it has made of the cards that stay with the host."""
    version, wished = wish.get("manager") or "", vgpu.wishes(wish.get("guests") or {})
    if not version:
        return
    loaded = nvidia.loaded_module(host)
    what = "vGPU manager's module is loaded, at the lock's version"
    found = loaded.version if loaded else "none"
    to.checks.append(check("passthrough.manager", what, version, found, REBOOT))
    what = "vGPU manager's service runs"
    state = host.run(["systemctl", "is-active", vgpu.SERVICE]).out.strip() or "absent"
    fix = f"See 'journalctl -u {vgpu.SERVICE}' on the host, and run bedplate.gpu.site again."
    to.checks.append(check("passthrough.service", what, "active", state, fix))
    made = [share for share in vgpu.recorded(host) if vgpu.there(host, share)]
    names = [f"{guest}/{number} {profile}" for guest, number, profile in wished]
    what = "shares of GPUs are made as the guests request"
    to.checks.append(
        check("passthrough.shares", what, names, [share.name for share in sorted(made)], AGAIN)
    )
    state = host.run(["systemctl", "is-enabled", vgpu.UNIT]).out.strip() or "absent"
    what = "shares of GPUs are made again at every boot"
    to.checks.append(check("passthrough.shares_unit", what, "enabled", state, AGAIN))
    to.facts["vgpu"] = {share.name: share.function for share in made}


def collect(host: Host, wishes: Wishes, to: Collected) -> None:
    """Add the checks of a hypervisor; one skipped check where nothing is given away."""
    wish = wishes.passthrough
    devices = [str(address).lower() for address in wish.get("devices") or ()]
    present = passthrough.functions(host)
    there = [address for address in devices if address in present]
    binding = passthrough.binding(present, there, wish.get("binding") or "auto")
    left = kernel.released(host, binding)
    if not devices and not wish.get("manager"):
        reason = "the site gives no devices of this host to guests"
        if left:
            _devices(host, wish, left, to)
        else:
            to.checks.append(skipped("passthrough", "devices for guests", reason))
        return
    size, number = wish.get("page_size") or "", int(wish.get("pages") or 0)
    guests = pages.Guests(wish.get("guests") or {}, wish.get("vgpu_cards") or [])
    told = kernel.Wish(binding, size, number, pages.places(host, size, number, guests))
    _iommu(host, told, wish.get("boot_loader") or "auto", to)
    _devices(host, wish, left, to)
    _kept(host, told, to)
    _pages(host, told, to)
    _shares(host, wish, to)
    _guests(host, wish, to)
