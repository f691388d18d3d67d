"""What `bedplate mirror resolve` costs beside its own requests made bare and all at once.

The vendors are the stand-in in this process, by their own names and TLS. The lock is that of the
end-to-end tests' site. `python -m tests.benchmarks.resolving` prints the figures alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from bedplate.bill.command import resolved
from bedplate.bill.file import bill_path
from bedplate.bill.web import CONNECTIONS, Web
from bedplate.lock import load_lock
from tests.site.conftest import copy_site
from tests.substrate.images import signing
from tests.substrate.internet.fixtures import serving
from tests.unit.bill.vendors import put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.substrate.internet.faults import Request

RUNS = 5
GOAL = 2
GOAL_BYTES = 1_000_000


class DemosKey:
    """The key that the site names for packages, as the stand-in's content takes it."""

    public = signing.public_key()

    @staticmethod
    def clear_signed(text: bytes) -> bytes:
        """Return a text with its signature around it."""
        return signing.clear_signed(text.decode())


def bare(asked: Sequence[Request]) -> None:
    """Make requests that were recorded, all at once, and read what comes."""
    with requests.Session() as session, ThreadPoolExecutor(CONNECTIONS) as pool:
        session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))

        def one(request: Request) -> None:
            url = f"https://{request.host}{request.path}"
            session.request(request.method, url, allow_redirects=False, timeout=60)

        list(pool.map(one, asked))


def best(action: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs."""
    found = []
    for _ in range(RUNS):
        started = time.monotonic()
        action()
        found.append(time.monotonic() - started)
    return min(found)


def measure() -> tuple[dict[str, float], dict[str, float]]:
    """Resolve a site's bill again and again.

    Returns:
        Seconds and sizes by what was done, and ratios.
    """
    with tempfile.TemporaryDirectory(prefix="bedplate-resolving-") as folder:
        site = copy_site(Path(folder) / "site")
        plan = [str(Path(sys.executable).parent / "bedplate"), "plan", str(site)]
        subprocess.run(plan, check=True, stdout=subprocess.DEVNULL)
        lock = load_lock(site)
        with serving(Path(folder) / "internet") as served, served.names():
            put(served.tree, lock, DemosKey())  # type: ignore[arg-type] # the two parts it takes

            def resolve() -> None:
                bill_path(site).unlink(missing_ok=True)
                served.records.forget()
                web = Web()
                resolved(site, lock, web)
                web.close()

            ours = best(resolve)
            asked = served.records.requests()
            by_hand = best(lambda: bare(asked))
    received = sum(one.size for one in asked if one.method == "GET")
    seconds = {
        "mirror resolve": ours,
        "its requests, bare and at once": by_hand,
        "mirror resolve, requests": float(len(asked)),
        f"mirror resolve, bytes (goal {GOAL_BYTES})": float(received),
    }
    return seconds, {f"mirror resolve / bare requests (goal {GOAL})": ours / by_hand}


if __name__ == "__main__":
    for figures in measure():
        for label, value in figures.items():
            print(f"{label:52} {value:10.2f}")
