"""Evidence that kernel settings which roles keep over a reboot are in force now.

What is to be in force is read from the files that the roles wrote, as long as nobody has edited
them: area ``owned`` says where somebody has.
"""

from typing import List, Tuple

from .. import owned
from ..host import Host
from ..kernel import settings as kernel
from .area import Collected, Wishes
from .checks import AGAIN, check, skipped

SYSCTLS, MODULES = "/etc/sysctl.d/", "/etc/modules-load.d/"


def _lines(host: Host, folder: str) -> Tuple[List[str], List[str]]:
    """The lines of our files in a folder, and those of our files that are not as we wrote them."""
    lines: List[str] = []
    changed: List[str] = []
    for path, entry in sorted(owned.load(host).items()):
        if not path.startswith(folder):
            continue
        if owned.state(host, path, entry):
            changed.append(path)
            continue
        stripped = (line.strip() for line in (host.read(path) or "").splitlines())
        lines += [line for line in stripped if line and not line.startswith(("#", ";"))]
    return lines, changed


def _why_none(changed: List[str]) -> str:
    if changed:
        return "{} is not as it was written, which area owned says".format(", ".join(changed))
    return "no role keeps any on this host"


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare the running kernel with what the files say."""
    del wish  # the same on every host
    what = "kernel parameters in force as their files say"
    lines, changed = _lines(host, SYSCTLS)
    pairs = [line.partition("=") for line in lines]
    wished = {key.strip(): " ".join(value.split()) for key, _, value in pairs}
    if wished:
        found = {key: kernel.sysctl_now(host, key) for key in wished}
        to.checks.append(check("kernel.sysctls", what, wished, found, AGAIN))
    else:
        to.checks.append(skipped("kernel.sysctls", what, _why_none(changed)))
    what = "kernel modules that are to be loaded at boot are loaded, without exceptions"
    lines, changed = _lines(host, MODULES)
    if lines:
        missing = [name for name in lines if not kernel.module_present(host, name)]
        to.checks.append(check("kernel.modules", what, [], missing, AGAIN))
    else:
        to.checks.append(skipped("kernel.modules", what, _why_none(changed)))
