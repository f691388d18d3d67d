"""The guests of a hypervisor against libvirt's domains: only ours are ever changed."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..files import Change
from ..host import Host
from ..message import problem
from . import functions as passthrough
from . import libvirt_domain as domain
from . import vgpu

#: Where the XML that was defined last is kept: for people, and for a second look by virsh.
FOLDER = "/var/lib/bedplate/guests"
NODES = "/sys/devices/system/node"


class Settings(NamedTuple):
    """What all guests of a host have in common."""

    where: str
    connection: str
    kind: str
    page_size: str
    devices: Sequence[str]
    #: Whether shares of cards are made by the time that guests are defined.
    shares: bool = False


class Outcome(NamedTuple):
    """What was defined (or would be), what failed, and which guests run with older settings."""

    diff: List[Dict[str, str]]
    problems: List[str]
    restart: List[str]


def processors(text: str) -> List[int]:
    """The numbers in a list as sysfs writes it: ``0-3,8``."""
    found: List[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _cpuset(host: Host, nodes: Sequence[int]) -> str:
    lists = [(host.read(f"{NODES}/node{node}/cpulist") or "").strip() for node in nodes]
    return ",".join(filter(None, lists))


def nodes(
    present: Mapping[str, passthrough.Function],
    wish: Mapping[str, Any],
    shares: Sequence[vgpu.Share],
) -> Tuple[int, ...]:
    """The NUMA nodes that a guest is placed on: those of what it is given, as far as it is there.

    Virtual functions, which come with their card's driver, are on their card's.
    """
    wished = [str(address).lower() for address in wish.get("devices") or ()]
    made = [share.function if share.function in present else share.card for share in shares]
    return passthrough.nodes(present, [one for one in [*wished, *made] if one in present])


def guest(host: Host, name: str, wish: Mapping[str, Any], settings: Settings) -> domain.Guest:
    """A guest as it is to be: placed on the NUMA nodes of its devices."""
    present = passthrough.functions(host)
    devices = sorted(str(address).lower() for address in wish.get("devices") or ())
    shares = vgpu.of_guests(host).get(name, []) if wish.get("vgpu") else []
    placed = nodes(present, wish, shares)
    functions = [share.function for share in shares if not share.identity]
    return domain.Guest(
        name=name,
        devices=devices,
        cpus=int(wish["cpus"]),
        memory_gib=int(wish["memory_gib"]),
        disk=wish["disk"],
        network=wish["network"],
        cpuset=_cpuset(host, placed),
        nodes=placed,
        address_space=passthrough.address_space(
            present, [*devices, *(one for one in functions if one in present)]
        ),
        page_size=settings.page_size,
        kind=settings.kind,
        mac=wish.get("mac") or "",
        functions=functions,
        mediated=[share.identity for share in shares if share.identity],
    )


def wrong(
    host: Host, guests: Mapping[str, Mapping[str, Any]], settings: Settings, check: bool = False
) -> List[str]:
    """What of the guests cannot be, without asking libvirt. In check mode no share is made yet."""
    found, where = [], settings.where
    owner: Dict[str, str] = {}
    present, made = passthrough.functions(host), vgpu.of_guests(host)
    given = {str(a).lower() for a in settings.devices}
    for name, wish in sorted(guests.items()):
        at = f"{where}, guest {name}"
        wanted, shares = wish.get("vgpu") or [], made.get(name, [])
        if wanted and not check and [share.profile for share in shares] != list(wanted):
            got, allowed = ", ".join(share.profile for share in shares), ", ".join(wanted)
            fix = (
                "Write bedplate_vgpu for this hypervisor and run "
                "bedplate.gpu.site, or write the guest out"
                " for vSphere (entry point artefacts)."
            )
            what = "guest's shares of GPUs were not made"
            found.append(problem(what, at, got or "none", allowed, fix))
            continue
        devices = sorted(str(address).lower() for address in wish.get("devices") or ())
        for address in devices:
            if address not in given or address not in present:
                fix = "Add it to devices of bedplate_passthrough, or take it from the guest."
                allowed = ", ".join(sorted(given))
                found.append(problem("device is not given away", at, address, allowed, fix))
            elif address in owner:
                got = f"{address} of guest {owner[address]}"
                fix = "Take it from one of them."
                found.append(problem("device is given to two guests", at, got, "one guest", fix))
            owner[address] = name
        if not host.exists(wish["disk"]):
            fix = "Make it, for example from the system's cloud image, or correct disk."
            found.append(problem("guest has no disk", at, wish["disk"], "a file or device", fix))
        if set(devices) <= set(present):
            cpus = processors(_cpuset(host, nodes(present, wish, shares)))
            if cpus and int(wish["cpus"]) > len(cpus):
                fix = "Give it fewer, or devices of both nodes."
                got, allowed = str(wish["cpus"]), f"at most {len(cpus)} of its devices' NUMA nodes"
                found.append(problem("guest has too many processors", at, got, allowed, fix))
    return found


class Libvirt:
    """virsh on the host."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self.host, self.settings = host, settings

    def ask(self, *arguments: str) -> Tuple[str, Optional[str]]:
        """What virsh answers, and the reason where it does not."""
        answer = self.host.run(["virsh", "--quiet", "-c", self.settings.connection, *arguments])
        return answer.out, None if answer.code == 0 else answer.said

    def domains(self) -> Tuple[Dict[str, str], Optional[str]]:
        """Every domain's persistent XML by name."""
        listed, reason = self.ask("list", "--all", "--name")
        if reason is not None:
            return {}, reason
        found = {}
        for name in filter(None, (line.strip() for line in listed.splitlines())):
            text, reason = self.ask("dumpxml", "--inactive", name)
            if reason is not None:
                return {}, reason
            found[name] = text
        return found, None

    def runs(self, name: str) -> bool:
        """Whether a domain has a running machine."""
        return self.ask("domstate", name)[0].strip() not in ("shut off", "crashed", "")


def foreign(
    domains: Mapping[str, str], guests: Mapping[str, Mapping[str, Any]], settings: Settings
) -> List[str]:
    """Somebody else's domains in the way: with a guest's name, or with a device of ours."""
    found = []
    for name, text in sorted(domains.items()):
        at = f"{settings.where}, domain {name}"
        if domain.ours(text):
            continue
        if name in guests:
            got, allowed = "a domain that Bedplate did not define", "no domain of that name"
            fix = "Rename the guest, or undefine that domain."
            found.append(problem("domain is not managed by Bedplate", at, got, allowed, fix))
        taken = sorted(set(domain.host_devices(text)) & {a.lower() for a in settings.devices})
        if taken:
            fix = "Take it from that domain, or from bedplate_passthrough."
            got, allowed = ", ".join(taken), "devices that no other domain has"
            found.append(problem("domain has a device of ours", at, got, allowed, fix))
    return found


def former(
    host: Host,
    domains: Mapping[str, str],
    guests: Mapping[str, Mapping[str, Any]],
    settings: Settings,
) -> List[str]:
    """Domains of guests that the site no longer has, with a share that now is another's."""
    now = {share.identity or share.function: share for share in vgpu.recorded(host)}
    found = []
    for name, text in sorted(domains.items()):
        if name in guests or not domain.ours(text):
            continue
        for one in [*domain.host_devices(text), *domain.mediated_devices(text)]:
            if one in now:
                at, allowed = f"{settings.where}, domain {name}", f"guest {now[one].guest} alone"
                what, fix = "domain of a former guest has a share", f"Run 'virsh undefine {name}'."
                found.append(problem(what, at, one, allowed, fix))
    return found


def ensure(
    host: Host, guests: Mapping[str, Mapping[str, Any]], settings: Settings, check: bool
) -> Outcome:
    """Define every guest whose domain is absent or differs in what we decide."""
    problems = wrong(host, guests, settings, check and settings.shares)
    virsh = Libvirt(host, settings)
    domains, reason = virsh.domains()
    if reason is not None and not check:
        fix = "See 'systemctl status libvirtd' on the host."
        said = f"virsh -c {settings.connection}"
        problems.append(problem("libvirt does not answer", settings.where, reason, said, fix))
    problems += foreign(domains, guests, settings)
    problems += former(host, domains, guests, settings)
    if problems:
        return Outcome([], problems, [])
    diff: List[Dict[str, str]] = []
    restart: List[str] = []
    for name, wish in sorted(guests.items()):
        have = domains.get(name, "")
        wished = guest(host, name, wish, settings)
        if have and not wished.mac:
            # libvirt would make up another: leases, and the guest's settings, go by it.
            wished = wished._replace(mac=domain.mac_of(have))
        wanted = domain.xml(wished, domain.uuid_of(have) if have else "")
        aim = domain.essence(wanted)
        different = domain.differences(domain.essence(have), aim) if have else ["not defined"]
        if different:
            after = wanted if not have else "\n".join(different) + "\n"
            diff.append(Change(f"domain {name}", "", after).diff)
            if not check:
                problems += _define(virsh, name, wanted, aim)
        if have and not check and virsh.runs(name):
            live = virsh.ask("dumpxml", name)[0]
            if domain.differences(_lasting(live), _lasting(wanted)):
                restart.append(name)
    return Outcome(diff, problems, restart)


def _lasting(text: str) -> Dict[str, Any]:
    """The essence without what a running machine shows in another way."""
    # A pinned guest's machine type is shown with its version, and its processors with their state.
    return {k: v for k, v in domain.essence(text).items() if k not in ("cpu", "pinned")}


def _define(virsh: Libvirt, name: str, wanted: str, aim: Mapping[str, Any]) -> List[str]:
    path = f"{FOLDER}/{name}.xml"
    virsh.host.write(path, wanted, 0o600)
    where = f"{virsh.settings.where}, guest {name}"
    _, reason = virsh.ask("define", "--validate", virsh.host.path(path))
    if reason is not None:
        fix = f"See {path} on the host, and 'virsh define --validate' of it."
        return [problem("libvirt refuses the guest", where, reason, "a valid domain", fix)]
    text, reason = virsh.ask("dumpxml", "--inactive", name)
    left = [reason] if reason else domain.differences(domain.essence(text), aim)
    if not left:
        return []
    fix = "See 'virsh dumpxml --inactive' of it."
    return [problem("libvirt made another guest of it", where, "; ".join(left), "the setting", fix)]
