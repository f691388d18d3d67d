"""What a job is refused for before anything of it is made, each with the whole message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bedplate.common.errors import BedplateError
from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs import JobsArgs, Request, Volume, pods
from bedplate.components.frameworks.jobs.time_limits import seconds
from bedplate.lock.model import Framework, Sharing
from tests.schedulers.locks import lock_of

TEAMS: dict[str, Any] = {
    "vision": {"gpus": {"pool_a": (4, 4)}, "namespaces": ["vision", "vision-night"]},
    "audio": {"gpus": {"pool_a": (4, None), "pool_b": (2, 0)}},
    "guests": {"gpus": {}},
}
BUILDS = [
    Framework(name="pytorch", version="2.11.0", variant="cu126", cuda="12.6"),
    Framework(name="pytorch-cpu", version="2.11.0", variant="cpu", cuda=None),
]


def known(*, mode: str = "none", addons: tuple[str, ...] = ("kueue",), **of_a: Any) -> JobsArgs:
    """Return two hosts of eight in pool_a, with PyTorch, and one in pool_b; more of pool_a."""
    found = lock_of({"pool_a": [{}, {}], "pool_b": [{}]}, TEAMS, addons=addons)
    changed = {"sharing": Sharing.model_validate({"mode": mode}), "frameworks": BUILDS}
    pool = found.pools["pool_a"].model_copy(update=changed)
    lock = found.model_copy(update={"pools": {**found.pools, "pool_a": pool}})
    site = jobs.jobs_args(lock, {one.identity: f"{one.name}@sha256:0" for one in BUILDS})
    return replace(site, pools={**site.pools, "pool_a": replace(site.pools["pool_a"], **of_a)})


GOOD = Request("train", "vision", "image@sha256:0", command=("x",), gpus=1)


def said(request: Request, **site: Any) -> list[str]:
    """Return all refusals of a request."""
    return [str(problem) for problem in jobs.problems(known(**site), request)]


def test_a_job_that_fits_is_not_refused() -> None:
    assert said(GOOD) == []
    assert said(replace(GOOD, gpus=4, pods=2, form="torchrun")) == []
    assert said(replace(GOOD, gpus=0, shares=8), mode="time-slicing") == []
    assert said(replace(GOOD, image="", framework="pytorch-2.11")) == []
    assert said(replace(GOOD, image="", framework="pytorch-cpu-2.11", gpus=0)) == []
    assert said(replace(GOOD, namespace="vision-night")) == []


def test_a_cluster_without_teams_is_told_of() -> None:
    (found, *_) = jobs.problems(JobsArgs({}, {}), GOOD)
    assert str(found) == (
        "unknown team — train.team — got vision / allowed none: no team — "
        "add it to bedplate_teams of the site"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"team": "vison"},
            "unknown team — train.team — got vison / allowed audio, guests, vision — write vision",
        ),
        (
            {"namespace": "audio"},
            (
                "namespace belongs to another team, or to no team — train.namespace — got audio / "
                "allowed vision, vision-night — choose one of them"
            ),
        ),
        (
            {"pool": "pool_c"},
            "unknown pool — train.pool — got pool_c / allowed pool_a, pool_b — write pool_b",
        ),
        (
            {"pool": "pool_b"},
            (
                "team has no quota of this pool — train.pool — got pool_b / allowed pool_a — "
                "choose a pool of the team's, or give it some of pool_b in bedplate_teams"
            ),
        ),
        (
            {"team": "guests"},
            (
                "pool is not clear — train.pool — got team guests without a quota / allowed a team "
                "with a quota of some pool — give the team GPUs in bedplate_teams of the site"
            ),
        ),
        (
            {"team": "audio"},
            "pool is not clear — train.pool — got no pool / allowed pool_a, pool_b — write pool",
        ),
        (
            {"gpus": 9},
            (
                "no node of pool_a has as much nvidia.com/gpu for one pod — train.gpus — got 9 / "
                "allowed at most 8 — ask for at most 8 in each pod, and for more pods"
            ),
        ),
        (
            {"gpus": 5, "pods": 3},
            (
                "pool_a has no room for all pods of the job at once — train.pods — got 3 pods "
                "with 5 of nvidia.com/gpu: 15 / allowed 2 nodes with 8: 2 pods — ask for at "
                "most 2 such pods"
            ),
        ),
        (
            {"gpus": 3, "pods": 3},
            (
                "job is larger than what team vision may ever use of pool_a — train.pods — got "
                "3 pods with 3 of nvidia.com/gpu: 9 / allowed at most 8 — ask for less, or "
                "raise the team's quota in bedplate_teams of the site"
            ),
        ),
        (
            {"gpus": 0, "shares": 1},
            (
                "pool_a has no shares: its GPUs are whole — train.shares — got 1 / allowed gpus — "
                "write gpus: 1, or choose a pool that shares its GPUs"
            ),
        ),
        (
            {"form": "JobSet"},
            (
                "form needs the add-on jobset — train.form — got JobSet / allowed Job, MPI, "
                "torchrun — choose another form, or add jobset to bedplate_schedulers of the site"
            ),
        ),
        (
            {"form": "VolcanoGang"},
            (
                "form needs the add-on volcano — train.form — got VolcanoGang / allowed Job, MPI, "
                "torchrun — choose another form, or add volcano to bedplate_schedulers of the site"
            ),
        ),
        (
            {"form": "Mpi"},
            (
                "unknown form of a job — train.form — got Mpi / allowed Job, JobSet, MPI, "
                "VolcanoGang, torchrun — choose one of them"
            ),
        ),
        (
            {"framework": "jax"},
            (
                "pool does not have this framework — train.framework — got jax / allowed "
                "pytorch-2.11.0 of pool_a, pytorch-cpu-2.11.0 of pool_a — choose one of them, or "
                "add it to bedplate_frameworks"
            ),
        ),
        (
            {"framework": "pytorch-2.1"},
            (
                "pool does not have this framework — train.framework — got pytorch-2.1 / allowed "
                "pytorch-2.11.0 of pool_a, pytorch-cpu-2.11.0 of pool_a — choose one of them, or "
                "add it to bedplate_frameworks"
            ),
        ),
        (
            {"framework": "pytorch-cpu", "image": ""},
            (
                "build for CPUs uses no GPU — train.gpus — got gpus: 1 with pytorch-cpu / allowed "
                "no gpus — remove it, or write framework: pytorch"
            ),
        ),
        (
            {"image": ""},
            (
                "nothing to run — train.image — got neither / allowed image or framework — name an "
                "image by its digest, or a framework of the pool"
            ),
        ),
        (
            {"form": "MPI", "command": ()},
            (
                "nothing to run — train.command — got no command / allowed a command — write what "
                "each process runs"
            ),
        ),
        (
            {"volumes": (Volume("a", "data"),)},
            (
                "not a place of a volume — train.data — got data / allowed an absolute path, "
                "and each once"
            ),
        ),
        ({"pods": 0}, "not a number of anything — train.pods — got 0 / allowed 1 or more"),
        (
            {"resource": "nvidia.com/mig-1g.10gb"},
            (
                "pool does not offer this resource — train.resource — got nvidia.com/mig-1g.10gb / "
                "allowed nvidia.com/gpu — write nvidia.com/gpu"
            ),
        ),
    ],
)
def test_each_wrong_combination_is_refused(change: dict[str, Any], message: str) -> None:
    assert said(replace(GOOD, **change)) == [message]


def test_whole_gpus_of_a_shared_pool_are_refused() -> None:
    assert said(replace(GOOD, gpus=1), mode="time-slicing") == [
        (
            "pool_a has no whole GPUs: it shares them by time-slicing — train.gpus — got 1 / "
            "allowed shares — write shares: 1, or choose a pool with mode none"
        )
    ]
    assert said(replace(GOOD, gpus=0, shares=2), mode="mps") == [
        (
            "a pod gets one share of MPS — train.shares — got 2 / allowed 1 — ask for one, or "
            "choose a pool with larger shares"
        )
    ]


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = said(replace(GOOD, name="Train", form="JobSet", gpus=9))
    assert [line.split(" — ")[1] for line in found] == ["Train.name", "Train.form", "Train.gpus"]


@pytest.mark.parametrize("name", ["Train", "1st", "a_b", "a-", "a" * 53])
def test_a_name_is_one_of_hosts(name: str) -> None:
    (found,) = said(replace(GOOD, name=name))
    assert found.startswith(f"not a name of pods — {name}.name — got {name} / ")


@pytest.mark.parametrize(
    ("text", "length"), [("90s", 90), ("30m", 1800), ("8h", 28800), ("2d", 172800)]
)
def test_time_limits(text: str, length: int) -> None:
    assert seconds("train", text) == length


@pytest.mark.parametrize("text", ["", "8", "0h", "1.5h", "8 h", "1w", "-1h"])
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    with pytest.raises(BedplateError) as refused:
        seconds("train", text)
    assert str(refused.value) == (
        f"not a time limit — train.time_limit — got {text} / allowed a number and s, m, h or d, as "
        "8h — write how long the job may run"
    )


def test_a_team_s_own_image_is_known_by_name_and_stays_in_its_pool() -> None:
    own = f"registry.example/sim@sha256:{'a' * 64}"
    found = known()
    pools = {**found.pools, "pool_b": replace(found.pools["pool_b"], images={"sim": own})}
    site = replace(found, pools=pools)
    asked = replace(GOOD, team="audio", image="sim", gpus=2)
    assert jobs.problems(site, asked) == []
    (job,) = jobs.objects(site, asked)
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == own
    assert pod["nodeSelector"] == {"bedplate.io/pool": "pool_b"}
    assert [str(one) for one in jobs.problems(site, replace(asked, pool="pool_a"))] == [
        (
            "image is for another pool — train.pool — got pool_a / allowed pool_b — write pool: "
            "pool_b, or choose another image"
        )
    ]
    assert [str(one) for one in jobs.problems(site, replace(GOOD, image="debian:12"))] == [
        (
            "unknown image — train.image — got debian:12 / allowed IMAGE@sha256:DIGEST, or one of "
            "the site: sim — name it by its digest, or add it to bedplate_images of the site"
        )
    ]


def test_queue_and_scheduler_are_those_of_the_site() -> None:
    """With Volcano alone, a job of several pods is Volcano's and in the team's queue."""
    asked = replace(GOOD, form="torchrun", pods=2)
    (job,) = (one for one in jobs.objects(known(), asked) if one["kind"] == "Job")
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "default"}
    assert "schedulerName" not in job["spec"]["template"]["spec"]
    alone = known(addons=("volcano",))
    (job,) = (one for one in jobs.objects(alone, asked) if one["kind"] == "Job")
    assert "labels" not in job["metadata"]
    assert job["metadata"]["annotations"] == {"scheduling.volcano.sh/group-min-member": "2"}
    pod = job["spec"]["template"]
    assert pod["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "vision"}
    assert pod["spec"]["schedulerName"] == "volcano"
    (job,) = jobs.objects(known(addons=()), GOOD)
    assert set(job["metadata"]) == {"name", "namespace"}


def test_pods_of_one_job_reach_each_other_by_rdma_where_the_pool_offers_it() -> None:
    """By a device and NCCL's settings: teams may have neither host paths nor capabilities."""
    plain, offering = known(), known(rdma=["rdma/hca"])

    def made(site: Any, **changes: Any) -> Any:
        request = replace(GOOD, pool="pool_a", **changes)
        assert jobs.problems(site, request) == []
        (container,) = pods.template(site, request, "train-0")["spec"]["containers"]
        return container

    gang = {"gpus": 4, "pods": 2, "form": "torchrun"}
    found = made(offering, **gang)
    assert found["resources"] == {"limits": {"nvidia.com/gpu": "4", "rdma/hca": "1"}}
    assert found["envFrom"] == [{"configMapRef": {"name": "nccl-pool-a"}}]
    assert "securityContext" not in found
    for one in (made(plain, **gang), made(offering), made(offering, gpus=0, pods=2)):
        assert "rdma/hca" not in str(one)
        assert "envFrom" not in one
