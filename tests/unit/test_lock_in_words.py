"""What a stale lock differs in, for a reader: names and versions, no path and no digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.common.errors import LockError
from bedplate.lock import Lock, in_words
from bedplate.resolver.plan import checked_lock
from tests.unit.test_site_broken import broken

if TYPE_CHECKING:
    from collections.abc import Callable

DEMO = Path(__file__).parents[2] / "inventories" / "demo" / ".bedplate.lock.yml"


def lock(change: Callable[[dict[str, Any]], object] = lambda _: None) -> Lock:
    """Return the demo's lock with a change."""
    content: dict[str, Any] = yaml.safe_load(DEMO.read_text(encoding="utf-8"))
    change(content)
    return Lock.model_validate(content)


def hosts(*names: str) -> Callable[[dict[str, Any]], object]:
    """Return a change that adds hosts like gpu-a."""
    return lambda content: content["hosts"].update(dict.fromkeys(names, content["hosts"]["gpu-a"]))


@pytest.mark.parametrize(
    ("change", "clauses"),
    [
        (hosts("gpu17.example", "gpu18.example"), ["gpu17.example and gpu18.example are new"]),
        (hosts("g1"), ["g1 is new"]),
        (hosts(*(f"g{n}" for n in range(1, 6))), ["g1 … g5 (5) are new"]),
        (lambda c: c["hosts"].pop("gpu-b"), ["gpu-b is gone"]),
        (
            lambda c: [host.update(port=2222) for host in c["hosts"].values()],
            ["cp1, gpu-a and gpu-b: port 22 → 2222"],
        ),
        (
            lambda c: c["pools"]["pool_train"]["nvidia_driver"].update(
                version="580.95.05", branch="580"
            ),
            ["pool_train: nvidia_driver 535.274.02 → 580.95.05"],
        ),
        (lambda c: c["pools"]["pool_train"]["gpu"][0].update(count=6), [
            "pool_train: gpu count 8 → 6"]),
        (lambda c: c["cluster"].pop("hub"), ["cluster: hub is gone"]),
        (
            lambda c: c["pools"]["pool_train"].update(not_yet=["cuda-on debian-12", "mps-on x"]),
            ["pool_train: the list of what this version cannot install is new"],
        ),
        (
            lambda c: c.update(catalogue="sha256:0", site_digest="sha256:1"),
            ["the catalogue changed, by another version of Bedplate or by SITE/facts"],
        ),
        (lambda c: c.update(site_digest="sha256:1"),
         ["settings changed that no version depends on"]),
        (lambda _: None, []),
    ],
)  # fmt: skip
def test_a_difference_is_a_clause(
    change: Callable[[dict[str, Any]], object], clauses: list[str]
) -> None:
    assert in_words(lock(), lock(change)) == clauses


def test_a_stale_lock_is_one_message(tmp_path: Path) -> None:
    first = "            gpu-a: {ansible_host: 10.213.0.21}\n"
    more = "".join(
        f"            gpu{number}.example: {{ansible_host: 10.213.0.{number}}}\n"
        for number in (17, 18)
    )
    site = broken(tmp_path, {"replace": {"hosts.yml": [first, first + more]}})
    (site / ".bedplate.lock.yml").write_bytes(DEMO.read_bytes())
    with pytest.raises(LockError) as caught:
        checked_lock(site)
    assert str(caught.value) == (
        f"lock is stale: gpu17.example and gpu18.example are new — {site}/.bedplate.lock.yml — "
        f"run: bedplate plan {site}"
    )
