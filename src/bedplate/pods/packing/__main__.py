"""`python -m bedplate.pods.packing`: the extender, in the pod of its kube-scheduler."""

from __future__ import annotations

import argparse
import logging
import socket
import time

from bedplate.pods.api import Api, chosen, options
from bedplate.pods.packing.extender import Extender
from bedplate.pods.packing.lease import Leadership
from bedplate.pods.packing.server import serve


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m bedplate.pods.packing", description=__doc__)
    options(parser)
    parser.add_argument(
        "--lease", default="kube-system/bedplate-packing", help="kube-scheduler's NAMESPACE/NAME"
    )
    parser.add_argument(
        "--identity", default=socket.gethostname(), help="host name of the kube-scheduler"
    )
    parser.add_argument("--port", type=int, default=10270, help="for kube-scheduler, on loopback")
    parser.add_argument("--health-port", type=int, default=10271, help="health and metrics")
    parser.add_argument("--health-address", default="0.0.0.0")  # noqa: S104 - a pod's own address
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    leadership = Leadership(arguments.identity, time.monotonic)
    extender = Extender(Api(chosen(arguments)), leadership, arguments.lease)
    extender.start()
    serve(
        extender,
        ("127.0.0.1", arguments.port),
        (arguments.health_address, arguments.health_port),
    )


if __name__ == "__main__":
    main()
