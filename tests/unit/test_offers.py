"""What pods can ask for of a pool, as everything that counts GPUs reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from bedplate.lock.model import Pool
from bedplate.lock.offers import offered, offers

if TYPE_CHECKING:
    from typing import Any

    from bedplate.lock import Lock

PLAIN = {"os": "debian-12", "kind": "bare-metal"}
WHOLE = {"resource": "nvidia.com/gpu", "count": 4, "by": "cluster"}


def pool(expects: dict[str, Any] | None, **sharing: Any) -> Pool:
    return Pool.model_validate(
        {**PLAIN, "sharing": {"mode": "none", **sharing}, "expects": expects}
    )


@pytest.mark.parametrize(
    ("expects", "right"),
    [
        (WHOLE, {"nvidia.com/gpu": 4}),
        ({**WHOLE, "by": "slurm"}, {"nvidia.com/gpu": 4}),
        ({**WHOLE, "by": "dra"}, {"nvidia.com/gpu": 4}),
        (
            {**WHOLE, "count": 1, "also": {"nvidia.com/mig-1g.10gb": 18}},
            {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 18},
        ),
        ({**WHOLE, "resource": "amd.com/gpu", "count": 8}, {"amd.com/gpu": 8}),
        (None, {}),
    ],
)
def test_what_one_host_offers(expects: dict[str, Any] | None, right: dict[str, int]) -> None:
    """By resource; a hypervisor's pool, which no pod runs on, offers nothing."""
    assert offers(pool(expects)) == right


def test_what_a_pool_offers_is_what_its_hosts_offer_together() -> None:
    """Hosts of other pools and of none are not counted."""
    hosts = {f"n{i}": SimpleNamespace(pool=p) for i, p in enumerate(["a", "a", "b", None])}
    also = {"nvidia.com/mig-1g.10gb": 7}
    lock = SimpleNamespace(hosts=hosts, pools={"a": pool({**WHOLE, "also": also})})
    right = {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 14}
    assert offered(cast("Lock", lock), "a") == right
