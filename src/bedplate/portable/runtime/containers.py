"""Containers started to see what they are given, through Kubernetes' interface or Docker's.

They are looked at from the host (device nodes and mounts of a running process), so that an image
needs nothing but a program that stays. Where the image has a C library, nvidia-smi is asked inside.
"""

import json
import os
import re
import shutil
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..host import Host, Result, make_folders
from . import cases as runtime_cases
from . import probe_image
from .cases import Case, Gpu

#: What everything started here is called by, so that the next run can clear what a killed one left.
OWNER = "bedplate-verify"
WORK = "/run/bedplate/verify"
#: The host's network, which asks for no network plugin, and each container's own processes, as
#: kubelet has it.
NAMESPACES = {"network": 2, "pid": 1}
_CARD = re.compile(r"nvidia\d+")
_LIBRARY = re.compile(r"/(lib[^/ ]+\.so)\.\d{3}\.\d+(?:\.\d+)?$")
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[0-9a-f-]+)\)")
_INFORMATION = re.compile(r"^(GPU UUID|Device Minor):\s*(\S+)", re.MULTILINE)
_NOT_THERE = re.compile(r"no such file or directory|not found in \$PATH", re.IGNORECASE)


class Seen(NamedTuple):
    """What a container got. ``refused`` says why it did not start; ``uuids`` is None where the
    image cannot run nvidia-smi; ``libraries`` are the driver's, without version."""

    refused: str = ""
    uuids: Optional[List[str]] = None
    nodes: List[str] = []  # noqa: RUF012 never changed
    libraries: List[str] = []  # noqa: RUF012 never changed


class ContainerError(Exception):
    """The runtime cannot be worked with at all; the text is its reason."""


def gpus_of(host: Host) -> List[Gpu]:
    """The host's GPUs: index and MIG devices by nvidia-smi, minor numbers by the kernel."""
    minors = {}
    for name in host.list("/proc/driver/nvidia/gpus"):
        text = host.read(f"/proc/driver/nvidia/gpus/{name}/information") or ""
        facts = dict(_INFORMATION.findall(text))
        if "GPU UUID" in facts and facts.get("Device Minor", "").isdigit():
            minors[facts["GPU UUID"]] = int(facts["Device Minor"])
    found: List[Gpu] = []
    for line in host.run(["nvidia-smi", "-L"]).out.splitlines():
        uuid = _UUID.search(line)
        if uuid is None:
            continue
        if uuid.group(1).startswith("GPU-"):
            number = len(found)
            found.append(Gpu(number, uuid.group(1), minors.get(uuid.group(1), number)))
        elif found:
            found[-1] = found[-1]._replace(migs=(*found[-1].migs, uuid.group(1)))
    return found


def host_libraries(host: Host) -> List[str]:
    """The driver's libraries that the host's loader knows, without version."""
    out = host.run(["ldconfig", "-p"]).out
    known = {os.path.basename(line.split("=>")[-1].strip()) for line in out.splitlines()}
    wanted = [name for names in runtime_cases.CAPABILITIES.values() for name in names]
    return sorted(name for name in wanted if any(one.startswith(name) for one in known))


def _look(host: Host, pid: int) -> Seen:
    """What the process sees of cards and of the driver's files."""
    nodes = [name for name in host.list(f"/proc/{pid}/root/dev") if _CARD.fullmatch(name)]
    libraries = set()
    for line in (host.read(f"/proc/{pid}/mountinfo") or "").splitlines():
        found = _LIBRARY.search(line.split(" ")[4])
        if found:
            libraries.add(found.group(1))
    return Seen("", None, nodes, sorted(libraries))


def listed(answer: Result) -> Optional[List[str]]:
    """What nvidia-smi listed; nothing where it is not mounted; None where it could not run."""
    if answer.code == 0:
        return sorted(_UUID.findall(answer.out))
    said = answer.err + answer.out
    if "No devices" in said or "NVIDIA-SMI" in said or "executable file not found" in said:
        return []
    return [] if _NOT_THERE.search(said) and "nvidia-smi" in said else None


class Containers:
    """Starts, looks at and removes containers of one image."""

    def __init__(self, host: Host, image: str, command: Sequence[str] = ()) -> None:
        """``command`` stays until it is ended; without one the image's own program does."""
        self.host, self.image, self.command = host, image, list(command)

    def see(self, case: Case) -> Seen:
        """Start a container that asks as ``case`` says, and look at it."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove what was started, here or by a run that was killed."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Have the image. Raises ContainerError."""
        raise NotImplementedError

    def has_cdi(self) -> bool:
        """Whether the runtime says that it takes CDI names."""
        return True

    def _must(self, argv: List[str], timeout: float = 120) -> str:
        answer = self.host.run(argv, timeout)
        if answer.code != 0:
            raise ContainerError("{}: {}".format(" ".join(argv[:2]), answer.said))
        return answer.out.strip()


class Cri(Containers):
    """Through the interface that kubelet uses, by crictl: containerd and CRI-O."""

    def __init__(self, host: Host, image: str, endpoint: str, command: Sequence[str] = ()) -> None:
        super().__init__(host, image, command)
        self.crictl = ["crictl", "--runtime-endpoint", endpoint, "--timeout", "60s"]
        self.sandboxes: Dict[str, str] = {}
        self.number = 0

    def prepare(self) -> None:
        known = self.host.run([*self.crictl, "inspecti", "--quiet", self.image])
        if known.code != 0:
            self._must([*self.crictl, "pull", self.image], 600)

    def clear(self) -> None:
        mine = self.host.run([*self.crictl, "pods", "--quiet", "--namespace", OWNER]).out.split()
        if mine:
            self.host.run([*self.crictl, "rmp", "--force", *mine])
        self.sandboxes = {}
        shutil.rmtree(self.host.path(WORK), ignore_errors=True)

    def see(self, case: Case) -> Seen:
        name, failure = self._start(case)
        if failure is not None:
            return Seen(failure.said)
        facts = json.loads(self._must([*self.crictl, "inspect", "--output", "json", name]))
        seen = _look(self.host, int(facts["info"]["pid"]))
        if self.command:
            seen = seen._replace(uuids=listed(self._exec(name, ["nvidia-smi", "-L"])))
        return seen

    def ask(self, case: Case, argv: Sequence[str]) -> Result:
        """Run a command in a container that asks as ``case`` says, beside its own."""
        name, failure = self._start(case)
        return self._exec(name, argv) if failure is None else failure

    def _exec(self, name: str, argv: Sequence[str]) -> Result:
        return self.host.run([*self.crictl, "exec", "--sync", name, *argv])

    def _start(self, case: Case) -> Tuple[str, Optional[Result]]:
        """A container's identifier, or what was said where it does not start."""
        self.number += 1
        pod = self._sandbox(case.runtime)
        wish: Dict[str, Any] = {
            "metadata": {"name": f"case-{self.number}"},
            "image": {"image": self.image},
            "envs": [{"key": key, "value": value} for key, value in case.environment],
            "CDI_devices": [{"name": name} for name in case.devices],
            "linux": {"security_context": {"namespace_options": NAMESPACES}},
        }
        if self.command:
            wish["command"] = self.command
        files = [self._file(f"case-{self.number}", wish), self._file_of(case.runtime)]
        made = self.host.run([*self.crictl, "create", "--no-pull", pod, *files])
        if made.code != 0:
            return "", made
        name = made.out.strip()
        started = self.host.run([*self.crictl, "start", name])
        return name, started if started.code != 0 else None

    def _sandbox(self, runtime: str) -> str:
        if runtime not in self.sandboxes:
            wish = {
                "metadata": {"name": runtime or "default", "namespace": OWNER, "uid": OWNER},
                # Kubernetes' runtimes want a slice where systemd keeps the cgroups.
                "linux": {
                    "cgroup_parent": "system.slice",
                    "security_context": {"namespace_options": NAMESPACES},
                },
            }
            self._file(f"pod-{runtime}", wish)
            handler = ["--runtime", runtime] if runtime else []
            argv = [*self.crictl, "runp", *handler, self._file_of(runtime)]
            self.sandboxes[runtime] = self._must(argv)
        return self.sandboxes[runtime]

    def _file_of(self, runtime: str) -> str:
        return self.host.path(f"{WORK}/pod-{runtime}.json")

    def _file(self, name: str, content: Dict[str, Any]) -> str:
        path = f"{WORK}/{name}.json"
        self.host.write(path, json.dumps(content), 0o600)
        return self.host.path(path)


class Docker(Containers):
    """Through Docker's own command."""

    def prepare(self) -> None:
        if self.image == probe_image.NAME:
            self._import()
        elif self.host.run(["docker", "image", "inspect", self.image]).code != 0:
            self._must(["docker", "pull", "--quiet", self.image], 600)

    def _import(self) -> None:
        path = f"{WORK}/image.tar"
        make_folders(self.host.path(WORK))
        try:
            if not probe_image.write(self.host, path):
                wanted = f"{probe_image.STAYS} or {probe_image.ASKS}"
                raise ContainerError(f"the host has no {wanted} to make an image of")
            self._must(["docker", "import", self.host.path(path), self.image])
        finally:
            shutil.rmtree(self.host.path(WORK), ignore_errors=True)

    def has_cdi(self) -> bool:
        return "CDISpecDirs" in self._must(["docker", "info", "--format", "{{json .}}"])

    def clear(self) -> None:
        label = f"label={OWNER}"
        mine = self.host.run(["docker", "ps", "--all", "--quiet", "--filter", label]).out.split()
        if mine:
            self.host.run(["docker", "rm", "--force", *mine])
        if self.image == probe_image.NAME:
            self.host.run(["docker", "image", "rm", "--force", self.image])

    def see(self, case: Case) -> Seen:
        argv = ["docker", "run", "--detach", "--label", OWNER, "--network", "none"]
        argv += ["--runtime", case.runtime] if case.runtime else []
        argv += ["--gpus", case.gpus_option] if case.gpus_option else []
        for key, value in case.environment:
            argv += ["--env", f"{key}={value}"]
        for name in case.devices:
            argv += ["--device", name]
        started = self.host.run([*argv, self.image, *self.command], 120)
        if started.code != 0:
            return Seen(started.said)
        name = started.out.split()[-1]
        pid = self._must(["docker", "inspect", "--format", "{{.State.Pid}}", name])
        seen = _look(self.host, int(pid))
        if self.command:
            asked = self.host.run(["docker", "exec", name, "nvidia-smi", "-L"])
            seen = seen._replace(uuids=listed(asked))
        return seen
