"""The key of the stand-in's archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.substrate.standin.signing import Key

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Key]:
    """A key that signs what the vendors' keys sign elsewhere."""
    made = Key(tmp_path_factory.mktemp("gpg") / "home")
    yield made
    made.close()
