"""Write a topology as an archive: `python -m tests.substrate.gpu.topologies NAME ARCHIVE`."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.substrate.gpu import topologies

if __name__ == "__main__":
    name, archive = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        topologies.write(name, Path(folder))
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, arcname=".")
