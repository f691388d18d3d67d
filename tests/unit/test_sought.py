"""What newcomers look for among the settings: where it is, or that it is not there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from bedplate.site import sought
from bedplate.site.effective import RawHost
from bedplate.site.manual import fields
from bedplate.site.model import KEYS, Wishes
from bedplate.site.places import Places
from bedplate.site.reach import Reaches
from bedplate.site.wording import problems_of

HOST = {"os": "debian-12", "kind": "bare-metal"}
#: What is not in this version, and what is, by the word that its message has to have.
ABSENT = [
    "airflow",
    "alerts",
    "argo",
    "autoscaling",
    "ceph",
    "dashboard",
    "elk",
    "gpu_metrics",
    "grafana",
    "inference",
    "ingress",
    "kserve",
    "kai",
    "kai-scheduler",
    "koordinator",
    "kubeflow",
    "logging",
    "loki",
    "metallb",
    "metrics",
    "mlflow",
    "monitoring",
    "ollama",
    "prometheus",
    "ray",
    "serving",
    "storage_class",
    "triton",
    "velero",
    "vllm",
]
ELSEWHERE = {
    "addons": "bedplate_operators",
    "amd": "bedplate_accelerator",
    "backup": "bedplate.gpu.backup",
    "certificates": "bedplate_hub.certificate",
    "cilium": "bedplate_kubernetes",
    "cni": "bedplate_kubernetes",
    "docker": "bedplate_container_runtime",
    "etcd_backup": "bedplate.gpu.backup",
    "firewall": "host_baseline_firewall",
    "gpu_model": "bedplate_gpu",
    "gpu_operator": "bedplate_operators",
    "ha": "bedplate_kubernetes.endpoint",
    "infiniband": "bedplate_rdma",
    "jupyter": "bedplate_courses",
    "ldap": "bedplate_hub.sign_in",
    "mig": "bedplate_sharing",
    "nfs": "bedplate_storage",
    "nodes": "gpu_pools",
    "oidc": "bedplate_hub.sign_in",
    "pytorch": "bedplate_frameworks",
    "quota": "bedplate_teams",
    "registry": "bedplate_sources",
    "restore": "bedplate.gpu.backup",
    "slurm": "group slurm",
    "ssh_keys": "ansible_user",
    "upgrade": "plan --upgrade",
    "users": "bedplate_teams",
    "driver_branch": "bedplate_driver",
    "Sharing": "bedplate_sharing",
    "kubernets": "bedplate_kubernetes",
    "cours": "bedplate_courses",
    "vgpus": "bedplate_vgpu",
}


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_not_there_is_called_absent(name: str) -> None:
    absent, allowed, fix = sought.setting(f"bedplate_{name}", fields)
    assert re.search(r"^: no(t| .*) in this version", absent), (absent, allowed, fix)
    assert allowed is None
    assert fix.startswith("remove it")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_elsewhere_is_named(name: str) -> None:
    absent, allowed, _ = sought.setting(f"bedplate_{name}", fields)
    assert absent == ""
    assert ELSEWHERE[name] in (allowed or "")


@pytest.mark.parametrize(
    ("name", "never"),
    [
        ("dns", "timezone"),
        ("rancher", "jobs"),
        ("openshift", "jobs"),
        ("ldap", "write"),
        ("cilium", "write"),
        ("gpu_operator", "would"),
    ],
)
def test_a_wish_is_not_answered_with_another_thing(name: str, never: str) -> None:
    assert never not in " ".join(map(str, sought.setting(f"bedplate_{name}", fields)))


@pytest.mark.parametrize("setting", ["bedplate_storage", "bedplate_teams", "bedplate_proxy"])
def test_a_setting_of_another_form_gets_its_example(setting: str) -> None:
    raw = RawHost("n1", ("workers",), {setting: True}, {}, Reaches().of("n1", {}), Places({}))
    with pytest.raises(ValidationError) as error:
        Wishes.model_validate({"bedplate_host": HOST, setting: True})
    (found,) = (one for one in problems_of(error.value, raw) if one.key == setting)
    start, _, text = found.fix.partition(", or leave it out: ")[0].partition(": ")
    assert start == "write it like this"
    Wishes.model_validate({"bedplate_host": HOST, **yaml.safe_load(text)})


def test_what_means_nothing_gets_the_settings_and_no_nearest_name() -> None:
    _, allowed, fix = sought.setting("bedplate_frobnicate", fields)
    assert allowed is not None
    assert re.findall(r"(?:^|, )(\w+) \(", allowed) == list(KEYS)
    assert fix == "write one of these, or remove it"


@pytest.mark.parametrize(
    ("wishes", "fix"),
    [
        ({"bedplate_gpu": {"model": "t4-16gb", "memory": "8Gi"}}, "remove it"),
        ({"bedplate_teams": {"lab": {"time": "2h"}}}, "write per_request: {time: 2h}"),
        ({"bedplate_driver": {"cuda_version": "13"}}, "remove it"),
        ({"bedplate_kubernetes": {"network": "calico"}}, "remove it"),
        (
            {"bedplate_kubernetes": {"grafana": True}},
            "remove it, and install a monitoring stack yourself",
        ),
    ],
)
def test_below_a_setting_a_word_leads_to_no_other_thing(wishes: Any, fix: str) -> None:
    raw, error = refused(wishes)
    (found,) = (one for one in problems_of(error, raw) if one.what.startswith("unknown key"))
    assert found.fix == fix


def test_each_word_is_looked_up_as_it_is_written_and_leads_to_settings_that_exist() -> None:
    table = sought._table()["elsewhere"]
    words = [word for entry in table for word in entry["words"]]
    assert len(words) == len(set(words))
    assert [word for word in words if word != word.lower() or "-" in word] == []
    assert [word for word in words if f"bedplate_{word}" in KEYS] == []
    for entry in table:
        for said in (entry.get("where", ""), entry["fix"]):
            for key, rest in re.findall(r"(bedplate_[a-z_]+)(?:\.([a-z_]+))?", said):
                assert key in KEYS
                assert not rest or rest in fields((key, rest)), (key, rest)


#: What people write where a key has another form here.
WRITTEN = ["10GB", "10 gib", "512mb", "1.5T", "100KB", "2h", "half", 3, True, 0.5, "v1.36", "Kueue"]


def refused(wishes: Any) -> tuple[RawHost, ValidationError]:
    """Return a host of these settings, and why they are refused."""
    raw = RawHost("n1", ("workers",), wishes, {}, Reaches().of("n1", {}), Places({}))
    with pytest.raises(ValidationError) as error:
        Wishes.model_validate(wishes)
    return raw, error.value


def test_what_a_refusal_proposes_is_not_refused() -> None:
    """A key that belongs into a mapping next to it, with a value of any form."""
    seen = set()
    for setting in KEYS:
        known = fields((setting, ""))
        inner = {key for name in known for key in fields((setting, name, ""))}
        for key in inner - set(known):
            for value in WRITTEN:
                raw, error = refused({setting: {key: value}})
                for found in problems_of(error, raw):
                    text = found.fix.removeprefix("write ")
                    if found.key != f"{setting}.{key}" or "…" in text or ": {" not in text:
                        continue
                    ((holder, content),) = yaml.safe_load(f"{{{text}}}").items()
                    _, error = refused({setting: {holder: content}, "bedplate_host": 1})
                    wrong = [one["loc"] for one in error.errors() if key in one["loc"]]
                    assert wrong == [], found
                    seen.add((setting, holder))
    assert ("bedplate_sharing", "share") in seen
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (
            {"bedplate_sharing": {"memory": "10GB"}},
            (
                "bedplate_sharing.memory — allowed mode, replicas, share, seats, profile, "
                "profiles, isolation, parts — write share: {memory: 10G}"
            ),
        ),
        (
            {"bedplate_rdma": {"enabled": True}},
            (
                "bedplate_rdma.enabled — allowed stack, pods, operator — remove it, and add stack: "
                "inbox or doca"
            ),
        ),
    ],
)
def test_one_mistake_is_one_message_without_its_name_twice(wishes: Any, message: str) -> None:
    raw, error = refused({"bedplate_host": HOST, **wishes})
    (found,) = problems_of(error, raw)
    assert f"unknown key — {message}" in str(found)


def test_the_form_that_users_are_sent_to_is_whole() -> None:
    fix = sought.setting("bedplate_users", fields)[2].removeprefix("write ")
    words = {"NUMBER": "4", "POOL": "pool_a", "TEAM": "team", "USER": "ada", "GROUP": "students"}
    for word, meant in words.items():
        fix = fix.replace(word, meant)
    Wishes.model_validate({"bedplate_host": HOST, **yaml.safe_load(fix)})
