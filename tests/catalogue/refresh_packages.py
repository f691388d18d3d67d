"""Read the distributions' package indexes again: `python -m tests.catalogue.refresh_packages`.

Debian's come from this machine's own sources. Ubuntu's need an archive and its keyring:
`--ubuntu URI --keyring FILE`; without them its excerpts stay as they are.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path

from tests.catalogue.packages import (
    DATA,
    DEBIAN,
    UBUNTU,
    debian_sources,
    pins,
    read_index,
    ubuntu_sources,
)


def main() -> None:
    """Write an excerpt for each system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ubuntu", metavar="URI")
    parser.add_argument("--keyring", metavar="FILE", type=Path)
    told = parser.parse_args()
    sources = {os: debian_sources(os) for os in DEBIAN}
    if told.ubuntu and told.keyring:
        sources |= {os: ubuntu_sources(os, told.ubuntu, told.keyring) for os in UBUNTU}
    DATA.mkdir(parents=True, exist_ok=True)
    for os, text in sources.items():
        index = read_index(text, [pin.name for pin in pins(os)])
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        data = {"refresh": f"python -m {__spec__.name}", "read": today, "packages": index}
        (DATA / f"{os}.json").write_text(json.dumps(data, indent=1) + "\n")
        print(f"{os}: {len(index)} packages")


if __name__ == "__main__":
    main()
