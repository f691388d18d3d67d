"""Evidence from inside containers: which GPUs one sees, and what feature discovery says."""

import os
import re
from typing import List

from .. import nvidia
from ..host import Host, Result
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

NAMESPACE = "k8s.io"
_GPU_LINE = re.compile(r"^GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>[^)]+)\)$")


def _in_container(host: Host, image: str, name: str, argv: List[str], to: Collected) -> Result:
    """Run ``argv`` in a container with all GPUs.

    One that does not start is tried once more: starting a container takes a dozen steps in three
    programs, and on a busy host one of them may not answer in time. The evidence keeps what the
    first try said.
    """
    answer = _try_container(host, image, name, argv)
    if answer.code != 0:
        to.facts.setdefault("container_first_try", {})[name] = _reason(answer)
        answer = _try_container(host, image, name + "-again", argv)
    return answer


def _reason(answer: Result) -> str:
    """What ctr said last, less its own warnings, which may come after the error."""
    lines = [line for line in answer.err.splitlines() if "level=warning" not in line]
    return answer._replace(err="\n".join(lines)).said


def _try_container(host: Host, image: str, name: str, argv: List[str]) -> Result:
    container = f"bedplate-verify-{name}-{os.getpid()}"
    ctr = [
        "ctr",
        "--namespace",
        NAMESPACE,
        "run",
        "--rm",
        "--device",
        "nvidia.com/gpu=all",
        image,
        container,
    ]
    return host.run(ctr + argv, timeout=120)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Run containers that are given all GPUs."""
    what = "a container that is given all GPUs sees exactly the host's"
    if not wish.plugin_image:
        to.checks.append(skipped("container.gpus", what, "the lock names no image to try it with"))
        return
    answer = _in_container(host, wish.plugin_image, "smi", ["nvidia-smi", "-L"], to)
    if answer.code != 0:
        to.checks.append(failed("container.gpus", what, _reason(answer), AGAIN, "the host's GPUs"))
    else:
        lines = (_GPU_LINE.match(line.strip()) for line in answer.out.splitlines())
        seen = sorted(line.group("uuid") for line in lines if line)
        mine = sorted(g.uuid for g in nvidia.query(host)[0])
        one = check("container.gpus", what, mine, seen, AGAIN)
        if not mine:
            reason = "the host itself sees no GPU"
            one = failed("container.gpus", what, reason, AGAIN, "the host's GPUs")
        to.checks.append(one)
    what = "GPU feature discovery describes the GPUs"
    argv = [
        "gpu-feature-discovery",
        "--oneshot",
        "--no-timestamp",
        "--use-node-feature-api=false",
        "--output-file=",
    ]
    answer = _in_container(host, wish.plugin_image, "gfd", argv, to)
    labels = dict(
        line.strip().split("=", 1)
        for line in answer.out.splitlines()
        if line.startswith("nvidia.com/") and "=" in line
    )
    if answer.code != 0 or not labels:
        to.checks.append(failed("container.labels", what, _reason(answer), AGAIN, "labels"))
        return
    to.labels.update(labels)
    counted = labels.get("nvidia.com/gpu.count")
    wished = str(wish.device_count)
    to.checks.append(check("container.labels", what, wished, counted, AGAIN))
