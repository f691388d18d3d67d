"""Fill the mirror's root without serving it: ``python -m tests.substrate.images``."""

from __future__ import annotations

import argparse
import sys

from bedplate.common.errors import BedplateError
from bedplate.mirror.store import Store, cache
from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.images import fill, known_tools


def main() -> int:
    """Fill, print progress, and end with status 1 and one line on the user's own mistake."""
    parser = argparse.ArgumentParser(prog="python -m tests.substrate.images", description=__doc__)
    parser.add_argument(
        "--skip-missing", action="store_true", help="leave out what needs tools not built yet"
    )
    try:
        fill(
            Store(cache() / "mirror"), known_tools(), skip_missing=parser.parse_args().skip_missing
        )
    except (BedplateError, SubstrateError) as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
