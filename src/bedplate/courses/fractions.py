"""The variables by which frameworks keep to a part of a GPU's memory."""

from __future__ import annotations

from typing import Final

#: What keeps a framework from taking the whole GPU at its first use. Other processes can ignore it.
FRACTION: Final = {
    "jax": "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "paddle": "FLAGS_fraction_of_gpu_memory_to_use",
}
