#!/usr/bin/python
"""Debian packages at exact versions, in one transaction, held; a cut-off dpkg is mended first."""

from __future__ import annotations

DOCUMENTATION = r"""
module: debian_packages
short_description: Install packages in one transaction, and hold those of an exact version
description:
  - Finishes what an interrupted dpkg left undone, waiting for a package manager that still runs.
  - Fetches apt's index only when it does not know a requested version, or knows a file that is
    gone.
  - Installs, upgrades, downgrades and removes in one apt transaction, and refuses one that would
    remove anything beyond O(remove).
  - Holds the packages, so that unattended upgrades leave them alone.
extends_documentation_fragment: [bedplate.gpu.common, bedplate.gpu.common.lock_timeout]
options:
  packages:
    description: Version by package name. V(20.10.24*) takes every version that begins so.
    type: dict
    default: {}
  present:
    description: Packages that are there in any version. They are not held.
    type: list
    elements: str
    default: []
  along:
    description:
      - Patterns of packages that may be dependencies in whatever version O(packages) depend on,
        from a source whose packages otherwise stay behind what is installed.
    type: list
    elements: str
    default: []
  remove:
    description: Packages that go in the same transaction. Their configuration files stay.
    type: list
    elements: str
    default: []
  hold:
    description: Whether O(packages) are held.
    type: bool
    default: true
  owner:
    description:
      - The role's name. Where it is given, a file below C(/etc/apt/apt.conf.d) also keeps
        unattended upgrades away from the packages, and what is held is recorded under that name.
    type: str
    default: ""
  archives:
    description:
      - Folder that keeps the C(.deb) files, so that these versions can be installed again when no
        source offers them any more. Empty for apt's own cache.
    type: path
    default: ""
  preserve:
    description: Versions that are fetched into O(archives) before anything is changed.
    type: dict
    default: {}
  hold_if_exists:
    description: If this file exists, O(packages) that are there in another version are left alone
      and reported in RV(pending). Those that are absent are installed all the same.
    type: path
  refresh:
    description: Whether apt's index is fetched before anything is installed, whatever it knows.
    type: bool
    default: false
attributes:
  check_mode:
    description:
      - Says what would change, by what is installed. A change that would remove too much is refused
        where the host's index knows the requested versions; it is not fetched.
  diff_mode:
    description: Shows versions and holds before and after.
"""

EXAMPLES = r"""
- name: Change the driver's branch
  bedplate.gpu.debian_packages:
    packages: {nvidia-smi: 535.261.03-1~deb12u1}
    remove: [nvidia-tesla-470-smi]
"""

RETURN = r"""
installed:
  description: Packages that were installed or changed.
  returned: always
  type: list
  elements: str
removed:
  description: Packages that were removed.
  returned: always
  type: list
  elements: str
repaired:
  description: Whether an interrupted dpkg was finished.
  returned: always
  type: bool
pending:
  description: Packages that were left alone because of O(hold_if_exists), with both versions.
  returned: always
  type: list
  elements: str
  sample: ["containerd: 1.7.24~ds1-6, not 1.7.28*"]
not_preserved:
  description: Packages of O(preserve) whose versions no source offers any more.
  returned: always
  type: list
  elements: str
"""


from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.files import (
    Change,
    File,
    ensure_files,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages import (
    apt,
    debian,
    holds,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages.apt import (
    Wish,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.packages.transaction import (
    TransactionError,
    await_turn,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse

UNATTENDED = "/etc/apt/apt.conf.d/52bedplate-{}"


def mend(host: Host, wish: Wish) -> str:
    """Finish what was interrupted; empty when it is finished, or why it is not."""
    await_turn(lambda: debian.locked(host), wish.lock_timeout)
    if not debian.interrupted(host):  # the other one may have finished its work meanwhile
        return ""
    return apt.mend(host, wish)


def described(have: dict[str, debian.Package], names: list[str]) -> str:
    lines = []
    for name in names:
        package = have.get(name)
        state = "absent" if package is None else package.version + (" held" if package.held else "")
        lines.append(f"{name} {state}\n")
    return "".join(lines)


def change(host: Host, wish: Wish, interrupted: bool) -> tuple[list[str], list[str], list[str]]:
    """Make the transaction: what was installed, removed, and not preserved."""
    reason = mend(host, wish) if interrupted else ""
    if reason.startswith("DKMS: "):
        raise unfinished(reason)  # building it once more would fail once more
    differing = debian.differing(debian.installed(host, list(wish.packages)), wish.packages)
    going = debian.there(host, wish.remove)
    lacking: list[str] = []
    if differing or going:
        lacking = apt.preserve(host, wish)
        apt.run(host, wish._replace(remove=going), differing)
    if interrupted and debian.interrupted(host):
        # What waited for the exchange can be ended by now: triggers, and dpkg's own journal.
        reason = mend(host, wish) or reason
        if debian.interrupted(host):
            raise unfinished(reason or ", ".join(debian.unfinished(host)) or "dpkg's journal")
    return differing, going, lacking


def unfinished(reason: str) -> TransactionError:
    return TransactionError(
        "an interrupted package installation cannot be finished",
        reason,
        "'dpkg --configure -a' ends well",
        "Run it by hand, fix what it says, and run the play again.",
    )


def hold(host: Host, names: list[str], role: str, lock_timeout: int) -> None:
    holds.keep(host, names, role)
    answer = debian.mark(host, "hold", names, lock_timeout)
    if answer.code != 0:
        raise TransactionError(
            "packages could not be held", answer.said, "held", "Run 'apt-mark hold' by hand."
        )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "dict", "default": {}},
            "present": {"type": "list", "elements": "str", "default": []},
            "along": {"type": "list", "elements": "str", "default": []},
            "remove": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "bool", "default": True},
            "owner": {"type": "str", "default": ""},
            "archives": {"type": "path", "default": ""},
            "preserve": {"type": "dict", "default": {}},
            "hold_if_exists": {"type": "path"},
            "refresh": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    given, host = module.params, Host()
    wish = Wish(
        packages={**dict.fromkeys(given["present"], ""), **given["packages"]},
        remove=sorted(set(given["remove"]) - set(given["packages"])),
        archives=given["archives"],
        preserve=given["preserve"],
        work=module.tmpdir,
        lock_timeout=given["lock_timeout"],
        refresh=given["refresh"],
        along=given["along"],
    )
    names, everything = sorted(wish.packages), sorted({*wish.packages, *wish.remove})
    before = debian.installed(host, everything)
    interrupted = debian.interrupted(host)
    waits = bool(given["hold_if_exists"]) and host.exists(given["hold_if_exists"])
    waiting = [n for n in debian.differing(before, given["packages"]) if waits and n in before]
    pending = [f"{n}: {before[n].version}, not {wish.packages[n]}" for n in waiting]
    kept = {n: before[n].version + "*" for n in waiting}  # not exact: apt is not even asked
    wish = wish._replace(packages={**wish.packages, **kept})
    installed = debian.differing(before, wish.packages)
    removed, lacking = debian.there(host, wish.remove), []
    unattended = UNATTENDED.format(given["owner"].replace("_", "-")) if given["owner"] else ""
    old = host.read(unattended) or "" if unattended else ""
    mine = sorted(given["packages"])
    new = debian.unattended_blacklist("role " + given["owner"], mine) if unattended else ""
    try:
        if module.check_mode and (installed or removed):
            apt.foresee(host, wish._replace(remove=removed), installed)
        if not module.check_mode:
            if unattended:
                ensure_files(host, [File(unattended, new)])
            if interrupted or installed or removed:
                installed, removed, lacking = change(host, wish, interrupted)
        now = before if module.check_mode else debian.installed(host, names)
        to_hold = mine if given["hold"] else []
        unheld = [n for n in to_hold if not (n in now and now[n].held)]
        if unheld and not module.check_mode:
            hold(host, unheld, given["owner"], wish.lock_timeout)
    except TransactionError as error:
        refuse(module, *error.parts)
    after = {}
    for n in names:
        version = wish.packages[n]
        if n in now and debian.matches(now[n].version, version):
            version = now[n].version
        held = n in to_hold or (n in before and before[n].held)
        after[n] = debian.Package(version or "in the version that the sources have", held)
    module.exit_json(
        changed=bool(interrupted or installed or removed or unheld or new != old),
        repaired=interrupted,
        installed=installed,
        removed=removed,
        pending=pending,
        not_preserved=lacking,
        diff=[
            {"before": described(before, everything), "after": described(after, everything)},
            Change(unattended, old, new).diff,
        ],
    )


if __name__ == "__main__":
    main()
