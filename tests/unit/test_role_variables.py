"""Variables of Bedplate's roles in a site: one function refuses them, for the plan and the play.

The plan's own words are in `broken_sites/variables_of_roles.txt`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.common import parts
from bedplate.site import role_variables
from bedplate.site.model import KEYS
from bedplate.site.places import Place
from tests.unit.test_site_broken import broken, plan

ROOT = Path(__file__).parents[2]
PLACE = Place("group_vars/all.yml", 3, 1)
PLAYBOOK = shutil.which("ansible-playbook", path=str(Path(sys.executable).parent))


def refused(name: str, value: object) -> str:
    """Return the message about one variable."""
    found = role_variables.problem(name, value, PLACE)
    assert found is not None
    assert str(found).startswith("group_vars/all.yml:3:1: ")
    return str(found).removeprefix("group_vars/all.yml:3:1: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvidia_driver_reboot_allowed", True),
        ("nvidia_driver_reboot_allowed", "yes"),
        ("nvidia_driver_reboot_allowed", "{{ inventory_hostname == 'gpu-a' }}"),
        ("nvidia_driver_module_options", {"nvidia": {"NVreg_X": "{{ x }}"}}),
        ("ansible_host", "192.0.2.1"),
        ("nvidia", 1),
        ("nvidia_driver", {}),
        ("nvidia_smi_path", "/x"),
        ("kubernetes_version", "1.36"),
        ("slurmdbd_storage", "x"),
        ("my_driver", 1),
    ],
)
def test_what_a_role_takes_and_what_is_of_other_roles_is_allowed(name: str, value: object) -> None:
    assert role_variables.problem(name, value, PLACE) is None


def test_the_longest_name_is_the_role() -> None:
    assert role_variables.role_of("rdma_device_plugin_x") == "rdma_device_plugin"
    assert role_variables.role_of("rdma_devices") == "rdma"


def test_a_variable_near_one_of_the_plan_names_its_setting() -> None:
    said = refused("nvidia_driver_versoin", "580.95.05")
    assert said.startswith("role nvidia_driver has no such variable — nvidia_driver_versoin — ")
    assert said.endswith("remove it; the setting for it is bedplate_driver or "
                         "bedplate_pins.nvidia_driver")  # fmt: skip


def test_a_variable_like_no_other_is_removed() -> None:
    assert refused("gpu_verify_grafana", True).endswith(" — remove it")


def test_every_variable_that_the_plan_decides_has_a_role_and_a_setting() -> None:
    """What the messages rely on in this tree: otherwise a refusal would be a traceback."""
    roles = {role_variables.role_of(name) for name in role_variables.decided()}
    assert roles
    assert roles <= set(parts.BY_ROLE)
    named = {
        word.split(".")[0]
        for part in parts.PARTS
        for word in part.setting.split()
        if word.startswith("bedplate_")
    }
    assert named <= set(KEYS)


def test_the_play_refuses_the_same_once_for_all_hosts(tmp_path: Path) -> None:
    """The command line's variables as well, which the plan does not see."""
    site = broken(tmp_path, {})
    assert plan(tmp_path).returncode == 0
    with (site / "group_vars" / "gpu_pools.yml").open("a") as file:
        file.write("nvidia_driver_reboot_alowed: true\n")
    refusal = plan(tmp_path).stderr.partition("\n")[0]
    assert PLAYBOOK is not None
    done = subprocess.run(
        [PLAYBOOK, "-i", str(site), "bedplate.gpu.validate", "-e", "slurm_wavs=2"],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert said.count("fatal: [") == 1
    assert refusal.removeprefix("site/group_vars/") in said
    assert "role slurm has no such variable — slurm_wavs — " in said
