"""Evidence that the GPUs compute: memory copied to each and back through CUDA."""

import inspect
import json
import sys
from typing import Any, Dict

from .. import cuda_call, nvidia
from ..host import Host
from . import checks as evidence
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

#: Someone has the GPU for himself: that is no fault, and nothing was looked at.
_TAKEN = ("CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_OUT_OF_MEMORY")
WHAT = "every GPU returns the bytes that were copied to it"


def _reason_to_skip(host: Host) -> str:
    if evidence.simulated(host):
        return "simulated silicon computes nothing"
    silent = nvidia.query(host)[1]
    if silent is not None:
        return f"the driver does not answer, which driver.library says: {silent}"
    answer = host.run(["nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"])
    if "Enabled" in answer.out:
        return "GPUs are partitioned (MIG), and CUDA sees one instance at a time"
    return ""


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Copy on every GPU, in a process of its own."""
    del wish  # what is there is tried
    reason = _reason_to_skip(host)
    if reason:
        to.checks.append(skipped("compute.copy", WHAT, reason))
        return
    gpus = nvidia.query(host)[0]
    answer = host.run([sys.executable, "-c", inspect.getsource(cuda_call)], timeout=120)
    try:
        found: Dict[str, Any] = json.loads(answer.out)
    except ValueError:
        found = {"error": answer.said}
    error = found.pop("error", "")
    if error and any(word in error for word in _TAKEN):
        to.checks.append(skipped("compute.copy", WHAT, f"a process has a GPU for itself ({error})"))
        return
    if error or not gpus:
        reason = error or "the host sees no GPU"
        to.checks.append(failed("compute.copy", WHAT, reason, AGAIN, "the same bytes"))
        return
    to.facts["copy_gb_per_s"] = {
        name: {way: one[way] for way in ("to_gpu", "from_gpu")} for name, one in found.items()
    }
    good = sorted(name for name, one in found.items() if one["same"])
    fix = "See the kernel's log for Xid messages, and have the GPU looked at."
    to.checks.append(check("compute.copy", WHAT, sorted(g.uuid for g in gpus), good, fix))
