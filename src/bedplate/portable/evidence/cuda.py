"""Evidence of CUDA toolkits: which there are, which one programs get, none before the driver."""

import re
from typing import Any, Mapping

from .. import cuda
from ..driver import state
from ..host import Host
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

_DRIVER = re.compile(r"^\s*libcuda\.so\.1 .*=> (\S+)$", re.MULTILINE)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare toolkits, packages and the loader's choice with what role cuda_toolkit keeps."""
    given = wish.cuda
    packages: Mapping[str, str] = given.get("packages", {})
    if not packages:
        to.checks.append(skipped("cuda", "CUDA toolkits", "the lock names none for this host"))
        return
    have = state.installed(host, list(packages))
    versions = {name: package.version for name, package in have.items()}
    what = "CUDA packages at the requested versions"
    to.checks.append(check("cuda.packages", what, dict(packages), versions, AGAIN))
    held = sorted(name for name, package in have.items() if package.held)
    what = "CUDA packages held against upgrades"
    to.checks.append(check("cuda.held", what, sorted(packages), held, AGAIN))
    if given.get("source") == "distro":
        what = "the distribution's compiler answers, at the requested release"
        wished = [".".join(v.split(".")[:2]) for v in given.get("versions", ())]
        to.checks.append(check("cuda.release", what, wished, [cuda.release(host)], AGAIN))
    else:
        _side_by_side(host, given, to)
    _driver_first(host, to)


def _side_by_side(host: Host, given: Mapping[str, Any], to: Collected) -> None:
    versions = [str(version) for version in given.get("versions", ())]
    there = cuda.installed(host)
    to.facts["cuda"] = there
    wished = {".".join(v.split(".")[:2]): v for v in versions}
    found = {name: there[name] for name in wished if name in there}
    what = "the requested CUDA toolkits lie side by side"
    to.checks.append(check("cuda.versions", what, wished, found, AGAIN))
    what = f"{cuda.LINK} is the default toolkit"
    default = str(given.get("default", ""))
    if not default:
        to.checks.append(skipped("cuda.default", what, "none is requested"))
        return
    to.checks.append(check("cuda.default", what, cuda.folder(default), cuda.default(host), AGAIN))


def _driver_first(host: Host, to: Collected) -> None:
    what = "programs get the driver's libcuda, no toolkit's"
    answer = host.run(["ldconfig", "-p"])
    if answer.code != 0:
        to.checks.append(failed("cuda.driver_library", what, answer.said, AGAIN, "an answer"))
        return
    shadowing = [path for path in _DRIVER.findall(answer.out) if path.startswith(cuda.LINK)]
    fix = "Take the toolkit's compat folder out of /etc/ld.so.conf.d, and run ldconfig."
    to.checks.append(check("cuda.driver_library", what, [], shadowing, fix))
