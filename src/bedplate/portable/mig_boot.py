"""Has the GPUs in their layout after a boot: ``python3 -m portable.mig_boot CONFIGURATION``.

No driver keeps MIG instances over a reboot, some not even the mode. The role gpu_sharing lays this
with its neighbours on the host, because nothing else of Bedplate runs there.
"""

import json
import os
import sys
from typing import List

from . import mig
from .host import Host


def wish(text: str) -> mig.Wish:
    """The wish in the JSON that the role wrote, by the names that `mig.wish` has."""
    content = json.loads(text)
    return mig.wish(content["profiles"], content["compute_mode"], content.get("layout", ()))


def main(arguments: List[str]) -> int:
    """Apply the configuration; exit status 1 with the reason where that is not possible."""
    host = Host()
    try:
        outcome = mig.apply(host, wish(host.read(arguments[0]) or "{}"), os.uname().nodename)
    except (mig.MigError, ValueError, KeyError) as error:
        print(error, file=sys.stderr)
        return 1
    for name, state in outcome.after.items():
        print(f"{name}: {state}")
    if outcome.waiting:
        print(outcome.waiting, file=sys.stderr)
    return 1 if outcome.waiting else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
