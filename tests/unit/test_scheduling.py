"""Tests that share hosts must stay on one worker, whatever pytest-xdist makes of marks."""

from __future__ import annotations

import pytest

from tests.conftest import FolderScheduling

ROLES = "tests/roles/test_scenarios.py::test_molecule[roles/{}/molecule/default]"
#: Has hosts of its own.
SITE = "tests/roles/test_scenarios.py::test_molecule[extensions/molecule/default]"


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("tests/site/test_site.py::test_a", "tests/site/test_site.py::test_b", True),
        ("tests/site/test_site.py::test_a", "tests/site/test_upgrade.py::test_b", True),
        (ROLES.format("gpu_verify"), ROLES.format("host_baseline"), True),
        (ROLES.format("gpu_verify"), SITE, False),
        ("tests/site/test_site.py::test_a", SITE, False),
        ("tests/unit/test_tools.py::test_a", "tests/unit/test_tools.py::test_b", False),
    ],
)
def test_folders_with_hosts_are_one_scope(first: str, second: str, *, together: bool) -> None:
    scheduling = FolderScheduling.__new__(FolderScheduling)
    assert (scheduling._split_scope(first) == scheduling._split_scope(second)) == together
