"""What a role's decision or verification reads of a host: files, and answers of commands."""

from typing import Any, Dict, List

from . import os_release
from .host import Host


def answers(
    host: Host, commands: Dict[str, List[str]], files: Dict[str, str], exists: Dict[str, str]
) -> Dict[str, Any]:
    """Run named read-only commands, read named files, look for named paths; which system it is.

    A command that fails or is not there is an answer, not an error.
    """
    said = {name: host.run([str(word) for word in argv]) for name, argv in commands.items()}
    return {
        "changed": False,
        "commands": {
            name: {
                "code": one.code,
                "out": one.out.strip(),
                "err": one.err.strip(),
                "said": one.said,
            }
            for name, one in said.items()
        },
        "files": {name: host.read(path) for name, path in files.items()},
        "exists": {name: host.exists(path) for name, path in exists.items()},
        "system": os_release.name(host),
        "family": os_release.family(host),
    }
