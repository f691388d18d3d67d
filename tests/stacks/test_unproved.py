"""KAI, HAMi and Koordinator: what is rendered, against goldens and the makers' fields.

Goldens are written by `python -m tests.stacks.test_unproved`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pydantic import ValidationError

from bedplate.lock import write_lock
from bedplate.lock.file import GENERATED, BlockDumper
from bedplate.presets import load_presets
from bedplate.schedulers.unproved import RENDERED
from bedplate.schedulers.unproved_addon import UnprovedAddon
from bedplate.stackconfig import StackError
from bedplate.stackconfig import lock_of as checked_lock
from tests.stacks import published
from tests.stacks.locks import POOL, lock_of
from tests.stacks.test_components import run

if TYPE_CHECKING:
    from bedplate.lock import Lock

DATA = Path(__file__).parent / "data"
GPU = "nvidia.com/gpu"
VERSIONS = {"kai-scheduler": "0.14.2", "hami": "2.10.0", "koordinator": "1.7.0"}
TEAMS: dict[str, Any] = {
    "vision": {
        "namespaces": ["vision", "vision-ci"],
        "gpus": {POOL: {GPU: {"guaranteed": 10, "borrow": 20}}},
        "weight": 2.0,
        "priority": 5,
    },
    "speech": {"namespaces": ["speech"], "gpus": {POOL: {GPU: {"guaranteed": 30}}}},
}


def lock_with(addon: str) -> Lock:
    """Return the lock that the goldens are of: two hosts in one rack, shared by ten by HAMi."""
    hosts = {"gpu-a": {"rack": "r1", "leaf": "l1"}, "gpu-b": {"rack": "r1", "leaf": "l2"}}
    lock = lock_of(hosts, teams=TEAMS, preset=load_presets()["research"], addons=[addon])
    assert lock.cluster is not None
    (one,) = lock.cluster.addons
    addons = [one.model_copy(update={"version": VERSIONS[addon]})]
    pool = lock.pools[POOL]
    sharing = pool.sharing.model_copy(update={"mode": "hami", "replicas": 10})
    expects = pool.expects.model_copy(update={"count": 40}) if pool.expects else None
    pool = pool.model_copy(update={"sharing": sharing, "expects": expects})
    cluster = lock.cluster.model_copy(update={"addons": addons})
    return lock.model_copy(update={"cluster": cluster, "pools": {POOL: pool}})


def text(addon: str) -> str:
    """Return what is rendered of an add-on, as its golden has it."""
    found = RENDERED[addon](lock_with(addon))
    documents = [{"namespace": found.namespace, "values": dict(found.values)}, *found.objects]
    return GENERATED + yaml.dump_all(documents, Dumper=BlockDumper, sort_keys=False)


@pytest.mark.parametrize("addon", sorted(RENDERED))
def test_it_is_as_the_golden_has_it(addon: str) -> None:
    assert text(addon) == (DATA / f"{addon}.yml").read_text()


@pytest.mark.parametrize("addon", sorted(RENDERED))
def test_nothing_is_written_that_the_maker_does_not_publish(addon: str) -> None:
    found = RENDERED[addon](lock_with(addon))

    published.VALUES[addon].model_validate(found.values)
    for one in found.objects:
        published.SPECS[one["apiVersion"], one["kind"]].model_validate(one["spec"])


def test_a_field_of_another_name_is_found() -> None:
    found = RENDERED["kai-scheduler"](lock_with("kai-scheduler"))
    values = {**found.values, "scheduler": {"placement": "binpack"}}

    with pytest.raises(ValidationError):
        published.VALUES["kai-scheduler"].model_validate(values)


def test_hami_has_each_node_of_its_pools_with_its_shares() -> None:
    found = RENDERED["hami"](lock_with("hami"))
    config = json.loads(found.values["devicePlugin"]["nodeConfiguration"]["config"])

    nodes = [published.HamiNode.model_validate(one) for one in config["nodeconfig"]]
    assert [(one.name, one.devicesplitcount) for one in nodes] == [("gpu-a", 10), ("gpu-b", 10)]


def test_a_team_without_a_quota_of_gpus_has_none_with_kai() -> None:
    lock = lock_of(
        {}, teams={"cpu": {"namespaces": ["cpu"], "gpus": {POOL: {"other": {"guaranteed": 1}}}}}
    )
    _, _, queue = RENDERED["kai-scheduler"](lock).objects

    assert queue["spec"]["resources"]["gpu"] == {"quota": 0, "limit": 0, "overQuotaWeight": 1.0}


@pytest.mark.parametrize("addon", sorted(RENDERED))
def test_the_stack_refuses_what_the_plan_says_it_cannot_install(addon: str, tmp_path: Path) -> None:
    lock = lock_with(addon)
    assert lock.cluster is not None
    cluster = lock.cluster.model_copy(update={"not_yet": [f"addon {addon}"]})
    write_lock(tmp_path, lock.model_copy(update={"cluster": cluster}))

    with pytest.raises(StackError) as refused:
        checked_lock(tmp_path)

    assert str(refused.value) == (
        f"not installable by this version — cluster in {tmp_path}/.bedplate.lock.yml — got addon "
        f"{addon} — run: bedplate plan {tmp_path}, which names each setting to change"
    )


def test_without_the_chart_in_the_bill_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> Path:
        raise StackError("bill of materials lacks something")

    monkeypatch.setattr("bedplate.cluster.artifact.chart", lacking)

    def program() -> None:
        site, lock = Path(), lock_with("hami")
        UnprovedAddon("hami", {"site": site, "lock": lock, "addon": "hami"})

    with pytest.raises(StackError, match="bill of materials lacks"):
        run(program)


def test_the_chart_comes_before_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedplate.cluster.artifact.chart", lambda *_: Path("../chart.tgz"))

    def program() -> None:
        lock = lock_with("koordinator")
        UnprovedAddon("k", {"site": Path(), "lock": lock, "addon": "koordinator"})

    engine, _ = run(program)

    assert engine.one("kubernetes:helm.sh/v3:Release").inputs["chart"] == "../chart.tgz"
    made = engine.seen["kubernetes:scheduling.sigs.k8s.io/v1alpha1:ElasticQuota"]
    assert [one.depends_on for one in made] == [{"k-release"}] * 2


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for each in sorted(RENDERED):
        (DATA / f"{each}.yml").write_text(text(each))
