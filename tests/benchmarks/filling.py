"""What `bedplate mirror fill` takes beside a plain copy: curl of the same files, the same server.

The vendors are nginx on the loopback, over TLS, from files that the machine has in memory. Both
write to the same disk and sync; `fill` compares digests too. The pairs take turns, so that both see
the machine's pace. `python -m tests.benchmarks filling` prints the figures.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.bill import Bill, File, Known, Places
from bedplate.bill.web import Web
from bedplate.mirror.fill import Filling
from bedplate.mirror.store import Store
from tests.substrate.internet.authority import Authority
from tests.substrate.internet.faults import Records
from tests.substrate.internet.fixtures import Served
from tests.substrate.internet.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = 3
GOAL = 0.9
FILES, SIZE = 8, 64 << 20
HOST = "dl.k8s.io"
NGINX = """\
{user}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ }}
http {{
  access_log off;
  sendfile on;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/authority/server.crt;
    ssl_certificate_key {folder}/authority/server.key;
    root {folder}/tree/files/$host;
  }}
}}
"""


@contextmanager
def vendors(folder: Path) -> Iterator[Served]:
    """Serve a tree by the vendors' names with nginx, in a process of its own."""
    authority = Authority(folder / "authority")
    authority.context([HOST])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(user=user, folder=folder, port=port))
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    command = [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with subprocess.Popen(command) as process:
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            records = Records(folder / "records")
            url = f"http://127.0.0.1:{port}"
            yield Served(Tree(folder / "tree"), records, url, authority.certificate)
        finally:
            process.terminate()


def made(tree: Tree) -> Bill:
    """Put the files, and return the bill that lists them."""
    files = {}
    for number in range(FILES):
        content = random.Random(number).randbytes(SIZE)  # noqa: S311 - no secret
        url = f"https://{HOST}/files/{number}.bin"
        tree.put(url, content)
        sha256 = hashlib.sha256(content).hexdigest()
        known = Known(checksum_file=f"{url}.sha256")
        entry = File(version="1", url=url, sha256=sha256, size=SIZE, known=known)
        files[str(number)] = entry
    return Bill(files=files)


def copied(bill: Bill, served: Served, target: Path) -> float:
    """Copy all files with curl, one after the other, and return the seconds."""
    target.mkdir()
    words = ["curl", "--silent", "--fail", "--cacert", str(served.authority)]
    words += ["--connect-to", f"::{served.url.removeprefix('http://')}"]
    for name, file in bill.files.items():
        words += ["--output", str(target / name), file.url]
    started = time.monotonic()
    subprocess.run(words, check=True)
    subprocess.run(["sync", "--data", *sorted(target.iterdir())], check=True)
    return time.monotonic() - started


def filled(bill: Bill, served: Served, root: Path) -> float:
    """Fill a mirror with the same files and return the seconds."""
    web, store = Web(served.authority), Store(root)
    started = time.monotonic()
    with served.names(), store.filling():
        assert Filling(store, web, Places(None, {})).fill(bill) == FILES
    seconds = time.monotonic() - started
    web.close()
    return seconds


def measure() -> tuple[dict[str, float], dict[str, float]]:
    """Copy and fill by turns.

    Returns:
        Seconds by what was done (medians), and the ratio of the throughputs.
    """
    copies, fills = [], []
    with tempfile.TemporaryDirectory(prefix="bedplate-filling-") as name:
        folder = Path(name)
        with vendors(folder) as served:
            bill = made(served.tree)
            for run in range(RUNS + 1):
                for seconds, action in ((copies, copied), (fills, filled)):
                    target = folder / "target"
                    found = action(bill, served, target)
                    shutil.rmtree(target)
                    if run:  # the first of each does not count: the machine reads the files
                        seconds.append(found)
    copy, fill = statistics.median(copies), statistics.median(fills)
    size = f"{FILES * SIZE / 1e6:.0f} MB"
    seconds_of = {f"plain copy, {size}": copy, f"mirror fill, {size}": fill}
    ratios = sorted(one / other for one, other in zip(copies, fills, strict=True))
    return seconds_of, {
        f"mirror fill / plain copy, throughput (goal {GOAL})": statistics.median(ratios),
        "the same, the worst of the pairs": ratios[0],
    }
