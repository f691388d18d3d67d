"""A host as the collectors see it: files below a root, and commands.

Tests give another root and canned commands, so that collectors need no machine.
"""

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import proxy

#: Its presence says that kubeadm joined this host to a cluster, so it may carry workload.
KUBELET_CONFIG = "/etc/kubernetes/kubelet.conf"
#: How long a process that is ended is waited for.
_LAST_SECONDS = 5.0
#: nvidia-smi's exit status where the data that a card keeps about itself are damaged.
INFOROM = 14
#: A version as programs print it of themselves.
VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+(?:[-+.~][0-9A-Za-z.+~-]+)?)")
_INFOROM = re.compile(r"^WARNING: infoROM is corrupted.*$\n?", re.IGNORECASE | re.MULTILINE)
_REASON = re.compile(
    r"errors?\b|\bfail|\bcan ?not\b|\bcan't\b|\bcould ?n[o']t\b|\bunable\b|\bdenied\b|mismatch"
    r"|\bnot (found|permitted|supported|allowed)\b|\bno such\b|\binvalid\b|\brefused\b|\bfatal\b"
    r"|\btimed out\b|\bunknown\b|\bmissing\b|^E: ",
    re.IGNORECASE,
)
_HINT = re.compile(
    r"to see the stack trace|if you know what you are doing|^(see|try|use|run|for more)\b",
    re.IGNORECASE,
)


class Result(NamedTuple):
    """What a command answered.

    ``code`` is 127 when there is no such program, 126 when it cannot be started, 124 on time-out.
    """

    code: int
    out: str
    err: str

    #: What nvidia-smi warned of beside its answer, a line each.
    warned: Tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The line of what it said that says the reason, errors first.

        The last one that names a failure; hints at what to try, headings and versions come after.
        """
        lines = [line.strip() for line in (self.err.strip() or self.out.strip()).splitlines()]
        lines = [line for line in lines if line]
        telling = [line for line in lines if not _HINT.search(line) and not line.endswith(":")]
        reasons = [line for line in telling if _REASON.search(line)]
        chosen = reasons or telling or lines
        return chosen[-1] if chosen else f"exit status {self.code}, no output"


def _answered(answer: Result) -> Result:
    """What nvidia-smi answered, without its warnings of cards whose infoROM is damaged.

    It has read the cards then, and ends with a status of its own.
    """
    warned = tuple(line.strip() for line in _INFOROM.findall(answer.out + "\n" + answer.err))
    if answer.code != INFOROM and not warned:
        return answer
    code = 0 if answer.code == INFOROM else answer.code
    return Result(code, _INFOROM.sub("", answer.out), _INFOROM.sub("", answer.err), warned)


class Permissions(NamedTuple):
    """Who may do what with a file: its mode, and its user and group by number."""

    mode: int
    user: int
    group: int


Runner = Callable[[Sequence[str], float, Optional[Dict[str, str]]], Result]


def make_folders(path: str) -> None:
    """Have a folder and those above it, open to every user whatever the process's umask is."""
    before = os.umask(0o022)
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
    finally:
        os.umask(before)


def shown(text: str) -> str:
    """A text of `Host.content` as it can be printed: bytes that are no UTF-8 become a sign."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def run_command(
    argv: Sequence[str], timeout: float, environment: Optional[Dict[str, str]] = None
) -> Result:
    """Run ``argv`` without a shell, with untranslated messages, through the host's proxy if any.

    On time-out all that it has started ends with it, but for what has left its group.
    """
    env = dict(os.environ, LC_ALL="C", LANGUAGE="C")
    env.update(proxy.variables())
    env["PATH"] = "/usr/local/sbin:/usr/local/bin:" + env.get(
        "PATH", "/usr/sbin:/usr/bin:/sbin:/bin"
    )
    env.update(environment or {})
    if shutil.which(argv[0], path=env["PATH"]) is None:
        return Result(127, "", f"{argv[0]}: command not found")
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except ValueError:
        return Result(126, "", f"{argv[0]}: an argument with a NUL byte")
    except OSError as error:
        return Result(126, "", f"{argv[0]}: {error.strerror}")
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end_group(process)
        return Result(124, "", f"no answer from {argv[0]} within {timeout:.0f} s")
    except BaseException:
        end_group(process)
        raise
    return Result(
        process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
    )


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process that leads a session of its own, and all that it has started there."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # One that waits for a device in the kernel ends later, or never.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_SECONDS)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


class Host:
    """Files below ``root`` and commands through ``runner``."""

    def __init__(self, root: str = "/", runner: Runner = run_command) -> None:
        self.root = root
        self._runner = runner

    def path(self, name: str) -> str:
        """The real path of the host's ``name`` (absolute)."""
        return os.path.join(self.root, name.lstrip("/"))

    def exists(self, name: str) -> bool:
        """Whether the host has ``name``."""
        return os.path.exists(self.path(name))

    def read(self, name: str) -> Optional[str]:
        """The text of ``name`` to look at, or None where there is no such readable file."""
        found = self._bytes(name)
        if found is None:
            return None
        return found.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")

    def content(self, name: str) -> Optional[str]:
        """The text of ``name`` to write back: ends of lines, and bytes that are no UTF-8, are kept.

        None where there is no such readable file.
        """
        found = self._bytes(name)
        return None if found is None else found.decode("utf-8", "surrogateescape")

    def _bytes(self, name: str) -> Optional[bytes]:
        """What is in a file; None where there is none, or something else of that name."""
        try:
            # Without waiting: a pipe would keep the reader for ever.
            descriptor = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            with open(descriptor, "rb", closefd=False) as stream:
                return stream.read()
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def in_the_way(self, name: str) -> bool:
        """Whether something other than a file has the name, such as a folder or a pipe."""
        path = self.path(name)
        return os.path.exists(path) and not os.path.isfile(path)

    def list(self, name: str) -> List[str]:
        """The sorted names in folder ``name``; empty where there is no such folder."""
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return []

    def permissions(self, name: str) -> Optional[Permissions]:
        """Mode and owner of ``name``, or None where there is no such file."""
        try:
            found = os.stat(self.path(name))
        except OSError:
            return None
        return Permissions(found.st_mode & 0o7777, found.st_uid, found.st_gid)

    def write(
        self, name: str, text: str, mode: int = 0o644, like: Optional[Permissions] = None
    ) -> None:
        """Put ``text`` in place in one step: readers and power cuts see the old or the new.

        ``like`` says both mode and owner, as those of the file that is replaced. What `content` has
        read is written byte for byte.
        """
        path = self.path(name)
        make_folders(os.path.dirname(path))
        # Hidden, because kubelet and containerd read every other file of their folders.
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".bedplate-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text.encode("utf-8", "surrogateescape"))
                stream.flush()
                os.fsync(stream.fileno())
            if like is not None:
                os.chown(temporary, like.user, like.group)
            os.chmod(temporary, like.mode if like is not None else mode)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove the file ``name``."""
        os.unlink(self.path(name))

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 60,
        environment: Optional[Dict[str, str]] = None,
    ) -> Result:
        """Run a command on the host."""
        answer = self._runner(argv, timeout, environment)
        return _answered(answer) if argv[0] == "nvidia-smi" else answer

    @property
    def joined(self) -> bool:
        """Whether kubeadm has joined this host to a cluster."""
        return self.exists(KUBELET_CONFIG)
