"""The cases about sharing a card. See `cases` for what they are."""

from __future__ import annotations

from tests.resolver.cases import Case, driver, one, share
from tests.resolver.cases_of_modes import CLAIMS, DIVIDED, ISOLATION

TWO_BOARDS = [{"model": "a100", "count": 4}, {"model": "b200", "count": 4}]
SEATS = {"share": 0.08}
CUT = {"profiles": {"3g.40gb": 1}}

SHARING = [
    Case(
        "mps-clients",
        "by-architecture",
        one("b200", sharing=share("mps", replicas=56)),
        one("b200", sharing=share("mps", replicas=57)),
    ),
    Case(
        "mps-clients",
        "by-the-plugin-volta",
        one("v100", sharing=share("mps", replicas=16)),
        one("v100", sharing=share("mps", replicas=17)),
        {
            "pools.pool_a.expects": {
                "resource": "nvidia.com/gpu",
                "count": 64,
                "also": {},
                "by": "cluster",
            }
        },
    ),
    Case(
        "mps-clients",
        "by-the-plugin-turing",
        one("t4", sharing=share("mps", replicas=40)),
        one("t4", sharing=share("mps", replicas=41)),
    ),
    Case(
        "mps-clients",
        "by-cuda-13",
        one(sharing=share("mps", replicas=60)),
        one(sharing=share("mps", replicas=61)),
    ),
    Case(
        "mps-clients",
        "by-cuda-12",
        one(sharing=share("mps", replicas=48), driver=driver("570")),
        one(sharing=share("mps", replicas=49), driver=driver("570")),
    ),
    Case(
        "mig-geometry",
        "of-the-board",
        one(sharing=share("mig", profile="1g.10gb")),
        one(sharing=share("mig", profile="1g.23gb")),
        {"pools.pool_a.expects.count": 28},
    ),
    Case(
        "mig-geometry",
        "of-every-board",
        one(TWO_BOARDS, sharing=share("mig", profile="3g.40gb")),
        one(TWO_BOARDS, sharing=share("mig", profile="1g.23gb")),
        {"pools.pool_a.expects.count": 20},
    ),
    Case(
        "mig-geometry",
        "of-the-newer-board",
        one("b200", sharing=share("mig", profile="1g.23gb")),
        one("b200", sharing=share("mig", profile="1g.10gb")),
        {"pools.pool_a.expects.count": 28},
    ),
    *(
        Case(
            "sharing-parameters",
            f"{mode}-{'-'.join(map(str, (*wrong, *wrong.values()))) or 'nothing'}",
            one(sharing=share(mode, **right)),
            one(sharing=share(mode, **wrong)),
        )
        for mode, right, wrong in (
            ("time-slicing", {"replicas": 4}, {}),
            ("mps", {"share": 0.25}, {"profile": "1g.10gb"}),
            ("time-slicing", {"share": 0.25}, {"share": 0.25, "replicas": 4}),
            ("mig", {"profile": "1g.10gb"}, {}),
            ("mig", {"profile": "1g.10gb"}, {"profile": "1g.10gb", "replicas": 7}),
            ("none", {}, {"replicas": 2}),
            ("mps", {"replicas": 2}, {"replicas": 1}),
            ("mps", {"share": 0.5}, {"share": 0.51}),
            ("mps", {"replicas": 4}, {"share": {"memory": "4Gi"}}),
            (
                "mig",
                {"profiles": {"3g.40gb": 1}},
                {"profiles": {"3g.40gb": 1}, "profile": "3g.40gb"},
            ),
            ("none", {}, CUT),
            ("dra", {}, {"replicas": 4}),
            ("dra", {"share": {"memory": "8Gi"}}, {"share": 0.25}),
            ("dra", {}, {"seats": 4}),
        )
    ),
    Case(
        "sharing-parameters",
        "one-share-of-time",
        one(sharing=share("time-slicing", replicas=2)),
        one(sharing=share("time-slicing", replicas=1)),
        {"pools.pool_a.sharing.memory": "counted", "pools.pool_a.sharing.compute": "counted"},
    ),
    *DIVIDED,
    *CLAIMS,
    *ISOLATION,
    Case(
        "share-divides",
        "a-share-of-memory",
        one("t4", sharing=share("dra", share={"memory": "16Gi"})),
        one("t4", sharing=share("dra", share={"memory": "16385Mi"})),
        {"pools.pool_a.sharing.share_memory": "16Gi"},
    ),
    Case(
        "share-divides",
        "instances-of-two-profiles",
        one(sharing=share("mig", profiles={"3g.40gb": 1, "1g.10gb": 4}, seats=20)),
        one(sharing=share("mig", profiles={"3g.40gb": 1, "1g.10gb": 4}, seats=21)),
    ),
    Case(
        "share-divides",
        "fifty-students-on-four-cards",
        one(sharing=share("time-slicing", seats=48, **SEATS)),
        one(sharing=share("time-slicing", seats=50, **SEATS)),
        {"pools.pool_a.sharing.replicas": 12, "pools.pool_a.expects.count": 48},
    ),
    Case(
        "share-divides",
        "mps",
        one(sharing=share("mps", replicas=2, seats=8)),
        one(sharing=share("mps", replicas=2, seats=9)),
    ),
    Case(
        "share-divides",
        "hami",
        one(sharing=share("hami", replicas=2, seats=8), shared={"schedulers": ["hami"]}),
        one(sharing=share("hami", replicas=2, seats=9), shared={"schedulers": ["hami"]}),
    ),
    Case(
        "share-divides",
        "whole-cards-of-two-hosts",
        one(hosts=2, sharing=share("none", seats=8)),
        one(hosts=2, sharing=share("none", seats=9)),
    ),
    Case(
        "share-divides",
        "instances",
        one(sharing=share("mig", profile="3g.40gb", seats=8)),
        one(sharing=share("mig", profile="3g.40gb", seats=9)),
    ),
    Case(
        "share-divides",
        "instances-of-two-boards",
        one(TWO_BOARDS, hosts=2, sharing=share("mig", profile="3g.40gb", seats=40)),
        one(TWO_BOARDS, hosts=2, sharing=share("mig", profile="3g.40gb", seats=41)),
        {"pools.pool_a.expects.count": 20},
    ),
    Case(
        "sharing-scheduler",
        "hami",
        one(sharing=share("hami", replicas=4), shared={"schedulers": ["hami"]}),
        one(sharing=share("hami", replicas=4)),
        {
            "pools.pool_a.expects": {
                "resource": "nvidia.com/gpu",
                "count": 16,
                "also": {},
                "by": "schedulers",
            }
        },
    ),
    Case(
        "resource-owner",
        "operator-beside-plugin",
        one(shared={"schedulers": ["hami"]}),
        one(shared={"operators": ["gpu-operator"]}),
        {"pools.pool_a.expects.by": "cluster"},
    ),
    Case(
        "resource-owner",
        "operator-beside-hami",
        one(sharing=share("hami", replicas=2), shared={"schedulers": ["hami"]}),
        one(
            sharing=share("hami", replicas=2),
            shared={"schedulers": ["hami"], "operators": ["gpu-operator"]},
        ),
    ),
    Case(
        "resource-owner",
        "another-resource",
        one(shared={"operators": ["network-operator"]}),
        one(shared={"operators": ["network-operator", "rdma-plugin"]}),
    ),
]
