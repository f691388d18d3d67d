"""What Slurm's controller says of a node, and how a node is taken out of service."""

import re
import time
from typing import List, NamedTuple, Optional, Set

from ..host import Host, Result

#: Reasons that begin so are ours; nodes that somebody else drained stay drained.
OURS = "bedplate: "
#: Why the controller's own role drains a busy node: that role gives it back, with the change made.
WAITS = "waits for a change of its configuration"
#: States in which a node carries jobs.
BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
UNUSABLE = {
    "DOWN",
    "DRAIN",
    "ERROR",
    "FAIL",
    "FAILING",
    "FUTURE",
    "INVAL",
    "MAINT",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "REBOOT_ISSUED",
    "UNKNOWN",
}
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")
_REASON = re.compile(r"\sReason=(.*?)(?: \[[^\]]*\])?(?:\s+[A-Z][A-Za-z]*=|\s*$)")


class UnansweredError(Exception):
    """The controller did not answer; the text says what it, or the command, said."""


class State(NamedTuple):
    """A node as the controller sees it; ``reason`` says why it is out of service."""

    name: str
    flags: Set[str]
    gres: str
    reason: str

    @property
    def busy(self) -> bool:
        """Whether jobs run on it, or are ending."""
        return bool(self.flags & BUSY)

    @property
    def usable(self) -> bool:
        """Whether it takes jobs, now or once the present ones are done."""
        return not self.flags & UNUSABLE

    @property
    def returnable(self) -> bool:
        """Whether it is out of service because of a change that whoever asks has made."""
        ours = self.reason.startswith(OURS)
        return "DRAIN" in self.flags and ours and not self.waits

    @property
    def waits(self) -> bool:
        """Whether the controller's role has drained it for a change that is yet to be made."""
        return self.reason == OURS + WAITS

    @property
    def told(self) -> str:
        """The state in words, with the reason where there is one."""
        state = "+".join(sorted(self.flags)).lower() or "unknown"
        return f"{state} ({self.reason})" if self.reason else state


def parse(text: str) -> List[State]:
    """Nodes from ``scontrol --oneliner show nodes``."""
    found = []
    for line in text.splitlines():
        fields = dict(reversed(_FIELD.findall(line)))
        if "NodeName" not in fields:
            continue
        reason = _REASON.search(line)
        gres = re.sub(r"\([^)]*\)", "", fields.get("Gres", ""))
        found.append(
            State(
                fields["NodeName"],
                {word.strip("*~#!%$@^-") for word in fields.get("State", "").split("+")} - {""},
                "" if gres == "(null)" else gres,
                reason.group(1).strip() if reason else "",
            )
        )
    return found


def _asked(host: Host, *argv: str, timeout: float = 60) -> Result:
    return host.run(["scontrol", *argv], timeout=timeout)


def nodes(host: Host) -> List[State]:
    """All nodes. Raises UnansweredError."""
    answer = _asked(host, "--oneliner", "show", "nodes")
    if answer.code != 0:
        raise UnansweredError(answer.said)
    return parse(answer.out)


def node(host: Host, name: str) -> Optional[State]:
    """One node, or None where Slurm knows no such node. Raises UnansweredError."""
    answer = _asked(host, "--oneliner", "show", "node", name)
    if "not found" in answer.out + answer.err:
        return None
    if answer.code != 0:
        raise UnansweredError(answer.said)
    return next(iter(parse(answer.out)), None)


def drain(host: Host, name: str, reason: str) -> None:
    """Let the node take no more jobs. Raises UnansweredError."""
    told = ["state=drain", f"reason={OURS}{reason}"]
    answer = _asked(host, "update", f"nodename={name}", *told)
    if answer.code != 0:
        raise UnansweredError(answer.said)


def resume(host: Host, name: str) -> None:
    """Let the node take jobs again. Raises UnansweredError."""
    answer = _asked(host, "update", f"nodename={name}", "state=resume")
    if answer.code != 0:
        raise UnansweredError(answer.said)


def await_idle(host: Host, name: str, seconds: float) -> Optional[State]:
    """The node once no job runs on it, or when the time is over. Raises UnansweredError."""
    deadline = time.monotonic() + seconds
    while True:
        now = node(host, name)
        if now is None or not now.busy or time.monotonic() > deadline:
            return now
        time.sleep(min(5, max(0.2, deadline - time.monotonic())))


def await_response(host: Host, name: str, seconds: float) -> bool:
    """Whether a node that was down is heard of again within that time. Raises UnansweredError."""
    deadline = time.monotonic() + seconds
    while True:
        now = node(host, name)
        if now is None or "NOT_RESPONDING" not in now.flags:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(1)


def answers(host: Host, seconds: float) -> str:
    """Empty once the controller answers, else what is said of it when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        answer = _asked(host, "ping")
        if answer.code == 0 and " is UP" in answer.out:
            return ""
        if time.monotonic() > deadline:
            # A controller that is down is told in a box of stars.
            told = [line for line in answer.out.splitlines() if line.startswith("Slurmctld")]
            return told[0].strip() if told else answer.said
        time.sleep(0.5)
