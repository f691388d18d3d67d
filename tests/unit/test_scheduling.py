"""Tests that share hosts must stay on one worker, whatever pytest-xdist makes of marks."""

from __future__ import annotations

import pytest

from tests.conftest import FolderScheduling


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("tests/site/test_site.py::test_a", "tests/site/test_site.py::test_b", True),
        ("tests/roles/test_scenarios.py::test[a]", "tests/roles/test_scenarios.py::test[b]", True),
        ("tests/site/test_site.py::test_a", "tests/roles/test_scenarios.py::test[a]", False),
        ("tests/unit/test_tools.py::test_a", "tests/unit/test_tools.py::test_b", False),
    ],
)
def test_folders_with_hosts_are_one_scope(first: str, second: str, *, together: bool) -> None:
    scheduling = FolderScheduling.__new__(FolderScheduling)
    assert (scheduling._split_scope(first) == scheduling._split_scope(second)) == together
