"""`eval "$(python -m tests.substrate.pulumi --print-env SITE)"`: the environment for a shell."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tests.substrate.pulumi import environment


def main() -> None:
    """Print the variables as `export` lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print-env", metavar="SITE", type=Path, required=True)
    for key, value in environment(parser.parse_args().print_env).items():
        print(f"export {key}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
