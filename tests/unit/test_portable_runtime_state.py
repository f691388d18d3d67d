"""What runtimes say of themselves, and whether a CDI specification is true, on canned answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.portable import device_links, owned
from bedplate.portable.evidence import runtime as runtime_evidence
from bedplate.portable.evidence import toolkit as toolkit_evidence
from bedplate.portable.evidence.area import Collected, Wishes
from bedplate.portable.evidence.checks import AGAIN, FAIL
from bedplate.portable.files import File, ensure_files
from bedplate.portable.host import Host, Result
from bedplate.portable.runtime import cdi
from bedplate.portable.runtime import state as runtime_state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NVIDIA = "/usr/local/bin/nvidia-container-runtime"
CONTAINERD = f"""version = 4
[plugins]
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = 'registry.k8s.io/pause:3.10.2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
      runtime_type = 'io.containerd.runc.v2'
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
        BinaryName = '{NVIDIA}'
        SystemdCgroup = true
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = ''
      SystemdCgroup = true
"""
CRIO = f"""[crio.runtime]
default_runtime = "runc"
cgroup_manager = "systemd"
[crio.runtime.runtimes.nvidia]
runtime_path = "{NVIDIA}"
[crio.runtime.runtimes.runc]
runtime_path = ""
[crio.image]
pause_image = "registry.k8s.io/pause:3.10.2"
"""
DOCKER = {
    "ServerVersion": "20.10.24+dfsg1",
    "Runtimes": {"nvidia": {"path": NVIDIA, "runtimeArgs": []}, "runc": {"path": "runc"}},
    "DefaultRuntime": "runc",
    "CgroupDriver": "cgroupfs",
}
ANSWERS = {
    "ctr version": "Client:\n  Version:  v9.9.9\nServer:\n  Version:  v2.4.2\n",
    "containerd config": CONTAINERD,
    "crio status": CRIO,
    "crio --version": "crio version 1.36.1\n",
    "docker info": json.dumps(DOCKER),
}


def answering(**changed: Result) -> Host:
    def run(argv: Sequence[str], *_: object) -> Result:
        return changed.get(argv[0], Result(0, ANSWERS.get(" ".join(argv[:2]), ""), ""))

    return Host("/nonexistent", run)


@pytest.mark.parametrize(
    ("runtime", "version", "cgroups", "sandbox"),
    [
        ("containerd", "2.4.2", "systemd", "registry.k8s.io/pause:3.10.2"),
        ("cri-o", "1.36.1", "systemd", "registry.k8s.io/pause:3.10.2"),
        ("docker", "20.10.24", "cgroupfs", ""),
    ],
)
def test_each_runtime_is_read(runtime: str, version: str, cgroups: str, sandbox: str) -> None:
    state = runtime_state.read(answering(), runtime)
    assert (state.version, state.cgroups, state.sandbox) == (version, cgroups, sandbox)
    assert state.handlers["nvidia"] == NVIDIA
    assert "runc" in state.handlers
    assert state.default == "runc"
    assert state.reason == ""


def test_what_a_distribution_adds_to_a_version_is_left_out() -> None:
    said = "Client:\n  Version:  1.7.24~ds1\nServer:\n  Version:  1.7.24~ds1\n"
    state = runtime_state.read(answering(ctr=Result(0, said, "")), "containerd")
    assert state.version == "1.7.24"


@pytest.mark.parametrize(
    ("runtime", "program"), [("containerd", "ctr"), ("cri-o", "crio"), ("docker", "docker")]
)
def test_a_runtime_that_does_not_answer_gives_its_reason(runtime: str, program: str) -> None:
    host = answering(**{program: Result(1, "", "connection refused")})
    assert runtime_state.read(host, runtime).reason == "connection refused"


def test_one_handler_without_systemd_is_enough() -> None:
    text = CONTAINERD.replace("SystemdCgroup = true", "SystemdCgroup = false", 1)
    host = answering(containerd=Result(0, text, ""))
    assert runtime_state.read(host, "containerd").cgroups == "cgroupfs"


SPECIFICATION = """---
cdiVersion: 0.5.0
devices:
    - name: "0"
    - name: GPU-11
    - name: MIG-22
    - name: all
kind: nvidia.com/gpu
containerEdits:
    mounts:
        - containerPath: /usr/lib/libcuda.so.535.261.03
          hostPath: /usr/lib/libcuda.so.535.261.03
        - containerPath: /usr/lib/libnvidia-ml.so.535.261.03
          hostPath: /usr/lib/libnvidia-ml.so.535.261.03
"""
PATH = "/etc/cdi/nvidia.yaml"


class Machine:
    """A host with a whole GPU and one that is cut into a MIG device."""

    def __init__(self, root: Path) -> None:
        self.modes = "GPU-11, Disabled\nGPU-aa, Enabled\n"
        self.host = Host(str(root), self.run)
        for library in cdi.LIBRARIES:
            self.host.write(f"/usr/lib/{library}.so.535.261.03", "")
        self.module("535.261.03")
        self.host.write(PATH, SPECIFICATION)

    def module(self, version: str) -> None:
        text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  x\n"
        self.host.write("/proc/driver/nvidia/version", text)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        if argv[:2] == ["nvidia-smi", "-L"]:
            lines = "GPU 0: T (UUID: GPU-11)\nGPU 1: A (UUID: GPU-aa)\n  MIG 1g (UUID: MIG-22)\n"
            return Result(0, lines, "")
        if argv[0] == "nvidia-smi":
            return Result(0, self.modes, "")
        if argv[0] == "systemctl":
            return Result(0, "enabled\n", "")
        return Result(0, ANSWERS.get(" ".join(argv[:2]), ""), "")


def test_a_true_specification_has_nothing_against_it(tmp_path: Path) -> None:
    assert cdi.stale(Machine(tmp_path).host, PATH) == []


def test_each_way_of_being_stale_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.module("550.163.01")
    assert cdi.stale(machine.host, PATH) == [
        "it is for driver 535.261.03, and 550.163.01 is loaded"
    ]
    machine.module("535.261.03")
    machine.host.remove("/usr/lib/libcuda.so.535.261.03")
    gone = "it mounts /usr/lib/libcuda.so.535.261.03, not on this host"
    assert cdi.stale(machine.host, PATH) == [gone]
    machine.modes = "GPU-11, Disabled\nGPU-aa, Disabled\n"
    assert cdi.stale(machine.host, PATH) == ["it lacks GPU-aa", gone]
    machine.host.write(PATH, SPECIFICATION.replace("MIG-22", "MIG-33"))
    assert cdi.stale(machine.host, PATH)[:2] == [
        "it lacks GPU-aa, MIG-22",
        "it names MIG-33, not on this host",
    ]
    machine.host.write(PATH, SPECIFICATION.replace("libnvidia-ml", "libcuda"))
    assert "it lacks libnvidia-ml.so.535.261.03" in cdi.stale(machine.host, PATH)
    machine.host.remove(PATH)
    assert cdi.stale(machine.host, PATH) == [f"there is no {PATH}"]


OTHER = json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []})
PACKAGE = "/var/run/cdi/nvidia.yaml"
UNIT = "/etc/systemd/system/nvidia-cdi-refresh.service"


def test_every_other_file_that_names_the_gpus_is_found(tmp_path: Path) -> None:
    host = Machine(tmp_path).host
    named = ["/etc/cdi/a.yaml", "/etc/cdi/b.json", "/var/run/cdi/c.yaml", PACKAGE]
    for path in named:
        host.write(path, OTHER if path.endswith("json") else SPECIFICATION)
    host.write(
        "/var/run/cdi/c.yaml",
        SPECIFICATION.replace("kind: nvidia.com/gpu", 'kind: "nvidia.com/gpu"'),
    )
    # Of another kind, of no form or of a name that runtimes pass by.
    host.write("/var/run/cdi/claim.yaml", SPECIFICATION.replace("nvidia.com", "k8s.gpu.nvidia.com"))
    host.write(
        "/var/run/cdi/plugin.json", OTHER.replace("nvidia.com", "k8s.device-plugin.nvidia.com")
    )
    host.write("/etc/cdi/broken.json", "{")
    host.write("/etc/cdi/nvidia.yaml.old", SPECIFICATION)
    assert cdi.others(host, PATH) == named
    # One folder under two names, as on hosts.
    (tmp_path / "run").symlink_to("var/run")
    assert cdi.others(host, "/run/cdi/nvidia.yaml") == [
        "/etc/cdi/a.yaml",
        "/etc/cdi/b.json",
        PATH,
        "/var/run/cdi/c.yaml",
    ]


def test_only_what_the_packages_unit_wrote_is_removed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    host = machine.host
    host.write(PACKAGE, SPECIFICATION)
    host.write("/var/run/cdi/mine.yaml", SPECIFICATION)
    assert cdi.remove_packages(host, PATH) == []
    assert failed(machine) == ["cdi.other_files"]
    host.write(UNIT, "[Service]\n")
    assert failed(machine) == ["cdi.package_file", "cdi.other_files"]
    assert cdi.remove_packages(host, PATH, check=True) == [PACKAGE]
    assert cdi.remove_packages(host, PATH) == [PACKAGE]
    assert cdi.others(host, PATH) == ["/var/run/cdi/mine.yaml"]
    # The unit's own settings may name another file, and even ours.
    name = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH="
    settings = f"# {name}/var/run/cdi/no.yaml\n{name}{{}}\n"
    host.write(cdi.PACKAGE_SETTINGS, settings.format("/var/run/cdi/mine.yaml"))
    assert cdi.remove_packages(host, PATH) == ["/var/run/cdi/mine.yaml"]
    host.write(cdi.PACKAGE_SETTINGS, settings.format(PATH))
    assert cdi.remove_packages(host, PATH) == []
    assert host.exists(PATH)


def test_a_node_without_its_link_fails_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").symlink_to("/dev/null")
    assert failed(machine) == ["devices.links"]
    device_links.ensure(str(tmp_path))
    assert failed(machine) == []


WISHED = {
    "runtime": "containerd",
    "default": "runc",
    "nvidia_runtime": NVIDIA,
    "sandbox_image": "registry.k8s.io/pause:3.10.2",
    "cdi_spec": PATH,
}


def failed(machine: Machine, **containers: Any) -> list[str]:
    to = Collected([], {}, {})
    wish = Wishes(containerd_version="2.4.2", containers=WISHED | containers)
    runtime_evidence.collect(machine.host, wish, to)
    toolkit_evidence.collect(machine.host, wish, to)
    # Versions and counts have tests of their own; this host's systemctl knows one word only.
    others = ("cdi.devices", "toolkit.version", "runtime.active")
    return [one["id"] for one in to.checks if one["result"] == FAIL and one["id"] not in others]


def test_edited_files_and_other_handlers_fail_their_own_checks(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert failed(machine) == []
    assert failed(machine, default="nvidia") == ["toolkit.default"]
    assert failed(machine, nvidia_runtime="/usr/bin/other") == ["toolkit.runtime"]
    assert failed(machine, sandbox_image="registry.k8s.io/pause:3.9") == ["runtime.sandbox"]
    for role in ("container_runtime", "nvidia_container_toolkit"):
        text = f"# Managed by Bedplate (role {role}).\n"
        ensure_files(machine.host, [File(f"/etc/{role}.toml", text)])
    assert failed(machine) == []
    machine.host.write("/etc/container_runtime.toml", "mine\n")
    machine.host.remove("/etc/nvidia_container_toolkit.toml")
    assert failed(machine) == ["runtime.configuration", "toolkit.configuration"]
    assert owned.differences(machine.host)["nvidia_container_toolkit"] == [
        "/etc/nvidia_container_toolkit.toml: missing"
    ]


@pytest.mark.parametrize(
    ("rows", "packages", "result", "told"),
    [
        (
            {"docker-ce": "hold", "containerd.io": "hold"},
            ["docker-ce", "containerd.io"],
            "pass",
            "",
        ),
        (
            {"docker-ce": "hold", "containerd.io": "install"},
            ["docker-ce", "containerd.io"],
            FAIL,
            "",
        ),
        # A node that waits for another source of its runtime has none of them yet.
        ({}, ["docker.io"], "skipped", "none of docker.io is installed"),
        ({}, [], "skipped", "it does not come in packages"),
    ],
)
def test_packages_that_somebody_lets_go_are_told(
    tmp_path: Path, rows: dict[str, str], packages: list[str], result: str, told: str
) -> None:
    machine = Machine(tmp_path)
    machine.host.write("/etc/os-release", "ID=debian\nVERSION_ID=12\n")
    text = "".join(f"{name}\t1-1\t{want}\tinstalled\n" for name, want in rows.items())
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str], *rest: object) -> Result:
        if argv[0] != "dpkg-query":
            return machine.run(argv, *rest)
        asked.append(argv[-len(packages) :])
        return Result(0, text, "")

    to = Collected([], {}, {})
    wish = Wishes(containerd_version="2.4.2", containers=WISHED | {"packages": packages})
    runtime_evidence.collect(Host(str(tmp_path), run), wish, to)
    (one,) = (check for check in to.checks if check["id"] == "runtime.held")
    assert (one["result"], one["reason"]) == (result, told)
    assert asked == ([sorted(packages)] if packages else [])
    if result == FAIL:
        assert (one["wished"], one["found"]) == (["containerd.io", "docker-ce"], ["docker-ce"])
        assert one["fix"] == AGAIN
