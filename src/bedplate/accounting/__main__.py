"""`python -m bedplate.accounting`: the recorder, in a pod."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

from bedplate.accounting import measured
from bedplate.accounting.recorder import Recorder
from bedplate.accounting.store import NAMESPACE, Store
from bedplate.pods.api import Api, chosen, options
from bedplate.pods.hub.node_use import PORT


def main() -> None:
    """Read the arguments and record."""
    parser = argparse.ArgumentParser(prog="python -m bedplate.accounting", description=__doc__)
    options(parser)
    parser.add_argument("--namespace", default=NAMESPACE, help="where the records are kept")
    parser.add_argument(
        "--units", type=Path, help="a JSON file: GPUs by unit, by pool and resource"
    )
    parser.add_argument("--use-port", type=int, default=PORT, help="of the readers of GPUs")
    parser.add_argument(
        "--use-every", type=float, default=measured.EVERY, help="seconds from look to look at GPUs"
    )
    parser.add_argument(
        "--idle", type=Path, help="a JSON file: seconds until idle shares end, by namespace"
    )
    parser.add_argument(
        "--per-user", type=Path, help="a JSON file: team and what one person has, by namespace"
    )
    parser.add_argument(
        "--hours", type=Path, help="a JSON file: whose limit and GPU-hours of a week, by queue"
    )
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    units = json.loads(given.units.read_text()) if given.units else {}
    api = Api(chosen(given), 30.0)
    Recorder(
        api,
        Store(api, given.namespace),
        units,
        use_port=given.use_port,
        use_every=given.use_every,
        idle=json.loads(given.idle.read_text()) if given.idle else {},
        per_user=json.loads(given.per_user.read_text()) if given.per_user else {},
        limits=json.loads(given.hours.read_text()) if given.hours else {},
    ).run()


if __name__ == "__main__":
    main()
