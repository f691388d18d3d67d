"""The host's CDI specification, compared with what its GPUs would give now."""

import re
from typing import List, NamedTuple, Optional

from .files import File, ensure_files
from .host import Host
from .message import problem

_DEVICE = re.compile(r"^\s*-?\s*name:\s*[\"']?([^\"'\s]+)", re.MULTILINE)


class CdiError(Exception):
    """The toolkit cannot describe this host's GPUs; the text says how to fix it."""


class Outcome(NamedTuple):
    """Whether the specification changes, its text before and after, and the devices it names."""

    changed: bool
    before: Optional[str]
    after: str
    devices: List[str]


def devices(text: str) -> List[str]:
    """The device names in a specification as nvidia-ctk writes it, sorted."""
    body = text.split("\ndevices:", 1)[-1]
    body = re.split(r"\n(?=[a-zA-Z])", body, maxsplit=1)[0]
    return sorted(set(_DEVICE.findall(body)))


def _canonical(text: str) -> str:
    """The text without regard to the order in which equal entries were found."""
    return "\n".join(sorted(line.strip().lstrip("- ") for line in text.splitlines()))


def refresh(host: Host, path: str, hook: str, check: bool = False) -> Outcome:
    """Write the specification of the GPUs that are there to ``path`` if it says another thing.

    ``hook`` is the absolute path of nvidia-cdi-hook that containers are to use.

    Raises:
        CdiError: nvidia-ctk is not there or cannot talk to the driver.
    """
    before = host.read(path)
    answer = host.run(
        ["nvidia-ctk", "--quiet", "cdi", "generate", "--nvidia-cdi-hook-path", hook], 120
    )
    if answer.code == 127 and check:
        return Outcome(before is None, before, "", [])
    if answer.code != 0 or not devices(answer.out):
        raise CdiError(
            problem(
                "the CDI specification cannot be generated",
                "nvidia-ctk cdi generate",
                answer.said,
                "a specification with at least one GPU",
                "See whether nvidia-smi -L lists the GPUs; if not, mend the driver first.",
            )
        )
    after = answer.out
    if before is not None and _canonical(before) == _canonical(after):
        return Outcome(False, before, before, devices(before))
    ensure_files(host, [File(path, after)], check=check, watched=False)
    return Outcome(True, before, after, devices(after))
