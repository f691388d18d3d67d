"""Builds the library that answers as NVML, from its own C files and NVIDIA's header."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.substrate.gpu.models import SimulationError

SOURCES = Path(__file__).parent / "library"
HEADER_PIN = Path(__file__).parent / "header.txt"
INSTALLED_HEADERS = (Path("/usr/include/nvml.h"), Path("/usr/local/cuda/include/nvml.h"))
FLAGS = ("-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wl,--as-needed")
NOT_SUPPORTED = 3
_DECLARED = re.compile(r"^nvmlReturn_t DECLDIR (nvml\w+)\(", re.MULTILINE)
_DEFINED = re.compile(
    r"^(?:nvmlReturn_t |[A-Z_]+\()(nvml\w+)[(,]", re.MULTILINE
)  # function, or macro that makes one


def cache() -> Path:
    """Return the directory outside the tree that keeps what was built."""
    base = os.environ.get("BEDPLATE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return (Path(base) if base else Path(home) / "bedplate") / "gpu"


def header() -> Path:
    """Return NVIDIA's nvml.h: the installed one, or the one of the pinned wheel (fetched once)."""
    for path in (*(Path(p) / "nvidia/nvml_dev/include/nvml.h" for p in sys.path), *INSTALLED_HEADERS):
        if path.is_file():
            return path
    digest = hashlib.sha256(HEADER_PIN.read_bytes()).hexdigest()[:12]
    kept = cache() / f"nvml-{digest}.h"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".header-") as work:
            _run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
                + ["--only-binary=:all:", "--dest", work, "--requirement", str(HEADER_PIN)],
                "install Debian's libnvidia-ml-dev, which has the header too",
            )
            (wheel,) = Path(work).glob("*.whl")
            made = Path(work) / "nvml.h"
            with zipfile.ZipFile(wheel) as archive:
                made.write_bytes(archive.read("nvidia/nvml_dev/include/nvml.h"))
            made.rename(kept)
    return kept


def stubs(declarations: str, sources: list[str]) -> str:
    """Return C that answers NOT_SUPPORTED for every declared function that no source defines.

    The stubs take no notice of their arguments, so they need no prototype (and no header).
    """
    defined = {name for source in sources for name in _DEFINED.findall(source)}
    missing = sorted(set(_DECLARED.findall(declarations)) - defined)
    lines = [f"int {name}(void);\nint {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in missing]
    return "/* Generated from nvml.h: functions that no simulated card supports. */\n" + "".join(lines)


def build() -> Path:
    """Return the library, compiled once for these sources and this header.

    Raises `SimulationError` with the compiler's last lines when it doesn't compile.
    """
    nvml = header()
    sources = sorted(SOURCES.glob("*.c"))
    digest = hashlib.sha256(repr(FLAGS).encode())
    for path in (nvml, Path(__file__), *sorted(SOURCES.glob("*.[ch]"))):
        digest.update(path.read_bytes())
    kept = cache() / f"libnvidia-ml-{digest.hexdigest()[:16]}.so"
    if kept.is_file():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".library-") as work:
        folder = Path(work)
        (folder / "nvml.h").write_bytes(nvml.read_bytes())
        texts = [path.read_text(encoding="utf-8") for path in sources]
        generated = folder / "stubs.c"
        generated.write_text(stubs(nvml.read_text(encoding="utf-8"), texts), encoding="utf-8")
        made = folder / "library.so"
        _run(
            ["gcc", *FLAGS, "-Wl,-soname,libnvidia-ml.so.1", f"-I{folder}", "-o", str(made)]
            + [*map(str, sources), str(generated), "-ldl", "-lpthread"],
            "install gcc and libc6-dev; if they are, mend the source that the compiler names",
        )
        made.rename(kept)
    return kept


def _run(command: list[str], fix: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise SimulationError(
            f"the simulated NVML library can't be built — {command[0]} — "
            f"got: {' | '.join(said.strip().splitlines()[-4:])} / allowed: exit status 0 — {fix}"
        ) from error
