#!/usr/bin/python3
"""runc for CRI-O on a host that is a container, and so has not all that a machine's root has.

containerd gives a privileged container the capabilities that the daemon has, and by a setting
(restrict_oom_score_adj) no oom_score_adj that it may not give. CRI-O 1.36.1 does neither.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

RUNC = "/usr/sbin/runc"
#: In the order of their numbers.
CAPABILITIES = """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE
SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME
SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"""


def lower(process: dict[str, Any], bounds: int, least: int) -> None:
    """Take from a container's process what this one cannot give."""
    has = {f"CAP_{name}" for bit, name in enumerate(CAPABILITIES.split()) if bounds >> bit & 1}
    for kind, wanted in process.get("capabilities", {}).items():
        process["capabilities"][kind] = [one for one in wanted if one in has]
    process["oomScoreAdj"] = max(least, process.get("oomScoreAdj", least))


def main(arguments: list[str]) -> None:
    """Change the file that runc is called with, and run it."""
    own = Path("/proc/self")
    (bounds,) = re.findall(r"CapBnd:\s*(\w+)", (own / "status").read_text())
    least = int((own / "oom_score_adj").read_text())
    for verb, option, name in (("create", "--bundle", "config.json"), ("exec", "--process", "")):
        if verb in arguments and option in arguments:
            path = Path(arguments[arguments.index(option) + 1], name)
            content = json.loads(path.read_text())
            lower(content["process"] if name else content, int(bounds, 16), least)
            path.write_text(json.dumps(content))
    os.execv(RUNC, ["runc", *arguments])  # noqa: S606 there is nothing for a shell to do


if __name__ == "__main__":
    main(sys.argv[1:])
