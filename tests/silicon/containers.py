"""Containers on a real GPU: NVIDIA's toolkit, containerd and runc; `python -m … containers OUT`.

The programs are those on the path. What is written lies below WORK, but for the specification,
which lies where runtimes look for it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import traceback
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bedplate.portable import nvidia
from bedplate.portable.evidence import host as host_evidence
from bedplate.portable.evidence.area import Wishes
from bedplate.portable.host import Host
from bedplate.portable.runtime import cdi
from tests.silicon.measure import Notes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HANDLER = shutil.which("nvidia-container-runtime") or "/usr/local/bin/nvidia-container-runtime"
WORK = Path("/run/bedplate-silicon")
IMAGE, PAUSE = "bedplate.test/gpu:1", "bedplate.test/pause:1"
NAMESPACE = "silicon"
#: What images are made of, with their libraries: this machine's own.
PROGRAMS = ("sh", "ls", "cat", "mknod", "sleep", "env", "grep", "id")
CONFIGURATION = """version = 3
root = '{folder}/root'
state = '{folder}/state'
[grpc]
address = '{folder}/containerd.sock'
[ttrpc]
address = '{folder}/containerd.ttrpc'
[plugins.'io.containerd.cri.v1.images']
snapshotter = '{snapshotter}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
BinaryName = '{handler}'
"""
#: As the role writes it: what a container says of its GPUs itself is not heard.
TOOLKIT = """accept-nvidia-visible-devices-envvar-when-unprivileged = false
accept-nvidia-visible-devices-as-volume-mounts = false
"""
LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
#: As root of a container with CAP_MKNOD, which containers have unless it is dropped.
ATTACK = (
    "mknod /tmp/nvidiactl c 195 255; mknod /tmp/nvidia0 c 195 0; ls /tmp;"
    " cat </tmp/nvidiactl; cat </tmp/nvidia0; ls /dev"
)


def run(*words: str | Path, timeout: float = 60, **environment: str) -> dict[str, Any]:
    """Run a program; return its exit status and what it said."""
    try:
        done = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"code": -1, "out": "", "err": str(error)}
    return {"code": done.returncode, "out": done.stdout[-8000:], "err": done.stderr[-3000:]}


def root_folder(folder: Path) -> Path:
    """Make a root folder of a few programs and their libraries."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("etc", "proc", "sys", "dev", "tmp", "bin", "usr/bin", "run", "var"):
        (folder / name).mkdir(parents=True)
    for program in PROGRAMS:
        path = shutil.which(program)
        assert path is not None, program
        shutil.copy(path, folder / "bin" / program)
        libraries = re.findall(r"(/\S+\.so\S*)", run("ldd", path)["out"])
        # nvidia-smi, which the specification brings, asks for these.
        known = {Path(one).parent for one in libraries if "/ld-" not in one}
        libraries += [str(d / n) for d in known for n in ("libm.so.6", "libdl.so.2", "librt.so.1")]
        libraries += [str(d / "libpthread.so.0") for d in known]
        for library in libraries:
            to = folder / library[1:]
            if not to.exists() and Path(library).exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, to)
    return folder


def image(root: Path, name: str, command: Sequence[str], file: Path) -> None:
    """Write a root folder as an image's archive."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add(root, arcname=".")
    import hashlib

    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    # The specification mounts nvidia-smi where this machine has it.
    smi = Path(shutil.which("nvidia-smi") or "/usr/bin/nvidia-smi").parent
    system = {"architecture": "amd64", "os": "linux"}
    config = {**system, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}
    config |= {"config": {"Entrypoint": list(command), "Env": [f"PATH=/bin:/usr/bin:{smi}"]}}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {
        "layer.tar": layer.getvalue(),
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(file, "w") as archive:
        for part, content in parts.items():
            entry = tarfile.TarInfo(part)
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))


class Runtime:
    """A containerd of its own with two images; it ends on leaving."""

    def __init__(self, snapshotter: str) -> None:
        self.snapshotter = snapshotter
        self.socket = WORK / "containerd.sock"

    def __enter__(self) -> Self:
        WORK.mkdir(parents=True, exist_ok=True)
        text = CONFIGURATION.format(
            folder=WORK, snapshotter=self.snapshotter, pause=PAUSE, handler=HANDLER
        )
        (WORK / "containerd.toml").write_text(text)
        with (WORK / "containerd.log").open("w") as log:
            self.process = subprocess.Popen(
                ["containerd", "--config", WORK / "containerd.toml"], stdout=log, stderr=log
            )
        for _ in range(100):
            if self.ctr("version")["code"] == 0:
                break
            time.sleep(0.2)
        root = root_folder(WORK / "image")
        for name, command in ((IMAGE, ["/bin/sh"]), (PAUSE, ["/bin/sleep", "86400"])):
            file = WORK / "image.tar"
            image(root, name, command, file)
            for namespace in ("k8s.io", NAMESPACE):
                options = ("-n", namespace, "images", "import", "--snapshotter", self.snapshotter)
                self.imported = self.ctr(*options, file)
        return self

    def __exit__(self, *_: object) -> None:
        for namespace in ("k8s.io", NAMESPACE):
            for task in self.ctr("-n", namespace, "tasks", "list", "-q")["out"].split():
                self.ctr("-n", namespace, "tasks", "delete", "--force", task)
        self.process.terminate()
        self.process.wait(20)

    def ctr(self, *words: str | Path) -> dict[str, Any]:
        """Ask containerd as its own client."""
        return run("ctr", "--address", self.socket, *words)

    def run(
        self, name: str, script: str, *options: str, rootfs: Path | None = None
    ) -> dict[str, Any]:
        """Run a shell's words in a container."""
        words = ["-n", NAMESPACE, "run", "--rm", *options]
        place = [IMAGE]
        if rootfs:
            words, place = [*words, "--rootfs"], [str(rootfs)]
        else:
            words += ["--snapshotter", self.snapshotter]
        return self.ctr(*words, *place, name, "/bin/sh", "-c", script)


def specification(notes: Notes) -> None:
    """Have NVIDIA's toolkit describe the GPU, and the product's reader judge it."""
    said = run("nvidia-ctk", "--quiet", "cdi", "generate", timeout=120)
    notes["generated"] = said
    host = Host()
    outcome = cdi.refresh(host, cdi.SPECIFICATION, str(shutil.which("nvidia-cdi-hook")))
    notes["refresh"] = {"changed": outcome.changed, "devices": outcome.devices}
    again = cdi.refresh(host, cdi.SPECIFICATION, str(shutil.which("nvidia-cdi-hook")))
    notes["again"] = again.changed
    notes["stale"] = cdi.stale(host, cdi.SPECIFICATION)
    notes["listed"] = nvidia.cdi_devices(host)


def started(notes: Notes, runtime: Runtime) -> None:
    """Start containers that are given the GPU, and that only ask for it."""
    notes["imported"] = runtime.imported
    gpu = "--device=nvidia.com/gpu=0"
    look = "nvidia-smi -L; ls /dev; ls -d /proc/driver/nvidia/gpus/*"
    notes["given"] = runtime.run("given", look, gpu)
    notes["given by all"] = runtime.run("all", look, "--device=nvidia.com/gpu=all")
    every = "--env=NVIDIA_VISIBLE_DEVICES=all"
    notes["asks by its environment"] = runtime.run("asks", look, every)
    library = sorted(Path("/usr").rglob("libnvidia-ml.so.1"))[:1]
    mounts = [
        f"--mount=type=bind,src={os.path.realpath(path)},dst={to},options=rbind:ro"
        for path, to in (
            (shutil.which("nvidia-smi"), "/bin/nvidia-smi"),
            *((path, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1") for path in library),
        )
        if path
    ]
    notes["brings nvidia-smi"] = runtime.run("brings", "nvidia-smi -L; ls /dev", every, *mounts)
    notes["makes device nodes"] = runtime.run("makes", ATTACK, every)
    notes["with a limit"] = runtime.run("limit", look, gpu, f"--env={LIMIT}=8192")


def evidence(notes: Notes, runtime: Runtime) -> None:
    """Have the host's evidence start its containers in the ways that could get more than given."""
    place = Path("/run/containerd")
    place.mkdir(parents=True, exist_ok=True)
    (place / "containerd.sock").unlink(missing_ok=True)
    (place / "containerd.sock").symlink_to(runtime.socket)
    told = Path("/etc/nvidia-container-runtime")
    told.mkdir(parents=True, exist_ok=True)
    (told / "config.toml").write_text(TOOLKIT)
    containers = {
        "runtime": "containerd",
        "default": "runc",
        "accepts_variable": False,
        "nvidia_runtime": HANDLER,
        "packages": [],
        "sandbox_image": PAUSE,
        "cdi_spec": cdi.SPECIFICATION,
        "image": IMAGE,
        "command": ["/bin/sleep", "600"],
        "cases": "all",
    }
    gpus: list[Mapping[str, Any]] = [{"model": "h100-sxm5-80gb", "pci": ["10de:2330"], "count": 1}]
    wishes = Wishes(gpus=gpus, plugin_image=IMAGE, containers=containers, toolkit_version="1.20.1")
    for area in ("toolkit", "container", "isolation"):
        notes[area] = host_evidence.collect(Host(), wishes, [area])


def frameworks(notes: Notes, runtime: Runtime) -> None:
    """Run the smoke tests of images in a container over this machine's own root folder."""
    folder = WORK / "over"
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    # The layers lie on a file system of their own: what an overlay is in cannot be above it.
    notes["overlay"] = run("mount", "-t", "tmpfs", "none", folder)
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    notes["overlay"] = run("mount", "-t", "overlay", "-o", options, "none", folder / "merged")
    try:
        for name in ("pytorch", "jax"):
            text = (
                Path(__file__).parents[2] / f"templates/containerfiles/{name}.py.j2"
            ).read_text()
            (folder / "merged/tmp").mkdir(exist_ok=True)
            (folder / f"merged/tmp/smoke-{name}.py").write_text(text)
            script = (
                f"cd /tmp && XLA_PYTHON_CLIENT_PREALLOCATE=false {sys.executable} smoke-{name}.py"
            )
            given = ["--device=nvidia.com/gpu=0", "--env=PATH=" + os.environ["PATH"]]
            root = folder / "merged"
            notes[name] = runtime.run(name, script, *given, rootfs=root)
            notes[f"{name} without a GPU"] = runtime.run(f"{name}-none", script, rootfs=root)
    finally:
        run("umount", folder / "merged")
        run("umount", folder)


PARTS = {"started": started, "evidence": evidence, "frameworks": frameworks}


def main(arguments: list[str]) -> int:
    """Try containers; the exit status is how many parts failed."""
    out, failed = Path(arguments[0]), 0
    out.mkdir(parents=True, exist_ok=True)
    snapshotter = "overlayfs" if "overlay" in Path("/proc/filesystems").read_text() else "native"
    notes = Notes(out, "specification")
    try:
        specification(notes)
    except Exception:
        notes["failed"] = traceback.format_exc()
        failed += 1
    with Runtime(snapshotter) as runtime:
        for part in [PARTS[name] for name in arguments[1:] or PARTS]:
            notes = Notes(out, part.__name__)
            notes["snapshotter"] = snapshotter
            try:
                part(notes, runtime)
            except Exception:
                notes["failed"] = traceback.format_exc()
                failed += 1
    (out / "containerd.log").write_bytes((WORK / "containerd.log").read_bytes()[-200000:])
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
