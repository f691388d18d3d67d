"""Evidence that what Bedplate owns on a host is as Bedplate left it."""

from .. import archives, owned
from ..host import Host
from .area import Collected, Wishes
from .checks import AGAIN, check, failed, skipped

#: Programs from release archives lie there, by name and version.
STORE = "/opt/bedplate"
#: Judged by areas ``runtime`` and ``toolkit``, where these are asked how containers run.
CONTAINERS = ("container_runtime", "nvidia_container_toolkit")


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare files and programs with their records on the host itself."""
    found = owned.differences(host)
    what = "what Bedplate owns on the host is recorded"
    if not found:
        reason = f"there is no file in {owned.RECORD}"
        to.checks.append(failed("owned.record", what, reason, AGAIN, "a record"))
    elsewhere = CONTAINERS if wish.containers else ()
    for role, differences in sorted(found.items()):
        if role in elsewhere:
            continue
        what = f"files as role {role} wrote them, without differences"
        to.checks.append(check(f"owned.{role}", what, [], differences, AGAIN))
    changed = []
    for name in host.list(STORE):
        for version in host.list(f"{STORE}/{name}"):
            folder = f"{STORE}/{name}/{version}"
            changed += [f"{folder}/{one}" for one in archives.changed(host.path(folder))]
    what = "programs as their archives brought them, without differences"
    to.checks.append(check("owned.programs", what, [], changed, AGAIN))


def configuration(host: Host, role: str, name: str, fix: str, to: Collected) -> None:
    """Whether the files that ``role`` wrote are as it wrote them."""
    what = f"the files of role {role} are as it wrote them"
    found = owned.differences(host)
    if role not in found:
        to.checks.append(skipped(name, what, "this host keeps no record of them"))
        return
    wrong = "; ".join(found[role])
    to.checks.append(check(name, what, "as written", wrong or "as written", fix))
