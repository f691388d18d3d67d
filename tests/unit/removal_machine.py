"""A host with files of Bedplate's, for the tests of a reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.portable.files import File, ensure_files
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNIT = "/etc/systemd/system/containerd.service"
DROP_IN = "/etc/systemd/system/kubelet.service.d/20-device-plugin.conf"
DEFAULTS = "/etc/containerd/config.toml"
BLACKLIST = "/etc/modprobe.d/bedplate-host.conf"
CDI = "/etc/cdi/nvidia.yaml"
MARK = "# Managed by Bedplate (role {}).\n"
SMI = "nvidia-smi"


class Machine:
    """A host with files of three roles, one of which replaced a package's file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(str(root), self.run)
        self.asked: list[str] = []
        self.answers: dict[str, Result] = {}
        for folder in ("etc/systemd/system", "etc/modprobe.d", "etc/containerd", "usr/local/bin"):
            (root / folder).mkdir(parents=True)
        self.host.write(DEFAULTS, "the package's\n")
        ensure_files(
            self.host,
            [
                File(DEFAULTS, MARK.format("container_runtime")),
                File(UNIT, MARK.format("container_runtime")),
                File(DROP_IN, MARK.format("nvidia_device_plugin")),
                File(BLACKLIST, MARK.format("host")),
            ],
        )
        ensure_files(self.host, [File(CDI, "generated\n")], watched=False)

    def run(self, argv: Sequence[str], *_: object) -> Result:
        words = " ".join(argv)
        self.asked.append(words)
        return next((a for key, a in self.answers.items() if key in words), Result(0, "", ""))

    def tree(self) -> list[str]:
        """Every file and folder of the host but the records."""
        found = (str(path.relative_to(self.root)) for path in sorted(self.root.rglob("*")))
        return [path for path in found if not path.startswith(("var", "usr/sbin"))]
