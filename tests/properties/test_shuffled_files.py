"""One site written in two orders, planned by processes of different hash seeds: the same bytes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path

SOUND: dict[str, Any] = {
    "hosts.yml": {
        "all": {
            "children": {
                "control_plane": {
                    "hosts": {f"cp{n}": {"ansible_host": f"192.0.2.{n}"} for n in (1, 2, 3)}
                },
                "gpu_pools": {
                    "children": {
                        "pool_train": {"hosts": {f"train{n}": {} for n in range(1, 6)}},
                        "pool_class": {"hosts": {f"class{n}": {} for n in range(1, 4)}},
                        "pool_mixed": {"hosts": {"mixed1": {}}},
                    }
                },
                "slurm": {"children": {"pool_batch": {"hosts": {"batch1": {}, "batch2": {}}}}},
                "racks": {
                    "children": {
                        "rack_a": {"hosts": {"train1": {}, "class1": {}}},
                        "rack_b": {"hosts": {"train2": {}, "batch1": {}}},
                    }
                },
            }
        }
    },
    "group_vars/all/host.yml": {
        "bedplate_host": {"os": "debian-12"},
        "bedplate_driver": {"policy": "lts"},
    },
    "group_vars/all/cluster.yml": {
        "bedplate_kubernetes": {"version": "1.36", "endpoint": "k8s.example:6443"},
        "bedplate_schedulers": ["kueue"],
        "bedplate_sources": {"mode": "mirror", "url": "http://mirror.example:5080"},
    },
    "group_vars/pool_train.yml": {
        "bedplate_gpu": {"model": "h100-pcie-80gb", "count": 8},
        "bedplate_frameworks": ["pytorch", "jax"],
        "bedplate_sharing": {"mode": "mig", "profile": "1g.10gb"},
    },
    "group_vars/pool_class.yml": {
        "bedplate_gpu": {"model": "v100-sxm2-32gb", "count": 4},
        "bedplate_sharing": {"mode": "mps", "replicas": 8},
    },
    "group_vars/pool_mixed.yml": {
        "bedplate_gpu": [
            {"model": "a100-pcie-40gb", "count": 2},
            {"model": "t4-16gb", "count": 2},
        ],
        "bedplate_cuda": ["12.8", "12.9"],
    },
    "group_vars/pool_batch.yml": {"bedplate_gpu": {"model": "t4-16gb", "count": 4}},
}
#: Wishes that no driver, board or Kubernetes fulfils, in several files.
REFUSED: dict[str, Any] = SOUND | {
    "group_vars/pool_train.yml": {
        "bedplate_gpu": {"model": "v100-sxm2-32gb", "count": 8},
        "bedplate_driver": {"branch": "595"},
        "bedplate_cuda": ["13.0"],
    },
    "group_vars/pool_class.yml": SOUND["group_vars/pool_class.yml"]
    | {"bedplate_sharing": {"mode": "mps", "share": 0.08, "seats": 500}},
    "group_vars/pool_batch.yml": SOUND["group_vars/pool_batch.yml"]
    | {"bedplate_sharing": {"mode": "time-slicing", "replicas": 2}},
}


def shuffled(content: Any, chance: random.Random) -> Any:
    """Return mappings in another order at every depth."""
    if not isinstance(content, dict):
        return content
    keys = chance.sample(list(content), len(content))
    return {key: shuffled(content[key], chance) for key in keys}


def write(site: Path, files: dict[str, Any], chance: random.Random | None) -> None:
    """Write a site; with *chance*, files, hosts and groups come in another order.

    Wishes keep theirs: a refusal tells the line.
    """
    if chance is not None:
        names = chance.sample(list(files), len(files))
        files = {name: files[name] for name in names}
        files["hosts.yml"] = shuffled(files["hosts.yml"], chance)
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def planned(folder: Path, hash_seed: str) -> tuple[int, str, str, bytes | None]:
    """Plan the site of a folder in a process of its own: status, output, errors, lock."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bedplate.cli",
            "plan",
            "site",
            "--today",
            "2026-11-21",
            "--allow-planned",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    lock = folder / "site" / ".bedplate.lock.yml"
    return done.returncode, done.stdout, done.stderr, lock.read_bytes() if lock.exists() else None


@pytest.mark.parametrize(("files", "status"), [(SOUND, 0), (REFUSED, 3)], ids=["plan", "refusal"])
def test_order_and_hash_seed_do_not_matter(
    files: dict[str, Any], status: int, tmp_path: Path
) -> None:
    chance = random.Random(20261123)  # noqa: S311 - repeatable, not secret
    answers = []
    for number, order in enumerate((None, chance)):
        write(tmp_path / str(number) / "site", files, order)
        answers.append(planned(tmp_path / str(number), hash_seed=str(1 + number)))
    assert answers[0][0] == status, answers[0][2]
    assert answers[0] == answers[1]
    hosts = [(tmp_path / number / "site" / "hosts.yml").read_text() for number in ("0", "1")]
    assert hosts[0] != hosts[1], "nothing was shuffled"
