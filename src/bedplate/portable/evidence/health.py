"""Evidence of the GPUs' health: size of memory, ECC, remapped rows, NVLink."""

import csv
import io
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import nvidia, pci
from ..discovery import links as discovery_links
from ..host import Host
from ..passthrough import vgpu
from .area import Collected, Wishes
from .checks import check, failed, skipped

_FIELDS = (
    "index",
    "uuid",
    "ecc.mode.current",
    "ecc.mode.pending",
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.pending",
)
_ROWS = ("gpu_uuid", "remapped_rows.pending", "remapped_rows.failure")
#: GDDR keeps its ECC in the memory itself (1/16), and the driver reserves some for itself.
_LEAST, _MOST = 0.90, 1.03
_ABSENT = ("[N/A]", "N/A", "[Not Supported]", "")
SEE = "See nvidia-smi -q on the host, and the kernel's log for Xid messages."
RESET = "Reset the GPU or reboot the host; where that does not help, have the GPU replaced."


def _wish_of(host: Host, bus: str, wish: Wishes) -> Optional[Mapping[str, Any]]:
    """The declared GPU that the card at a bus address is; nvidia-smi writes longer domains."""
    for device in pci.gpus(pci.scan(host)):
        if bus.endswith(device.address):
            return next(
                (w for w in wish.gpus if device.identifier in [i.lower() for i in w["pci"]]), None
            )
    return None


def _boards(host: Host, gpus: List[nvidia.Gpu], wish: Wishes) -> Sequence[Optional[float]]:
    """The size in GiB that the model of each GPU has; None where it is not known."""
    models = [str((_wish_of(host, gpu.bus, wish) or {}).get("model")) for gpu in gpus]
    return [wish.gpu_memory_gib.get(model) for model in models]


def _memory(host: Host, gpus: List[nvidia.Gpu], wish: Wishes, to: Collected) -> None:
    what = "every GPU has its model's memory"
    shares = [vgpu.memory_gib(str(profile)) for profile in wish.licence.get("vgpu") or ()]
    sizes, reason = _boards(host, gpus, wish), "the memory of these models is not known"
    if shares:
        # Which share is which nobody says: the smallest is that of the smallest profile.
        gpus = sorted(gpus, key=lambda gpu: gpu.memory)
        told = sorted(size for size in shares if size is not None)
        sizes = told if len(told) == len(shares) else [None] * len(gpus)
        what, reason = "every share of a GPU has its profile's memory", "a share of a GPU"
    pairs = [(gpu, float(size)) for gpu, size in zip(gpus, sizes) if size is not None]
    if not pairs:
        to.checks.append(skipped("health.memory", what, reason))
        return
    wrong = {
        str(gpu.number): f"{gpu.memory} MiB instead of {size:g} GiB"
        for gpu, size in pairs
        if not _LEAST <= gpu.memory / (size * 1024) <= _MOST
    }
    to.checks.append(check("health.memory", what, {}, wrong, SEE))


def _rows(
    host: Host, what: str, fields: Sequence[str], warned: Optional[List[str]] = None
) -> Tuple[List[Dict[str, str]], str]:
    """Ask ``nvidia-smi --query-<what>``, a row for each GPU; the reason where it does not say.

    Its warnings are added to ``warned``.
    """
    query = "--query-{}={}".format(what, ",".join(fields))
    answer = host.run(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    if warned is not None:
        warned.extend(answer.warned)
    if answer.code != 0:
        return [], answer.said
    rows = csv.reader(io.StringIO(answer.out), skipinitialspace=True)
    found = [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]
    return found, "" if found else "nvidia-smi printed no GPU"


def _inforom(gpus: List[nvidia.Gpu], warned: Sequence[str], to: Collected) -> None:
    """Name the GPUs of whose infoROM nvidia-smi warns; where it warns of none, nothing is said."""
    wrong = {}
    for line in warned:
        bus = line.rpartition(" ")[2].lower()
        known = (str(gpu.number) for gpu in gpus if pci_end(gpu.bus) == pci_end(bus))
        wrong[next(known, bus)] = "its infoROM is damaged"
    if wrong:
        what = "what the GPUs keep about themselves can be read"
        fix = "Have the GPU checked: its ECC counts and limits may be wrong, though it computes."
        to.checks.append(check("health.inforom", what, {}, wrong, fix))


def pci_end(bus: str) -> str:
    """A bus address without its domain, which nvidia-smi writes with four or eight digits."""
    return bus.partition(":")[2]


def _ecc(rows: List[Dict[str, str]], to: Collected) -> None:
    what = "no uncorrected memory errors, and ECC as it stays"
    having = [row for row in rows if row["ecc.mode.current"] not in _ABSENT]
    to.facts["ecc"] = {row["index"]: row["ecc.mode.current"] for row in having}
    if not having:
        to.checks.append(skipped("health.ecc", what, "these GPUs have no ECC"))
        return
    wrong = {}
    for row in having:
        errors = row["ecc.errors.uncorrected.volatile.total"]
        if row["ecc.mode.pending"] != row["ecc.mode.current"]:
            wrong[row["index"]] = "ECC becomes {} at the next reset".format(row["ecc.mode.pending"])
        elif errors not in (*_ABSENT, "0"):
            wrong[row["index"]] = f"{errors} uncorrected errors since the driver was loaded"
    to.checks.append(check("health.ecc", what, {}, wrong, RESET))


def _remapped(host: Host, gpus: List[Dict[str, str]], to: Collected) -> None:
    what = "no memory waits to be retired or remapped, and none failed to be"
    found, unread = _rows(host, "remapped-rows", _ROWS)
    if unread:
        to.checks.append(failed("health.remapped", what, unread, SEE, "an answer"))
        return
    remapped = {row["gpu_uuid"]: row for row in found}
    rows = [{**gpu, **remapped.get(gpu["uuid"], {})} for gpu in gpus]
    told = {
        "retired_pages.pending": "pages wait to be retired",
        "remapped_rows.pending": "rows wait to be remapped",
        "remapped_rows.failure": "rows could not be remapped",
    }
    if all(row.get(field, "") in _ABSENT for row in rows for field in told):
        reason = "these GPUs neither retire pages nor remap rows"
        to.checks.append(skipped("health.remapped", what, reason))
        return
    wrong = {}
    for row in rows:
        good = (*_ABSENT, "No", "0")
        said = [text for field, text in told.items() if row.get(field, "") not in good]
        if said:
            wrong[row["index"]] = ", ".join(said)
    to.checks.append(check("health.remapped", what, {}, wrong, RESET))


def _joined(wish: Wishes) -> bool:
    """Whether a fabric joins the boards. An A100's links are trained off while MIG divides it.

    (NVIDIA's Fabric Manager user guide, on MIG mode.)
    """
    return bool(wish.fabric) and not wish.divides


def _nvlink(host: Host, gpus: List[nvidia.Gpu], wish: Wishes, to: Collected) -> None:
    what = "as many NVLinks up on every GPU that has any"
    fix = "See 'nvidia-smi nvlink --status' on the host, and the fabric manager's log."
    answer = host.run(["nvidia-smi", "nvlink", "--status"])
    # Cards without NVLink make it fail, or print no link: both say that there is none.
    linked = discovery_links.linked(discovery_links.parse_status(answer.out))
    to.facts["nvlink"] = {str(one["gpu"]): one["active"] for one in linked}
    if _joined(wish):
        # On such a board none is without links: one that is not told of has lost them all.
        silent = {"active": 0, "inactive": None}
        told = {str(one["gpu"]): one for one in linked}
        links = {str(gpu.number): told.get(str(gpu.number), silent) for gpu in gpus}
        reason = "" if answer.code == 0 else answer.said
    elif not linked:
        to.checks.append(skipped("health.nvlink", what, "these GPUs have no NVLink"))
        return
    elif not any(one["active"] for one in linked):
        # A PCIe card has connectors whether or not a bridge is plugged onto them.
        reason = "no link is up on any GPU: GPUs without bridges, or a fabric that is down"
        to.checks.append(skipped("health.nvlink", what, reason))
        return
    else:
        # One beside a bridged pair is such a card. Where boards are joined without a switch, the
        # neighbours of one that is down miss links too.
        missed = any(one["active"] and one["inactive"] for one in linked)
        links = {str(one["gpu"]): one for one in linked if one["active"] or missed}
        reason = ""
    most = max((one["active"] for one in links.values()), default=0)
    few = {gpu: one["active"] for gpu, one in links.items() if one["active"] < (most or 1)}
    wished = {gpu: most or links[gpu]["inactive"] or "at least 1" for gpu in few}
    to.checks.append(check("health.nvlink", what, wished, few, fix, reason))


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Ask the driver how the GPUs are."""
    what = "the driver says how its GPUs are"
    gpus, silent = nvidia.query(host)
    if silent is not None:
        reason = f"the driver does not answer, which driver.library says: {silent}"
        to.checks.append(skipped("health.asked", what, reason))
        return
    warned: List[str] = []
    rows, unread = _rows(host, "gpu", _FIELDS, warned)
    _inforom(gpus, warned, to)
    if unread:
        to.checks.append(failed("health.asked", what, unread, SEE, "an answer"))
        return
    _memory(host, gpus, wish, to)
    _ecc(rows, to)
    _remapped(host, rows, to)
    _nvlink(host, gpus, wish, to)
