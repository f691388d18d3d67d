"""Takes away what Bedplate brought to a host, by its own records, and nothing of the user's."""

import os
import re
import shutil
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

from . import control_plane_upgrade, mig, os_release, owned
from .adopted import without_lines
from .archives import MARKER
from .driver import libraries as driver_libraries
from .driver import record as driver_record
from .driver import runfile
from .driver import state as driver
from .fetch import workplace
from .host import Host, Result
from .kernel import settings as kernel
from .packages import debian, dnf, holds, rpm
from .passthrough import apply as passthrough
from .passthrough import kernel as command_line
from .runtime import containerd, docker

STORE = "/opt/bedplate"
#: How the name of a folder begins that a run works in, and leaves where it is cut off.
LEFTOVER = ".bedplate-"
#: Where roles set links to programs of the store.
LINKS = ("/usr/local/bin", "/usr/local/sbin", "/opt/cni/bin")
UNITS = "/etc/systemd/system/"
_UNIT = re.compile(r"^/etc/systemd/system/[^/]+\.(?:service|path|timer|socket|mount)$")
#: The control group of a process of no container, in a session or a service.
_OUTSIDE = re.compile(
    r":/(?:user\.slice/|system\.slice/(?:[^/\n]+\.slice/)*(?P<unit>[^/\n]+\.service)$)",
    re.MULTILINE,
)
_REMOVED = re.compile(r"^(?:Remv|Purg) (?P<name>\S+)", re.MULTILINE)
APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600", "--allow-change-held-packages")
QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
#: The role that pins a kernel, and the names of what it locks where packages are rpm's.
KERNEL_ROLE = "host_baseline"
_KERNEL = re.compile(r"^kernel(?:-|$)")
#: Records and marks of ours; the folders only where they are empty then.
RECORDS = (
    driver_record.PATH,
    owned.RECORD,
    owned.RECORD + ".lock",
    holds.RECORD,
    kernel.STALE_INITRAMFS,
    passthrough.UNFINISHED,
    # All of a cluster that was on the host.
    control_plane_upgrade.SAVED,
    # Of the provider: keepalived was stopped for a control plane that leaves.
    "/var/lib/bedplate/endpoint-given-away",
    # A secret is not in the record of files, and goes by its name.
    "/etc/nvidia/ClientConfigToken/client_configuration_token_bedplate.tok",
)
#: The packages and installers of drivers, kept for the way back.
KEPT_DRIVERS = "/var/lib/bedplate/driver"
FOLDERS = (STORE, "/etc/bedplate", "/var/lib/bedplate", "/usr/local/libexec/bedplate")


class Outcome(NamedTuple):
    """What was taken away (or would be, in check mode), and what stays, with the reason."""

    changes: List[str]
    kept: List[str]


class RemovalError(Exception):
    """A command of the host refused; the text is what it said."""


def _run(host: Host, argv: Sequence[str], allowed: Sequence[int] = (0,)) -> str:
    return _ended(argv, host.run(argv, timeout=1800, environment=QUIET), allowed)


def _ended(argv: Sequence[str], answer: Result, allowed: Sequence[int] = (0,)) -> str:
    if answer.code not in allowed:
        raise RemovalError("{}: {}".format(" ".join(argv[:3]), answer.said))
    return answer.out


def files(host: Host, roles: Sequence[str], check: bool) -> Outcome:
    """Take away the recorded files of ``roles`` (all, where none is named).

    What somebody edited stays and is named, and what was there before comes back. Out of a user's
    file that the user has edited since goes only what is ours. Units are stopped and disabled
    first, and the initramfs forgets what /etc/modprobe.d no longer says.
    """
    outcome = Outcome([], [])
    mine = {
        path: entry
        for path, entry in sorted(owned.load(host).items())
        if not roles or entry["role"] in roles
    }
    left = {path: _left(host, path, entry) for path, entry in mine.items()}
    going = [path for path in mine if left[path].told]
    outcome.changes.extend(f"{path}: {left[path].told}" for path in going)
    outcome.kept.extend(f"{path}: {one.stays}" for path, one in left.items() if one.stays)
    units = [os.path.basename(path) for path in going if _UNIT.match(path)]
    if not check:
        for unit in units:
            _run(host, ["systemctl", "disable", "--now", unit], (0, 1, 5))
        if any(path.startswith(kernel.MODPROBE) for path in going):
            host.write(kernel.STALE_INITRAMFS, "")
        for path in going:
            # Those are told of, and go, with the records.
            owned.put_back(host, path, mine[path], left[path].text, staying=FOLDERS)
        # What stays is told once more at the end, and is nobody's with the record gone.
        owned.forget(host, [path for path in mine if not left[path].stays])
        if any(path.startswith(UNITS) for path in going):
            _run(host, ["systemctl", "daemon-reload"])
        if host.exists(kernel.STALE_INITRAMFS):
            refused = kernel.refresh_initramfs(host)
            if refused:
                raise RemovalError(refused)
            host.remove(kernel.STALE_INITRAMFS)
    return outcome


class _Left(NamedTuple):
    """What is left of a file: a text (None: no file), what is told of it, or why it stays."""

    text: Optional[str] = None
    told: str = ""
    stays: str = ""


def _left(host: Host, path: str, entry: Dict[str, Any]) -> _Left:
    text, before, added = host.content(path), entry["before"], entry.get("added")
    if text is None:
        return _Left()
    edited = owned.digest(text) != entry["sha256"]
    if not entry["watched"]:
        edited = edited or bool(entry.get("edited", True))
    if before is not None and not edited:
        return _Left(before, "as it was before")
    if added is not None:
        rest = _without(text, added)
        if rest is not None and rest != text:
            # Nothing of the user's is in a file without a word.
            return _Left(rest, "what was added is taken out") if rest.strip() else _GONE
        return _Left() if rest is not None else _STAYS
    return _STAYS if edited and (entry["watched"] or before is not None) else _GONE


_GONE = _Left(None, "removed")
_STAYS = _Left(stays="edited since")


def _without(text: str, added: Dict[str, Any]) -> Optional[str]:
    """A user's text without what is ours in it; None where that cannot be told apart."""
    if "import" in added:
        return containerd.without_import(text, added["import"])
    if "keys" in added:
        return docker.without_keys(text, added["keys"])
    return without_lines(text, added["lines"])


def boot_arguments(host: Host, check: bool) -> Outcome:
    """Take what gpu_passthrough added off the kernel's command line, from the next boot on.

    Huge pages that no guest uses any more would be kept from the host for good.
    """
    outcome = Outcome([], [])
    path, text = command_line.GRUB_DROP_IN, host.content(command_line.GRUB_DROP_IN)
    entry = owned.load(host).get(path)
    ours = text is not None and entry is not None and owned.digest(text) == entry["sha256"]
    owed = passthrough.BOOT_LOADER in (host.read(passthrough.UNFINISHED) or "").split()
    commands: List[List[str]] = []
    if ours or (owed and text is None and host.exists("/usr/sbin/update-grub")):
        outcome.changes.append(f"{path}: removed, and GRUB's menu written without it")
        commands.append(["/usr/sbin/update-grub"])
    elif host.exists(command_line.ADDED):
        loader, problems = command_line.boot_loader(host, [], os.uname().nodename)
        if problems:
            raise RemovalError("; ".join(problems))
        commands += loader.commands
        outcome.changes.extend(" ".join(argv) for argv in commands)
    if commands and not check:
        if ours:
            # A run that ends before GRUB's menu is written is made up for by the next.
            host.write(passthrough.UNFINISHED, passthrough.BOOT_LOADER + "\n")
            host.remove(path)
        for argv in commands:
            _run(host, argv)
        if host.exists(passthrough.UNFINISHED):
            host.remove(passthrough.UNFINISHED)
    return outcome


def archives(host: Host, names: Sequence[str], check: bool) -> Outcome:
    """Take away programs of the store (all, where none is named) and the links to them.

    Only folders that carry an archive's mark are ours, and what a run that was cut off has left.
    """
    outcome = Outcome([], [])
    stored = {
        name: _stored(host, f"{STORE}/{name}")
        for name in host.list(STORE)
        if not names or name in names
    }
    targets = tuple(f"{STORE}/{name}/" for name in stored)
    theirs = [path for one in stored.values() for path in one.theirs]
    for folder in LINKS:
        for name in host.list(folder):
            link = f"{folder}/{name}"
            real = host.path(link)
            if not targets or not os.path.islink(real):
                continue
            target = os.readlink(real)
            if target.startswith(targets) and not _within(target, theirs):
                outcome.changes.append(f"{link}: removed")
                if not check:
                    os.unlink(real)
        if not check and folder.startswith("/opt/"):
            owned.remove_if_empty(host, folder)
            owned.remove_if_empty(host, os.path.dirname(folder))
    for name, one in stored.items():
        folder = f"{STORE}/{name}"
        outcome.changes.extend(
            f"{path}: removed" for path in (one.ours if one.theirs else [folder])
        )
        outcome.kept.extend(
            f"{path}: not of an archive that Bedplate unpacked" for path in one.theirs
        )
        if not check:
            for path in one.ours:
                _take(host, path)
            if not one.theirs:
                os.rmdir(host.path(folder))
    return outcome


class _Stored(NamedTuple):
    """What is in a folder of the store: paths of ours, and of somebody else's."""

    ours: List[str]
    theirs: List[str]


def _stored(host: Host, folder: str) -> _Stored:
    if not _is_folder(host, folder):
        return _Stored([], [folder])
    found = _Stored([], [])
    for name in host.list(folder):
        path = f"{folder}/{name}"
        mine = name.startswith(LEFTOVER) or host.exists(f"{path}/{MARKER}")
        (found.ours if mine and _is_folder(host, path) else found.theirs).append(path)
    return found


def _is_folder(host: Host, path: str) -> bool:
    """Whether a folder is there itself, and no link to one: what that names is not ours."""
    real = host.path(path)
    return os.path.isdir(real) and not os.path.islink(real)


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _take(host: Host, path: str) -> None:
    """Take a folder of the store away.

    It loses its name first: half of one without its mark would be nobody's for the next run.
    """
    real = host.path(path)
    if os.path.basename(path).startswith(LEFTOVER):
        shutil.rmtree(real)
        return
    with workplace(real) as work:
        os.rename(real, os.path.join(work, "old"))


def driver_packages(host: Host, check: bool) -> Outcome:
    """Take away the driver's packages and what came along with them alone."""
    outcome = Outcome([], [])
    record = _recorded_drivers(host)
    _installers(host, record, outcome, check)
    names = record.names
    if not names:
        return outcome
    # dpkg may be on a host of Red Hat's family too.
    if os_release.family(host) == "RedHat":
        going, remove = _red_hat(host, names), ["dnf", "-y", "remove"]
    else:
        going, remove = _debian(host, names), [*APT, "purge"]
    outcome.changes.extend(f"package {name}: removed" for name in going)
    if going:
        _require_unheld(host)
    if going and not check:
        used = driver.unload(host)
        if used:
            raise RemovalError(f"the driver's module is in use ({used})")
        _run(host, [*remove, *going])
    _unlock(host, names, outcome, check)
    links = driver_libraries.change(host, "")
    outcome.changes.extend(f"{path}: removed" for path in links.remove)
    if not check:
        driver_libraries.apply(host, links)
    return outcome


def _require_unheld(host: Host) -> None:
    """Raise RemovalError where processes keep the module loaded that nothing of a reset ends.

    Asked first, before kubelet and runtime go. Containers may have ended when the driver's turn
    comes, and services of ours have: those that have not are found when the module is unloaded.
    """
    ours = [os.path.basename(path) for path in owned.load(host) if path.startswith(UNITS)]
    found = []
    for process in mig.module_users(host):
        group = host.read(f"/proc/{process.split()[0]}/cgroup") or ""
        outside = _OUTSIDE.search(group)
        if outside and outside.group("unit") not in ours:
            found.append(process)
    if found:
        raise RemovalError("processes hold the GPUs, end them: " + ", ".join(found))


def _recorded_drivers(host: Host) -> driver_record.Record:
    try:
        return driver_record.parse(host.read(driver_record.PATH) or "")
    except ValueError as error:
        raise RemovalError(f"{driver_record.PATH}: {error}") from error


def _installers(host: Host, record: driver_record.Record, outcome: Outcome, check: bool) -> None:
    """Have NVIDIA's installer take away what it brought at our call."""
    drivers = [*record.good, *filter(None, (record.changing, record.failed))]
    version = runfile.installed(host)
    if not version or all((one.source, one.version) != ("runfile", version) for one in drivers):
        return
    outcome.changes.append(f"driver {version} of NVIDIA's installer: removed")
    _require_unheld(host)
    if check:
        return
    refused = driver.unload(host)
    if refused:
        raise RemovalError(f"the driver's module is in use ({refused})")
    refused = runfile.uninstall(host)
    if refused:
        raise RemovalError(f"NVIDIA's installer: {refused}")


def _debian(host: Host, names: Sequence[str]) -> List[str]:
    """Installed packages among ``names``, and what nothing needs any more without them.

    What nothing needs already now is the user's, whatever apt would do with it.
    """
    known = _run(
        host,
        ["dpkg-query", "--show", "--showformat=${binary:Package} ${db:Status-Status}\n", *names],
        (0, 1),
    )
    states = [line.split() for line in known.splitlines()]
    there = sorted(fields[0] for fields in states if fields[1:] not in ([], ["not-installed"]))
    if not there:
        return []
    idle = _simulated(host, ["autoremove"])
    # dpkg names a library with its architecture, apt without.
    plain = {name.split(":")[0] for name in there}
    going = {name.split(":")[0] for name in _simulated(host, ["purge", *there])}
    chosen = {name.split(":")[0] for name in _run(host, ["apt-mark", "showmanual"]).split()}
    theirs = sorted((going - plain) & chosen)
    if theirs:
        raise RemovalError("packages of yours need the driver: " + ", ".join(theirs))
    return sorted((_simulated(host, ["--autoremove", "purge", *there]) | set(there)) - idle)


def _red_hat(host: Host, names: Sequence[str]) -> List[str]:
    """Installed packages among ``names``, and what nothing needs any more without them."""
    there = sorted(rpm.versions(rpm.query(host, names)))
    if not there:
        return []
    plan = host.run(["dnf", "--assumeno", "--color=never", "remove", *there], timeout=600)
    if dnf.NOTHING_DONE not in plan.out + plan.err:
        raise RemovalError("dnf remove: " + dnf.errors(plan))
    along = set(rpm.removals(plan.out, "Removing unused"))
    theirs = sorted(set(rpm.removals(plan.out)) - along - set(names))
    if theirs:
        raise RemovalError("packages of yours need the driver: " + ", ".join(theirs))
    return sorted({*there, *along})


def _unlock(host: Host, names: Sequence[str], outcome: Outcome, check: bool) -> None:
    """Take our locks on the driver's packages off dnf's list; apt forgets its holds by itself."""
    path = rpm.lock_list(host)
    before = host.content(path)
    if before is None:
        return
    after = rpm.without_own(before, names)
    if after != before:
        outcome.changes.append(f"{path}: locks on the driver's packages removed")
        if not check:
            host.write(path, after)


def locks(host: Host, roles: Sequence[str], check: bool) -> Outcome:
    """Let upgrades have what ``roles`` (all, where none is named) kept from them.

    The driver's packages are not looked at: they go, and their holds and locks with them. A hold of
    which nothing is recorded stays: it may be the user's. At the end it is named.
    """
    drivers = _recorded_drivers(host).names
    if os_release.family(host) == "RedHat":
        return _own_locks(host, roles, drivers, check)
    outcome = Outcome([], [])
    record = sorted(holds.load(host).items())
    ours = [name for name, role in record if not roles or role in roles]
    if roles and not ours:
        return outcome
    held = _run(host, ["apt-mark", "showhold"]).split()
    going = [name for name in ours if name in held and name not in drivers]
    outcome.changes.extend(f"package {name}: no longer held" for name in going)
    if going and not check:
        _ended(["apt-mark", "unhold"], debian.mark(host, "unhold", going))
    if not check:
        holds.forget(host, [name for name in ours if name not in drivers])
    if not roles:
        outcome.kept.extend(
            f"the hold on package {name}: not ours, by the records (apt-mark unhold {name})"
            for name in held
            if name not in ours and name not in drivers
        )
    return outcome


def _own_locks(host: Host, roles: Sequence[str], spared: Sequence[str], check: bool) -> Outcome:
    """Take our marked locks off dnf's list; of the kernel's alone the role is known.

    At the end the others are named: 'dnf versionlock delete' of one takes the marks of all away.
    """
    path = rpm.lock_list(host)
    before = host.content(path) or ""
    going = [
        name
        for name in rpm.own(before)
        if name not in spared and (not roles or (KERNEL_ROLE in roles and _KERNEL.match(name)))
    ]
    if going and not check:
        host.write(path, rpm.without_own(before, going))
    theirs = [] if roles else rpm.others(before)
    return Outcome(
        [f"package {name}: no longer locked" for name in going],
        [f"the lock {lock}: not ours, by {path} (dnf versionlock delete)" for lock in theirs],
    )


def _simulated(host: Host, what: Sequence[str]) -> Set[str]:
    return set(_REMOVED.findall(_run(host, [*APT, "--simulate", *what])))


def records(host: Host, check: bool) -> Outcome:
    """Take away Bedplate's own records, last of all."""
    outcome = Outcome([], [])
    for path in RECORDS:
        if host.exists(path):
            outcome.changes.append(f"{path}: removed")
            if not check:
                host.remove(path)
    if host.exists(KEPT_DRIVERS):
        outcome.changes.append(f"{KEPT_DRIVERS}: removed")
        if not check:
            shutil.rmtree(host.path(KEPT_DRIVERS))
    for folder in FOLDERS:
        if host.exists(folder):
            outcome.changes.append(f"{folder}: removed")
            if not check:
                owned.remove_if_empty(host, folder)
                if host.exists(folder):
                    outcome.changes.pop()
                    outcome.kept.append(f"{folder}: there are files in it that are not ours")
    return outcome
