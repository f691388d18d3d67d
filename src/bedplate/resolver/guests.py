"""Guests of hypervisors, which are hosts of pools: whether the two sides of a site agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver.explanations import refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.common.errors import Problem
    from bedplate.site import Site, SiteHost
    from bedplate.site.hosts import Guest

RULE = "guests"
KEY = "bedplate_guests"
HYPERVISOR = "hypervisor"


def check(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield what is wrong between hypervisors and the pools that their guests are in."""
    yield from _shares(site, catalogue)
    yield from _managers(site, catalogue)
    owners: dict[str, str] = {}
    for _, host in sorted(site.hosts.items()):
        guests = host.wishes.bedplate_guests
        if not guests:
            continue
        if host.wishes.bedplate_host.kind != HYPERVISOR:
            got, fix = f"on {host.name}", "move it to the variables of a hypervisor"
            yield refused("hypervisor-bare", host, (KEY,), got, "on hypervisors", fix)
            continue
        yield from _devices(host, guests)
        for name, guest in sorted(guests.items()):
            if name in owners:
                got = f"guest of {owners[name]} and of {host.name}"
                yield refused(RULE, host, (KEY, name), got, "one hypervisor", "remove one")
            owners[name] = host.name
            yield from _as_host(host, name, guest, site.hosts.get(name))


def _shares(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield each pool, once, whose guests would get a driver that finds no share of a card."""
    owners = [host for host in site.hosts.values() if host.wishes.bedplate_host.kind == HYPERVISOR]
    every = [host.wishes.bedplate_guests.items() for host in owners]
    sharing = {name for guests in every for name, guest in guests if guest.vgpu}
    members = [site.hosts[name] for name in sorted(sharing & set(site.hosts), reverse=True)]
    if not members:
        return
    fact = catalogue.installable["vgpu-from"]
    known = (*fact.value.values, *fact.value.stand_in, *fact.value.unproved)
    for member in {host.pool: host for host in members if host.pool}.values():
        source = member.wishes.bedplate_driver.source
        if source not in known:
            path, allowed = ("bedplate_driver", "source"), ", ".join(known)
            fix = (
                "fetch the driver of the hypervisor's vGPU release from NVIDIA's licensing portal,"
                f" write source: {known[0]}, pin its version (bedplate_pins.nvidia_driver), and"
                " give the file to role nvidia_driver (nvidia_driver_runfile_src and _sha256)"
            )
            got = source or "whatever the policy finds"
            yield refused("vgpu-driver", member, path, got, allowed, fix, [fact.source.url])


def _managers(site: Site, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield each pool, once, whose driver the vGPU manager below its guests does not serve."""
    fact, told = catalogue.installable["vgpu-from"], set()
    for _, host in sorted(site.hosts.items()):
        shared = host.wishes.bedplate_vgpu
        for name, guest in sorted(host.wishes.bedplate_guests.items()):
            member = site.hosts.get(name)
            if (
                shared is None
                or not guest.vgpu
                or member is None
                or (member.pool, host.name) in told
            ):
                continue
            told.add((member.pool, host.name))
            exact = member.wishes.bedplate_pins.get("nvidia_driver")
            branch = exact.partition(".")[0] if exact else member.wishes.bedplate_driver.branch
            most = shared.manager.partition(".")[0]
            path, allowed = ("bedplate_driver", "branch"), f"{most}, or the branch before it"
            fix = f"write branch: '{most}', or pin the driver of the manager's vGPU release"
            got = branch or "whatever the policy finds"
            if branch is None or int(branch) > int(most):
                got = f"{got}, below manager {shared.manager} of {host.name}"
                yield refused("vgpu-manager", member, path, got, allowed, fix, [fact.source.url])


def _devices(host: SiteHost, guests: Mapping[str, Guest]) -> Iterator[Problem]:
    given = host.wishes.bedplate_passthrough
    known = set(given.devices) if given else set()
    taken: dict[str, str] = {}
    for name, guest in sorted(guests.items()):
        for index, device in enumerate(guest.devices):
            path = (KEY, name, "devices", index)
            if device not in known:
                allowed = ", ".join(sorted(known)) or "devices of bedplate_passthrough"
                fix = "add it to bedplate_passthrough.devices, or remove it"
                yield refused(RULE, host, path, device, allowed, fix)
            elif device in taken:
                got = f"{device}, which {taken[device]} has"
                yield refused(RULE, host, path, got, "each device once", "remove one")
            taken[device] = name


def cards(guest: Guest) -> int:
    """Return how many GPUs a guest sees: functions of one card are one, shares are one each."""
    return len({device.rpartition(".")[0] for device in guest.devices}) or len(guest.vgpu)


def _as_host(host: SiteHost, name: str, guest: Guest, member: SiteHost | None) -> Iterator[Problem]:
    where = (KEY, name)
    if member is None or member.pool is None:
        got = "no host of the site" if member is None else "a host without a pool"
        fix = f"add {name} to a pool whose bedplate_host says kind: passthrough"
        yield refused(RULE, host, where, got, "a host of a pool", fix)
        return
    kind = member.wishes.bedplate_host.kind
    if kind != "passthrough":
        fix = f"write kind: passthrough for {member.pool}, or rename the guest"
        yield refused(RULE, host, where, f"host of kind {kind}", "kind passthrough", fix)
    declared = sum(gpu.count for gpu in member.wishes.bedplate_gpu)
    if declared != cards(guest):
        got, allowed = f"{cards(guest)} GPUs", f"{declared}, as {member.pool} declares"
        fix = f"correct the guest, or bedplate_gpu of {member.pool}"
        yield refused(RULE, host, where, got, allowed, fix)
