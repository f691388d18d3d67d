"""The files that RDMA and NCCL are told by, and what cannot be told."""

import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from .. import services
from ..files import File
from ..host import Host
from ..kernel.settings import HEADER
from ..message import problem
from . import devices as rdma
from . import nccl_topology

PROFILE = "/etc/profile.d/bedplate-nccl.sh"
ROCE = "/etc/bedplate/roce.conf"
MARKER = "/usr/libexec/bedplate/roce"
UNIT = "/etc/systemd/system/bedplate-roce.service"
PRIORITIES, DSCPS = range(8), range(64)
#: What must be known of the maker's repository; its key is trusted by the fingerprint.
REPOSITORY = ("url", "key", "fingerprint", "origin")
_VARIABLE = re.compile(r"^[A-Z][A-Z0-9_]*$")
#: Letters that a value needs no quotes for, in /etc/nccl.conf and in a shell alike.
_PLAIN = re.compile(r"^[A-Za-z0-9_=,.:/^+@%-]*$")
#: Letters that systemd leaves as they are in the name of a unit that stands for a path.
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.]")
#: Seconds that RDMA devices may take to come.
WAIT = 60

SCRIPT = f"""#!/bin/sh
# Managed by Bedplate (role rdma): changes here are lost.
# Marks RoCE traffic and makes its priority lossless, as {ROCE} says. May run as often as one likes.
set -u
. {ROCE}
status=0
for interface in $INTERFACES; do
    if command -v mlnx_qos > /dev/null; then
        mlnx_qos -i "$interface" --trust=dscp --pfc="$PFC_LIST" > /dev/null || status=1
        # Not at once: it refuses both. Without a map, DSCP 8n to 8n+7 run in priority n.
        mlnx_qos -i "$interface" --dscp2prio=set,"$DSCP","$PRIORITY" > /dev/null || status=1
    else
        # Replaced one by one: adding what is there already is an error.
        dcb app replace dev "$interface" dscp-prio "$DSCP:$PRIORITY" || status=1
        dcb pfc set dev "$interface" prio-pfc all:off "$PRIORITY:on" || status=1
    fi
    for switch in roce_np roce_rp; do
        ecn=/sys/class/net/$interface/ecn/$switch/enable/$PRIORITY
        [ ! -e "$ecn" ] || echo 1 > "$ecn" || status=1
    done
done
modprobe rdma_cm

# The named RDMA devices that are not there; where none is named, there is to be one.
absent() {{
    for name in $DEVICES; do
        [ -e /sys/class/infiniband/"$name" ] || printf '%s ' "$name"
    done
    set -- /sys/class/infiniband/*
    [ -n "$DEVICES" ] || [ -e "$1" ] || printf 'any '
}}
# A GPU's driver makes them a while after its interfaces.
left={WAIT}
while [ -n "$(absent)" ] && [ $left -gt 0 ]; do
    sleep 1
    left=$((left - 1))
done
missing=$(absent)
if [ -n "$missing" ]; then
    echo "no such RDMA device within {WAIT} s: ${{missing% }} (see 'rdma link')" >&2
    status=1
fi
for device in /sys/class/infiniband/*; do
    [ -e "$device" ] || continue
    name=$(basename "$device")
    case " $DEVICES " in *" $name "*|"  ") ;; *) continue ;; esac
    for port in "$device"/ports/*; do
        [ "$(cat "$port/link_layer")" = Ethernet ] || continue
        settings={rdma.CONNECTIONS}/$name/ports/$(basename "$port")
        mkdir -p {rdma.CONNECTIONS}/"$name" || status=1
        echo "RoCE v2" > "$settings/default_roce_mode" || status=1
        echo "$TOS" > "$settings/default_roce_tos" || status=1
    done
done
exit $status
"""

#: The interfaces are waited for by their own units: network-pre.target comes before any card does.
SERVICE = f"""# Managed by Bedplate (role rdma): changes here are lost.
[Unit]
Description=Mark RoCE traffic and make its priority lossless
ConditionPathExists={ROCE}
Wants=sys-kernel-config.mount
After=sys-kernel-config.mount network-pre.target openibd.service
{{interfaces}}Before=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={MARKER}

[Install]
WantedBy=multi-user.target
"""


class Wish(NamedTuple):
    """What is wished, by the names of the role's variables."""

    stack: str
    method: str
    repository: Mapping[str, Any]
    devices: Sequence[str]
    roce: Mapping[str, Any]
    nccl: Mapping[str, Any]
    topology: Sequence[Mapping[str, Any]]
    topology_file: str


def wrong(host: Host, wish: Wish, where: str) -> List[str]:
    """What cannot be, without changing anything."""
    found: List[str] = []

    def said(what: str, got: str, allowed: str, fix: str) -> None:
        found.append(problem(what, where, got, allowed, fix))

    if wish.stack == "inbox" and wish.method == "peermem":
        fix = "Write stack: doca, or drive the GPUs by the open module and use dma-buf."
        said("nvidia_peermem needs the stack doca", "inbox with peermem", "doca, or dma-buf", fix)
    lacking = [name for name in REPOSITORY if not wish.repository.get(name)]
    if lacking and (wish.repository or wish.stack == "doca"):
        fix = "Set rdma_repository to the maker's repository, or to its mirror."
        what = "the RDMA stack's repository is not given whole"
        said(what, "no " + ", ".join(lacking), "rdma_repository with all of these", fix)
    for name, numbers in (("priority", PRIORITIES), ("dscp", DSCPS)):
        value = wish.roce.get(name) if wish.roce else None
        if wish.roce and (not str(value).isdigit() or int(str(value)) not in numbers):
            allowed = f"{numbers[0]} to {numbers[-1]}"
            said(f"RoCE has no {name}", str(value), allowed, f"Correct rdma_roce.{name}.")
    if wish.roce and not wish.roce.get("interfaces"):
        fix = "Name them in rdma_roce.interfaces."
        said("RoCE has no interfaces", "none", "network interfaces", fix)
    for name, value in sorted(wish.nccl.items()):
        if not _VARIABLE.match(name) or not _PLAIN.match(str(value)):
            fix = "Correct rdma_nccl."
            allowed = "NAME in capitals, and a value without spaces or quotes"
            said("not a variable of NCCL's", f"{name}={value}", allowed, fix)
    return found + nccl_topology.wrong(host, wish.topology, where)


def nccl(wish: Wish) -> Dict[str, str]:
    """NCCL's variables as they are to be."""
    return rdma.nccl(wish.method, wish.roce, list(wish.devices), wish.nccl)


def _roce_text(wish: Wish) -> str:
    roce = wish.roce
    priority = int(roce["priority"])
    lines = {
        "INTERFACES": " ".join(roce["interfaces"]),
        "DEVICES": " ".join(wish.devices),
        "PRIORITY": str(priority),
        "DSCP": str(roce["dscp"]),
        "TOS": str(rdma.traffic_class(int(roce["dscp"]))),
        "PFC_LIST": ",".join("1" if number == priority else "0" for number in PRIORITIES),
    }
    return "".join(f'{name}="{value}"\n' for name, value in lines.items())


def _device_unit(interface: str) -> str:
    """systemd's unit of a network interface, named as systemd-escape does it.

    >>> _device_unit("br-rdma.100")
    'sys-subsystem-net-devices-br\\\\x2drdma.100.device'
    """
    letters = (chr(byte) for byte in interface.encode())
    kept = (one if _UNIT_NAME.match(one) else f"\\x{ord(one):02x}" for one in letters)
    return "sys-subsystem-net-devices-{}.device".format("".join(kept))


def _service(wish: Wish) -> str:
    units = [_device_unit(str(interface)) for interface in wish.roce["interfaces"]]
    return SERVICE.format(interfaces="".join(f"Wants={one}\nAfter={one}\n" for one in units))


def files(host: Host, wish: Wish) -> List[File]:
    """The files to have; those that are no longer wished are `gone`."""
    header = HEADER.format("rdma")
    variables = nccl(wish)
    plain = "".join(f"{name}={value}\n" for name, value in variables.items())
    exported = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
    found = [
        File(rdma.NCCL_CONF, header + plain, refuse_foreign=True),
        # /etc/nccl.conf is not seen inside containers: mpirun and batch systems pass these on.
        File(PROFILE, header + exported),
    ]
    if wish.roce:
        found += [
            File(ROCE, header + _roce_text(wish)),
            File(MARKER, SCRIPT, 0o755),
            File(UNIT, _service(wish)),
        ]
    if wish.topology:
        found.append(File(wish.topology_file, nccl_topology.render(host, wish.topology)))
    return found


def marked(host: Host) -> bool:
    """Whether RoCE traffic is marked as the files say, and not as they said before."""
    now = services.state(host, os.path.basename(UNIT))
    return services.running(now) and not services.older_than(host, now, [ROCE, MARKER, UNIT])


def disturbing(host: Host, wish: Wish) -> List[str]:
    """What would mark the traffic of running jobs otherwise than now: files, or the unit itself."""
    wished = {file.path: file.content for file in files(host, wish)}
    marking = [path for path in (ROCE, MARKER, UNIT) if path in wished]
    differ = [path for path in marking if host.read(path) != wished[path]]
    if differ:
        return ["RoCE marking: " + ", ".join(differ)]
    unit = os.path.basename(UNIT)
    return [f"RoCE marking: start of {unit}"] if marking and not marked(host) else []


def gone(host: Host, wish: Wish) -> List[str]:
    """Files of an earlier wish that is no longer there."""
    keep = {file.path for file in files(host, wish)}
    ours = (ROCE, wish.topology_file)
    return [path for path in ours if path not in keep and host.exists(path)]
