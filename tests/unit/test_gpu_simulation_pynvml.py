"""The simulated cards as pynvml shows them: NVIDIA's own bindings, in a process of their own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.substrate.gpu import library, models
from tests.unit import test_gpu_simulation as simulated
from tests.unit.test_gpu_simulation import LIBRARIES, VERSION, install_driver, modprobe

if TYPE_CHECKING:
    from collections.abc import Callable

host = simulated.host
PIN = Path(__file__).with_name("pynvml.txt")
#: What monitors ask of a card.
PROGRAM = """
import json, pynvml as nvml
try:
    nvml.nvmlInit()
    card = nvml.nvmlDeviceGetHandleByIndex(1)
    print(json.dumps({
        "driver": nvml.nvmlSystemGetDriverVersion(),
        "count": nvml.nvmlDeviceGetCount(),
        "name": nvml.nvmlDeviceGetName(card),
        "uuid": nvml.nvmlDeviceGetUUID(card),
        "memory": nvml.nvmlDeviceGetMemoryInfo(card).total,
        "capability": nvml.nvmlDeviceGetCudaComputeCapability(card),
        "device": nvml.nvmlDeviceGetPciInfo(card).pciDeviceId,
        "busy": nvml.nvmlDeviceGetUtilizationRates(card).gpu,
        "processes": len(nvml.nvmlDeviceGetComputeRunningProcesses(card)),
    }))
    nvml.nvmlShutdown()
except nvml.NVMLError as error:
    print(json.dumps({"error": str(error)}))
"""


@pytest.fixture(scope="module")
def bindings() -> Path:
    """The folder of the pinned bindings, fetched once into the cache."""
    digest = hashlib.sha256(PIN.read_bytes()).hexdigest()[:12]
    kept = library.cache() / f"pynvml-{digest}"
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".pynvml-") as work:
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            install += ["--require-hashes", "--only-binary=:all:", "--target", f"{work}/made"]
            subprocess.run([*install, "--requirement", str(PIN)], check=True)
            try:
                (Path(work) / "made").rename(kept)
            except OSError:  # another worker was first
                if not kept.is_dir():
                    raise
    return kept


def ask(root: Path, bindings: Path) -> dict[str, Any]:
    """Return what a program that uses pynvml learns on a host."""
    folder = root / LIBRARIES
    (found,) = folder.glob("libnvidia-ml.so.*.*")
    (folder / "libnvidia-ml.so.1").symlink_to(found.name)
    own = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(bindings)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("model", models.known_models())
def test_pynvml_shows_what_the_models_file_says(
    model: str, host: Callable[[str, int], Path], bindings: Path
) -> None:
    data = yaml.safe_load((models.MODELS / f"{model}.yml").read_text())
    root = host(model, 2)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    told = ask(root, bindings)
    vendor, device = (int(part, 16) for part in data["pci"].split(":"))
    assert told.pop("uuid").startswith("GPU-bed91a7e-")
    assert told == {
        "driver": VERSION,
        "count": 2,
        "name": data["name"],
        "memory": data["memory_mib"] * 2**20,
        "capability": [int(part) for part in data["compute_capability"].split(".")],
        "device": device << 16 | vendor,
        "busy": 0,
        "processes": 0,
    }


def test_pynvml_raises_what_a_broken_driver_answers(
    host: Callable[[str, int], Path], bindings: Path
) -> None:
    root = host("t4-16gb", 2)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    install_driver(root, "535.300.01")
    # Code 18, which nvidia-smi calls "Driver/library version mismatch", in the bindings' own words.
    assert ask(root, bindings) == {"error": "RM has detected an NVML/RM version mismatch."}
