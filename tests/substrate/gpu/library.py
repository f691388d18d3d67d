"""Builds the libraries that answer as NVIDIA's, from our C files and NVIDIA's header."""

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
_DECLARED = re.compile(r"^ *nvmlReturn_t +DECLDIR +(nvml\w+) *\(", re.MULTILINE)
#: A function, or a macro that makes one.
_DEFINED = re.compile(r"^(?:nvmlReturn_t |[A-Z_]+\()(nvml\w+)[(,]", re.MULTILINE)


def cache() -> Path:
    """Return the directory outside the tree that keeps what was built."""
    base = os.environ.get("BEDPLATE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return (Path(base) if base else Path(home) / "bedplate") / "gpu"


def header() -> Path:
    """Return NVIDIA's nvml.h: the installed one, or the one of the pinned wheel (fetched once)."""
    for path in (
        *(Path(p) / "nvidia/nvml_dev/include/nvml.h" for p in sys.path),
        *INSTALLED_HEADERS,
    ):
        if path.is_file():
            return path
    digest = hashlib.sha256(HEADER_PIN.read_bytes()).hexdigest()[:12]
    kept = cache() / f"nvml-{digest}.h"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".header-") as work:
            _run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--require-hashes",
                    "--only-binary=:all:",
                    "--dest",
                    work,
                    "--requirement",
                    str(HEADER_PIN),
                ],
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
    lines = [
        f"int {name}(void);\nint {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in missing
    ]
    return "/* Generated from nvml.h: functions that no simulated card supports. */\n" + "".join(
        lines
    )


def build() -> dict[str, Path]:
    """Return the libraries by name, compiled once for these sources and this header.

    ``libnvidia-ml`` answers as NVML, ``libnvidia-cfg`` is what the persistence daemon uses.

    Raises `SimulationError` with the compiler's last lines when they don't compile.
    """
    nvml = header()
    digest = hashlib.sha256()
    for path in (nvml, Path(__file__), *sorted(SOURCES.glob("*.[ch]"))):
        digest.update(path.read_bytes())
    kept = cache() / f"libraries-{digest.hexdigest()[:16]}"
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".libraries-") as work:
            made = Path(work) / "made"
            made.mkdir()
            _compile(nvml, Path(work), made)
            try:
                made.rename(kept)
            except OSError:  # somebody else has finished the same build meanwhile
                if not kept.is_dir():
                    raise
    return {name: kept / f"{name}.so" for name in ("libnvidia-ml", "libnvidia-cfg")}


def _compile(nvml: Path, work: Path, target: Path) -> None:
    (work / "nvml.h").write_bytes(nvml.read_bytes())
    table, configuration = SOURCES / "device_table.c", SOURCES / "configuration.c"
    sources = [path for path in sorted(SOURCES.glob("*.c")) if path != configuration]
    generated = work / "stubs.c"
    texts = [path.read_text(encoding="utf-8") for path in sources]
    generated.write_text(stubs(nvml.read_text(encoding="utf-8"), texts), encoding="utf-8")
    parts = {"libnvidia-ml": [*sources, generated], "libnvidia-cfg": [table, configuration]}
    for name, files in parts.items():
        _run(
            [
                "gcc",
                *FLAGS,
                f"-Wl,-soname,{name}.so.1",
                f"-I{work}",
                "-o",
                f"{target / name}.so",
                *map(str, files),
                "-ldl",
                "-lpthread",
            ],
            "install gcc and libc6-dev; if they are, mend the source that the compiler names",
        )


def _run(command: list[str], fix: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise SimulationError(
            f"the simulated NVML library can't be built — {command[0]} — "
            f"got {' | '.join(said.strip().splitlines()[-4:])} / allowed exit status 0 — {fix}"
        ) from error
