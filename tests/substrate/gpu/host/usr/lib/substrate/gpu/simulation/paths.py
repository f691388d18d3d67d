"""Where the simulation keeps what, relative to a root that tests can replace."""

import contextlib
import fcntl
import os

ROOT = os.environ.get("SIMULATED_GPU_ROOT", "")


def path(name):
    """The real path of the host's ``name``."""
    return ROOT + name


#: Which cards are plugged: written from outside, survives reboots.
SLOTS = "/usr/lib/substrate/gpu/slots"
#: The libraries without a device table: libnvidia-ml.so, libnvidia-cfg.so.
LIBRARIES = "/usr/lib/substrate/gpu"
#: The kernel's state. Gone after a reboot, as a kernel's is.
STATE = "/run/substrate/gpu"
MODULES = STATE + "/modules"
#: XID errors, a line "MINOR XID" each, oldest first: written from outside.
FAULTS = STATE + "/faults"
#: MIG modes and instances, compute modes: written by the library.
SETTINGS = STATE + "/settings"
#: What tests plant, a line each: "process MINOR PID [MIB [PERCENT]]", "nvlink_down MINOR LINK".
PLANTED = STATE + "/planted"
#: What is mounted over the machine's own, inside this host only.
SHOWN = STATE + "/shown"
MACHINE = STATE + "/machine"


def read(name):
    """Text of a file of the host, or None."""
    try:
        with open(path(name), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


def write(name, text):
    """Write in place: a bind mount shows the file it was made of, not one renamed over it."""
    os.makedirs(os.path.dirname(path(name)), exist_ok=True)
    with open(path(name), "w", encoding="utf-8") as stream:
        stream.write(text)


def names(name):
    """Sorted names in a directory of the host; none where there is no such directory."""
    try:
        return sorted(os.listdir(path(name)))
    except OSError:
        return []


@contextlib.contextmanager
def locked():
    """One change of the kernel's state at a time: packages, kubelet and a role may all load."""
    os.makedirs(path(STATE), exist_ok=True)
    with open(path(STATE + "/lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
