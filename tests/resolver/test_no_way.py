"""Facts that leave no cluster at all are the catalogue's fault, and are told as such."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.common.errors import CatalogueError
from bedplate.resolver import resolve
from tests.resolver.cases import one


def test_facts_that_leave_no_cluster() -> None:
    catalogue = load_catalogue()
    runtimes = {
        name: fact
        for name, fact in catalogue.container_runtimes.items()
        if fact.value.kubernetes_upto == "1.23"
    }
    assert runtimes, "nothing is left to be tried"
    with pytest.raises(CatalogueError, match="no cluster can be made with these facts"):
        resolve(one().site(), replace(catalogue, container_runtimes=runtimes), date(2026, 11, 21))
