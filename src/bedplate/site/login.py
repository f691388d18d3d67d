"""Prints who logs in to a site's own servers: `python -m bedplate.site.login SITE`.

One line of JSON, for a program whose working folder may be without the site's ansible.cfg: `user`
and `password`, or nothing at all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bedplate.common.errors import BedplateError
from bedplate.common.refusals import as_problems
from bedplate.site.load import load_site


def main() -> int:
    """Read the site that the command line names."""
    try:
        with as_problems():
            hosts = load_site(Path(sys.argv[1])).hosts.values()
    except BedplateError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    found = next(
        (one.wishes.bedplate_sources_login for one in hosts if one.wishes.bedplate_sources_login),
        None,
    )
    sys.stdout.write(json.dumps(found.model_dump() if found else None) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
