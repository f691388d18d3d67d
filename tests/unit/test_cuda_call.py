"""The program that copies memory to GPUs, against a library that answers as CUDA's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "src/bedplate/portable/cuda_call.py"
#: Two devices of plain memory. FAULT in the environment names what goes wrong.
LIBRARY = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static int fault(const char *name) {
    const char *asked = getenv("FAULT");
    return asked && strcmp(asked, name) == 0;
}
static int current = -1;
int cuInit(unsigned flags) { return flags ? 1 : fault("cuInit") ? 100 : 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetUuid(unsigned char *name, int device) {
    memset(name, 0, 16);
    name[15] = (unsigned char)device;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (fault("taken")) return 46;
    *context = (void *)(intptr_t)(device + 1);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { current = -1; return device > 1; }
int cuCtxSetCurrent(void *context) { current = (int)(intptr_t)context - 1; return 0; }
int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
    *memory = (uint64_t)(intptr_t)malloc(bytes);
    return current < 0;
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    *memory = malloc(bytes);
    return flags != 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    memcpy((void *)(intptr_t)to, from, bytes);
    if (fault("memory") && current == 1) ((char *)(intptr_t)to)[bytes - 1] ^= 1;
    return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    if (fault("hang")) abort();
    memcpy(to, (void *)(intptr_t)from, bytes);
    return 0;
}
int cuGetErrorName(int code, const char **name) {
    *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 46 ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
                                                              : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library lies."""
    where = tmp_path_factory.mktemp("cuda")
    (where / "cuda.c").write_text(LIBRARY)
    argv = ["cc", "-shared", "-fPIC", "-o", where / "libcuda.so.1", where / "cuda.c"]
    subprocess.run(argv, check=True)
    return where


def run(folder: Path | None, fault: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program as the collector does: from its text."""
    environment = {**os.environ, "FAULT": fault, "LD_LIBRARY_PATH": str(folder or "")}
    argv = [sys.executable, "-c", PROGRAM.read_text()]
    return subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)


def found(folder: Path | None, fault: str = "") -> dict[str, Any]:
    """What it printed."""
    answer: dict[str, Any] = json.loads(run(folder, fault).stdout)
    return answer


def name(number: int) -> str:
    """The UUID of a device."""
    return f"GPU-00000000-0000-0000-0000-{number:012d}"


def test_every_device_gives_the_bytes_back(folder: Path) -> None:
    answer = found(folder)
    assert {gpu: one["same"] for gpu, one in answer.items()} == {name(0): True, name(1): True}
    assert all(one[way] > 0 for one in answer.values() for way in ("to_gpu", "from_gpu"))


def test_one_bit_that_is_wrong_is_seen(folder: Path) -> None:
    answer = found(folder, "memory")
    assert {gpu: one["same"] for gpu, one in answer.items()} == {name(0): True, name(1): False}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("cuInit", "cuInit: CUDA_ERROR_NO_DEVICE"),
        ("taken", "cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ],
)
def test_a_call_that_fails_is_named(folder: Path, fault: str, error: str) -> None:
    assert found(folder, fault) == {"error": error}


def test_a_driver_that_ends_the_process_leaves_no_answer(folder: Path) -> None:
    done = run(folder, "hang")
    assert (done.returncode, done.stdout) == (-6, "")


def test_without_the_library_it_says_so() -> None:
    assert "libcuda.so.1" in found(None)["error"]
