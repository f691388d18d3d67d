"""What containers may see, judged against runtimes that give too much, too little, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import isolation as isolation_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.host import Host, Result
from bedplate.portable.runtime import cases as runtime_cases
from bedplate.portable.runtime.cases import CAPABILITIES, Gpu
from bedplate.portable.runtime.containers import gpus_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bedplate.portable.runtime.cases import Case

GPUS = [Gpu(0, "GPU-a0", 3), Gpu(1, "GPU-a1", 0), Gpu(2, "GPU-a2", 1)]
LIBRARIES = ["libcuda.so", "libnvidia-ml.so"]
CONTAINERS = {
    "runtime": "containerd",
    "default": "runc",
    "image": "example/debian:12",
    "command": ["sleep", "600"],
    "cases": "all",
}


class Runtime:
    """containerd with NVIDIA's toolkit, as crictl shows it; ``fault`` says what it does wrong."""

    def __init__(self, root: Path, gpus: Sequence[Gpu], fault: str = "") -> None:
        self.root, self.gpus, self.fault = root, gpus, fault
        self.accepts = True
        self.handlers: dict[str, str] = {}
        self.given: dict[str, tuple[list[Gpu], bool]] = {}
        self.host = Host(str(root), self.run)
        for gpu in gpus:
            self.file(
                f"proc/driver/nvidia/gpus/0000:0{gpu.number}:00.0/information",
                f"Model: \t\t Tesla T4\nGPU UUID: \t {gpu.uuid}\nDevice Minor: \t {gpu.minor}\n",
            )

    def file(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def listing(self, gpus: Sequence[Gpu]) -> Result:
        lines = [f"GPU {n}: Tesla T4 (UUID: {gpu.uuid})\n" for n, gpu in enumerate(gpus)]
        return Result(0, "".join(lines), "")

    def run(self, argv: Sequence[str], *_: object) -> Result:
        if argv[0] == "nvidia-smi":
            return self.listing(self.gpus)
        if argv[0] == "ldconfig":
            lines = [f"\t{name}.1 (libc6) => /usr/lib/{name}.535.1\n" for name in LIBRARIES]
            return Result(0, "".join(lines), "")
        # crictl --runtime-endpoint E --timeout T COMMAND …
        answer: Result = getattr(self, argv[5] if len(argv) > 5 else "", self.nothing)(list(argv))
        return answer

    def nothing(self, _argv: list[str]) -> Result:
        return Result(0, "", "")

    def runp(self, argv: list[str]) -> Result:
        name = f"pod-{len(self.handlers)}"
        self.handlers[name] = argv[argv.index("--runtime") + 1] if "--runtime" in argv else ""
        return Result(0, name + "\n", "")

    def create(self, argv: list[str]) -> Result:
        pod, file = argv[-3], argv[-2]
        wish = json.loads(Path(file).read_text())
        asked = [device["name"].partition("=")[2] for device in wish["CDI_devices"]]
        driver = bool(asked)
        values = {one["key"]: one["value"] for one in wish["envs"]}
        value = values.get("NVIDIA_VISIBLE_DEVICES", "void")
        if self.handlers[pod] == "nvidia" and self.accepts and value not in ("void", ""):
            driver = True
            asked = [] if value == "none" else value.split(",")
        known = {name: [gpu] for gpu in self.gpus for name in (str(gpu.number), gpu.uuid)}
        known["all"] = list(self.gpus)
        if not set(asked) <= set(known):
            return Result(1, "", "unresolvable CDI devices")
        given = [gpu for name in asked for gpu in known[name]]
        if self.fault == "one more" and given:
            given = [*given, *(gpu for gpu in self.gpus if gpu not in given)][: len(given) + 1]
        elif self.fault == "nothing":
            given, driver = [], False
        elif self.fault == "all to all":
            given, driver = list(self.gpus), True
        name = f"container-{len(self.given) + 1}"
        self.given[name] = (given, driver)
        return Result(0, name, "")

    def inspect(self, argv: list[str]) -> Result:
        name = argv[-1]
        pid = int(name.rpartition("-")[2])
        gpus, driver = self.given[name]
        (self.root / f"proc/{pid}/root/dev").mkdir(parents=True)
        for gpu in gpus:
            self.file(f"proc/{pid}/root/dev/nvidia{gpu.minor}", "")
        mounts = [f"1 2 0:3 / /usr/lib/{name}.535.261.03 ro - ext4 x" for name in LIBRARIES]
        self.file(f"proc/{pid}/mountinfo", "\n".join(mounts if driver else ["1 2 0:3 / /proc rw"]))
        return Result(0, json.dumps({"info": {"pid": pid}}), "")

    def exec(self, argv: list[str]) -> Result:
        gpus, driver = self.given[argv[-3]]
        if not driver:
            return Result(1, "", 'exec: "nvidia-smi": executable file not found in $PATH')
        if not gpus:
            return Result(6, "No devices were found\n", "")
        return self.listing(gpus)

    def collected(self, **containers: Any) -> Collected:
        to = Collected([], {}, {})
        isolation_evidence.collect(self.host, Wishes(containers=CONTAINERS | containers), to)
        return to


def by_result(to: Collected, result: str) -> list[str]:
    return [check["id"] for check in to.checks if check["result"] == result]


def test_a_toolkit_that_keeps_to_the_table_passes_every_case(tmp_path: Path) -> None:
    to = Runtime(tmp_path, GPUS).collected()
    assert evidence.failures(to.checks, "gpu-a") == []
    assert by_result(to, evidence.SKIPPED) == [
        "container.mig",
        "container.NVIDIA_DRIVER_CAPABILITIES: video",
        "container.NVIDIA_DRIVER_CAPABILITIES: graphics",
    ]
    assert len(by_result(to, evidence.PASS)) == 20
    assert to.facts == {
        "driver_capabilities": {"compute": "not narrowed", "utility": "not narrowed"}
    }


def test_a_runtime_that_gives_one_more_gpu_fails_wherever_one_could(tmp_path: Path) -> None:
    to = Runtime(tmp_path, GPUS, "one more").collected(cases="core")
    assert by_result(to, evidence.FAIL) == [
        "container.CDI: index",
        "container.CDI: UUID",
        "container.NVIDIA_VISIBLE_DEVICES: index",
    ]
    assert evidence.failures(to.checks, "gpu-a")[0] == (
        "a container sees what it may (CDI: index) — gpu-a [container.CDI: index] — got "
        "GPUs=GPU-a0 GPU-a2, device nodes=nvidia1 nvidia3 / allowed GPUs=GPU-a2, "
        "device nodes=nvidia1 — Run the roles container_runtime and nvidia_container_toolkit "
        "again, and look at the journal."
    )


def test_a_runtime_that_knows_no_cdi_gives_nothing_and_fails(tmp_path: Path) -> None:
    to = Runtime(tmp_path, GPUS, "nothing").collected(cases="core")
    assert "container.CDI: index" in by_result(to, evidence.FAIL)
    assert "container.nothing is given" in by_result(to, evidence.PASS)


def test_a_container_that_was_given_nothing_must_see_nothing(tmp_path: Path) -> None:
    to = Runtime(tmp_path, GPUS, "all to all").collected(cases="core")
    assert "container.nothing is given" in by_result(to, evidence.FAIL)


def test_without_image_or_gpus_it_says_why(tmp_path: Path) -> None:
    assert by_result(Runtime(tmp_path, GPUS).collected(image=""), evidence.SKIPPED)
    joined = Runtime(tmp_path / "node", GPUS)
    joined.file("etc/kubernetes/kubelet.conf", "")
    assert by_result(joined.collected(), evidence.SKIPPED) == ["container.isolation"]
    to = Runtime(tmp_path / "bare", []).collected()
    assert to.checks[0]["reason"] == "the host itself sees no GPU"
    assert to.checks[0]["result"] == evidence.FAIL


def test_a_variable_that_is_not_accepted_gives_nothing(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, GPUS)
    runtime.accepts = False
    to = runtime.collected(accepts_variable=False)
    assert evidence.failures(to.checks, "gpu-a") == []
    passed = by_result(to, evidence.PASS)
    assert "container.NVIDIA_VISIBLE_DEVICES: all" in passed
    assert "container.CDI: UUID" in passed
    assert not [name for name in passed if "CAPABILITIES" in name]


def test_a_toolkit_that_accepts_it_all_the_same_is_found(tmp_path: Path) -> None:
    to = Runtime(tmp_path, GPUS).collected(accepts_variable=False, cases="core")
    assert by_result(to, evidence.FAIL) == [
        "container.NVIDIA_VISIBLE_DEVICES: all",
        "container.NVIDIA_VISIBLE_DEVICES: index",
    ]
    assert evidence.failures(to.checks, "gpu-a")[0].startswith(
        "a container sees what it may (NVIDIA_VISIBLE_DEVICES: all) — gpu-a "
        "[container.NVIDIA_VISIBLE_DEVICES: all] — got GPUs=GPU-a0 GPU-a1 GPU-a2, "
    )
    # Nor by the handler that containers have who name none.
    assert runtime_cases.plain(GPUS, "nvidia", accepted=False)[1].nodes == ()


def names(cases: Sequence[Case]) -> list[str]:
    return [case.name for case in cases]


def test_a_default_handler_of_nvidia_makes_the_variable_a_request() -> None:
    given, asked = runtime_cases.plain(GPUS, "nvidia")
    assert given.nodes == ()
    assert asked.nodes == ("nvidia0", "nvidia1", "nvidia3")
    assert runtime_cases.plain(GPUS, "runc")[1].nodes == ()


def test_mig_devices_are_asked_for_by_uuid_and_whole_gpus_by_index() -> None:
    cut = [Gpu(0, "GPU-a0", 0), Gpu(1, "GPU-a1", 1, ("MIG-1", "MIG-2"))]
    cases = {case.name: case for case in runtime_cases.cdi(cut)}
    assert cases["CDI: MIG UUID"].devices == ("nvidia.com/gpu=MIG-1",)
    assert cases["CDI: MIG UUID"].uuids == ("GPU-a1", "MIG-1")
    assert cases["CDI: MIG UUID"].nodes == ("nvidia1",)
    assert cases["CDI: index"].devices == ("nvidia.com/gpu=0",)
    assert cases["CDI: all"].uuids == ("GPU-a0", "GPU-a1", "MIG-1", "MIG-2")
    only = runtime_cases.visible_devices(cut[1:])
    assert "NVIDIA_VISIBLE_DEVICES: index" not in names(only)
    assert "NVIDIA_VISIBLE_DEVICES: MIG UUID" in names(only)


def test_the_hosts_gpus_are_read_with_minors_and_mig_devices(tmp_path: Path) -> None:
    Runtime(tmp_path, GPUS)
    text = (
        "GPU 0: NVIDIA A100 (UUID: GPU-a0)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-5e)\n"
        "GPU 1: NVIDIA A100 (UUID: GPU-a1)\n"
    )
    host = Host(str(tmp_path), lambda *_: Result(0, text, ""))
    assert gpus_of(host) == [Gpu(0, "GPU-a0", 3, ("MIG-5e",)), Gpu(1, "GPU-a1", 0)]


@pytest.mark.parametrize("capability", sorted(CAPABILITIES))
def test_narrowing_is_told_from_what_was_spared(capability: str) -> None:
    case = next(
        case
        for case in runtime_cases.driver_capabilities(GPUS)
        if case.capabilities == (capability,)
    )
    everything = [name for several in CAPABILITIES.values() for name in several]
    seen = isolation_evidence.Seen("", None, [], everything)
    assert not isolation_evidence.narrowed(case, seen, everything)
    seen = seen._replace(libraries=list(CAPABILITIES[capability]))
    assert isolation_evidence.narrowed(case, seen, everything)
