"""What the machine below must offer before hosts can run on it."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.hosts.image import cache
from tests.substrate.hosts.shell import run, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGES = Path(__file__).parents[1] / "packages.txt"
PROGRAMS = ("podman", "runc", "mmdebstrap", "ssh-keygen", "ip", "tar")
# A container can't load kernel modules that a cluster on it needs.
WATCHERS_PER_HOST = 20  # seen on a control plane with its pods, the hungriest: 19
#: Seconds that `up` waits for other hosts to go; none unless it is set.
PATIENCE = "BEDPLATE_SUBSTRATE_PATIENCE"
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
#: Enough for 50 hosts; the kernel's own 128 let two sets of hosts wait for each other.
WATCHERS = 1024
MODULES = ("overlay", "br_netfilter", "vxlan", "ip_vs", "nf_conntrack")


def check() -> None:
    """Raise `SubstrateError` if hosts can't run here."""
    if os.geteuid() != 0:
        raise SubstrateError(
            "hosts need root",
            "this user",
            f"uid {os.geteuid()}",
            "root: systemd containers with networks of their own",
            "run the command with sudo",
        )
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        packages = [x for x in PACKAGES.read_text().splitlines() if x and not x.startswith("#")]
        raise SubstrateError(
            "programs are missing",
            "PATH",
            f"no {', '.join(missing)}",
            "the packages of tests/substrate/packages.txt",
            f"run 'apt-get install --no-install-recommends {' '.join(packages)}'",
        )


def watchers_in_use(proc: Path = Path("/proc")) -> int:
    """Count the inotify instances of root's processes on this machine, those in hosts included."""
    used = 0
    for descriptor in proc.glob("[0-9]*/fd/*"):
        try:
            used += descriptor.readlink().name == "anon_inode:inotify"
        except OSError:
            continue  # the process has ended, or closed the file, while we looked
    return used


def check_watchers(new_hosts: int, limit: int, used: int) -> None:
    """Raise `SubstrateError` if the kernel's inotify instances would not last for more hosts.

    They are counted for root over all containers together; when they run out, kubelet and
    containerd on some node fail much later with "too many open files".
    """
    if new_hosts * WATCHERS_PER_HOST > limit - used:
        raise SubstrateError(
            "too few inotify instances for more hosts",
            "/proc/sys/fs/inotify/max_user_instances",
            f"{limit - used} of {limit} left",
            f"{new_hosts * WATCHERS_PER_HOST} for {new_hosts} hosts",
            "take other hosts down (make clean), or run"
            " 'sysctl fs.inotify.max_user_instances=1024'",
        )


def await_watchers(
    new_hosts: int,
    used: Callable[[], int] = watchers_in_use,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for inotify instances as long as the environment allows; tests that run at once do.

    Raises `SubstrateError` as `check_watchers` does, at once where there is no patience.
    """
    left = float(os.environ.get(PATIENCE, "0"))
    limit = int(INOTIFY_LIMIT.read_text())
    while True:
        try:
            return check_watchers(new_hosts, limit, used())
        except SubstrateError:
            if left <= 0:
                raise
        say(f"waiting for inotify instances for {new_hosts} hosts")
        pause(10)
        left -= 10


def load_modules() -> None:
    """Load the kernel modules that hosts use; a kernel without modules has them built in."""
    folder = Path("/lib/modules") / platform.release()
    if not folder.is_dir() or not shutil.which("modprobe"):
        return
    run(
        ["modprobe", "--all", *MODULES],
        fix="install this kernel's modules (a cloud image needs the linux-image without 'cloud')",
    )


def allow_watchers(limit: Path = INOTIFY_LIMIT) -> None:
    """Raise the kernel's limit of inotify instances until the next start, and say so.

    Where that is not allowed, hosts wait for each other, or are refused.
    """
    found = int(limit.read_text())
    if found < WATCHERS:
        with suppress(OSError):
            limit.write_text(f"{WATCHERS}\n")
            say(f"fs.inotify.max_user_instances is {WATCHERS} until the next start")


@contextmanager
def exclusive(network: str) -> Iterator[None]:
    """Hold a substrate's lock, so that two commands on it take turns."""
    folder = cache() / "substrate"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{network}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command on {network} to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
