"""Evidence from inside containers: which GPUs one sees, and what feature discovery says.

By containerd's own tool, beside kubelet, which leaves alone what it knows nothing of. Docker has
its own way to ask for GPUs, and is asked by it. CRI-O has no such tool: there, area isolation
looks, as long as the host has not joined. Afterwards the device plugin's own container, which has
feature discovery and reaches all GPUs, says what that finds.
"""

import os
import re
from typing import Iterable, List, Sequence, Tuple

from .. import nvidia
from ..host import Host, Result
from ..runtime import cases as runtime_cases
from ..runtime.cases import Case, Gpu
from ..runtime.containers import ContainerError, Cri, gpus_of, listed
from ..runtime.state import SOCKETS
from . import isolation
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

NAMESPACE = "k8s.io"
DESCRIBED = "GPU feature discovery describes the GPUs"
ALL = (f"{runtime_cases.CDI_KIND}=all",)
#: The device plugin's container has the host's files there. Feature discovery finds the driver's
#: library by the host's own loader, with the C library that the driver goes with.
PLUGIN = "nvidia-device-plugin"
BY_HOSTS_LOADER = (
    "/driver-root/lib64/ld-linux-x86-64.so.2",
    "--library-path",
    "/driver-root/usr/lib/x86_64-linux-gnu:/driver-root/usr/lib64",
    "/usr/bin/gpu-feature-discovery",
)
_GPU_LINE = re.compile(r"^GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>[^)]+)\)$")


def _in_container(
    host: Host, image: str, name: str, argv: List[str], to: Collected, devices: Sequence[str] = ALL
) -> Result:
    """Run ``argv`` in a container with devices by their CDI names.

    One that does not start is tried once more: starting a container takes a dozen steps in three
    programs, and on a busy host one of them may not answer in time. So is one that ends well and
    says nothing: ctr may end before it has passed on what a short program wrote. The evidence keeps
    what the first try said.
    """
    answer = _try_container(host, image, name, argv, devices)
    # Without a device there is no nvidia-smi in it: that is an answer too.
    refused = answer.code != 0 and (devices or listed(answer) is None)
    if refused or (answer.code == 0 and not answer.out.strip()):
        to.facts.setdefault("container_first_try", {})[name] = _reason(answer)
        answer = _try_container(host, image, name + "-again", argv, devices)
    return answer


def _reason(answer: Result) -> str:
    """What ctr said last, less its own warnings, which may come after the error."""
    lines = [line for line in answer.err.splitlines() if "level=warning" not in line]
    return answer._replace(err="\n".join(lines)).said


def _try_container(
    host: Host, image: str, name: str, argv: List[str], devices: Sequence[str]
) -> Result:
    container = f"bedplate-verify-{name}-{os.getpid()}"
    given = [word for device in devices for word in ("--device", device)]
    ctr = ["ctr", "--namespace", NAMESPACE, "run", "--rm", *given, image, container]
    return host.run(ctr + argv, timeout=120)


def _narrow(gpus: Sequence[Gpu]) -> Iterable[Tuple[str, Case]]:
    """Ways to ask for less than all, which is where a container could get more than it may."""
    yield "nothing", Case("nothing is given")
    by_uuid = ("CDI: UUID", "CDI: MIG UUID")
    cases = runtime_cases.cdi(gpus) if gpus else []
    for case in [case for case in cases if case.name in by_uuid][-1:]:
        yield "one", case


def _collect_narrow(host: Host, image: str, to: Collected) -> None:
    for name, case in _narrow(gpus_of(host)):
        what = f"a container sees what it was given by CDI, and nothing else ({case.name})"
        answer = _in_container(host, image, name, ["nvidia-smi", "-L"], to, case.devices)
        seen = listed(answer)
        if seen is None:
            wanted = " ".join(case.uuids) or "none"
            to.checks.append(
                failed(f"container.{name}", what, _reason(answer), AGAIN, f"GPUs: {wanted}")
            )
        else:
            to.checks.append(
                check(f"container.{name}", what, sorted(case.uuids), sorted(seen), AGAIN)
            )


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Run containers that are given all GPUs, one, and none."""
    what = "a container that is given all GPUs sees exactly the host's"
    runtime = wish.containers.get("runtime") or "containerd"
    if runtime == "docker":
        isolation.collect(host, wish, to)
        return
    if runtime != "containerd":
        reason = f"{runtime} has no tool that starts containers outside Kubernetes"
        to.checks.append(skipped("container.gpus", what, reason))
        if wish.plugin_image:
            found = _discover_by_cri(host, wish, SOCKETS[runtime])
            _collect_labels(found, wish, to)
        isolation.collect(host, wish, to)
        return
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
        _collect_narrow(host, wish.plugin_image, to)
    argv = ["gpu-feature-discovery", "--oneshot", *_options(wish)]
    answer = _in_container(host, wish.plugin_image, "gfd", argv, to)
    _collect_labels(answer, wish, to)


def _options(wish: Wishes) -> List[str]:
    """Have feature discovery say what it finds, to whoever started it."""
    return [
        "--no-timestamp",
        "--use-node-feature-api=false",
        f"--mig-strategy={wish.strategy}",
        "--output-file=",
    ]


def _discover_by_cri(host: Host, wish: Wishes, endpoint: str) -> Result:
    """Ask feature discovery where containers are started by Kubernetes' interface alone."""
    if host.joined:
        crictl = ["crictl", "--runtime-endpoint", endpoint]
        argv = [*crictl, "ps", "--quiet", "--state", "Running", "--name", f"^{PLUGIN}$"]
        plugins = host.run(argv)
        if plugins.code != 0 or not plugins.out.strip():
            nothing = f"no container {PLUGIN} runs on this node"
            return plugins._replace(code=1, err=plugins.err or nothing)
        name = plugins.out.split()[0]
        return host.run(
            [*crictl, "exec", "--sync", name, *BY_HOSTS_LOADER, "--oneshot", *_options(wish)], 120
        )
    discover = ["gpu-feature-discovery", *_options(wish)]
    # Not told to end, it stays, so that there is a container to ask in.
    trial = Cri(host, wish.plugin_image, endpoint, discover)
    try:
        trial.clear()
        trial.prepare()
        return trial.ask(Case("all", devices=ALL), [*discover, "--oneshot"])
    except ContainerError as error:
        return Result(1, "", str(error))
    finally:
        trial.clear()


def _collect_labels(answer: Result, wish: Wishes, to: Collected) -> None:
    """Keep what feature discovery has said of the host's GPUs."""
    what = DESCRIBED
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
    # By profile it counts MIG devices under other labels.
    wished = str(wish.device_count if wish.strategy == "single" else wish.gpu_count)
    to.checks.append(check("container.labels", what, wished, counted, AGAIN))
