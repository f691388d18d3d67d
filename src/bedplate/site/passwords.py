"""Prints passwords of a site's hosts, for the provider: `python -m bedplate.site.passwords`.

Its arguments are the site and the kind: `sudo`, or `login` for those of SSH. One line of JSON:
`hosts` by name, and `others`, which is what any other host would have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bedplate.common.errors import BedplateError
from bedplate.common.refusals import as_problems
from bedplate.site import ansible_adapter


def main() -> int:
    """Read the site that the command line names, and one kind of password."""
    try:
        with as_problems():
            hosts, others = ansible_adapter.passwords(Path(sys.argv[1]), sys.argv[2])
    except BedplateError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps({"hosts": hosts, "others": others}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
