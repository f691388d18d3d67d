"""Guests with shares of GPUs: who they are by the lock, and the evidence of their licences."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.portable.evidence import checks as evidence
from bedplate.portable.evidence import host as host_evidence
from bedplate.portable.evidence import licence
from bedplate.portable.evidence.area import Wishes
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[3]
SITE = "Run bedplate.gpu.site for this host again."
#: One share, as the guide shows it.
SHARE = """
    vGPU Software Licensed Product
        Product Name                      : NVIDIA Virtual Compute Server
        License Status                    : {}
"""
LENT = SHARE.format("Licensed (Expiry: 2026-11-23 10:41:16 GMT)")


def vgpu_profiles(lock: dict[str, Any], name: str) -> list[str]:
    """Call the filter, loaded from its file as Ansible does."""
    spec = importlib.util.spec_from_file_location("filters", ROOT / "plugins/filter/hypervisors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[str] = module.FilterModule().filters()["vgpu_profiles"](lock, name)
    return found


def test_the_lock_says_who_has_shares_of_cards() -> None:
    shares = {"vgpu": ["grid_t4-16c", "grid_t4-16c"], "cpus": 2}
    hosts: dict[str, Any] = {
        "hv1": {"guests": {"vm1": {"devices": ["0000:17:00.0"]}}},
        "hv2": {"guests": {"vm2": shares}},
        "vm1": {},
        "vm2": {"guests": {}},
        "gpu-a": {},
    }
    found = {name: vgpu_profiles({"hosts": hosts}, name) for name in hosts}
    assert found.pop("vm2") == ["grid_t4-16c", "grid_t4-16c"]
    assert set(map(tuple, found.values())) == {()}


def test_guests_with_shares_alone_are_given_a_licence(tmp_path: Path) -> None:
    """From where the driver would be in place, in check mode: the host is this machine."""
    guests = {"shares": {"vgpu": ["grid_t4-16c"]}, "cards": {"devices": ["0000:17:00.0"]}}
    lock = {"hosts": {"hv1": {"guests": guests}}}
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    content = {"all": {"hosts": dict.fromkeys(("shares", "cards", "plain"), here)}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(content))
    # Nobody has what comes after the driver.
    given = {
        "__bedplate_lock": lock,
        "__bedplate_pool": {"sharing": {"mode": "none"}},
        "__bedplate_reached": {"exists": {"layout": False}},
    }
    (tmp_path / "given.yml").write_text(yaml.safe_dump(given))
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [str(ROOT / "playbooks/vars/from_lock.yml")],
        "tasks": [{"import_tasks": str(ROOT / "playbooks/tasks/nvidia_stack.yml")}],
    }
    path = tmp_path / "play.yml"
    path.write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-playbook"),
            "--check",
            "--start-at-task=Licence of a guest's shares of GPUs",
            f"--extra-vars=@{tmp_path / 'given.yml'}",
            "--inventory",
            tmp_path / "hosts.yml",
            path,
        ],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    task = "Say which licence the guest asks for"
    said = done.stdout.split(task, 1)[1].split("TASK", 1)[0]
    assert re.findall(r"^(\w+): \[(\w+)\]", said, re.MULTILINE) == [("changed", "shares")]


class Guest:
    """A guest with two shares of cards, which are licensed."""

    def __init__(self, root: Path) -> None:
        self.host = Host(str(root), self._run)
        self.host.write(licence.CONFIGURATION, "# Managed by Bedplate\nFeatureType=1\n")
        self.host.write(f"{licence.TOKENS}/client.tok", "secret")
        self.service = Result(0, "active\n", "")
        self.query = Result(0, LENT + LENT, "")

    def _run(self, argv: Sequence[str], _timeout: float, _env: dict[str, str] | None) -> Result:
        return self.service if argv[0] == "systemctl" else self.query

    def checks(self) -> list[dict[str, Any]]:
        wishes = Wishes(licence={"vgpu": ["grid_t4-8c", "grid_t4-8c"], "licence_feature": 1})
        return host_evidence.collect(self.host, wishes, ["licence"])["checks"]


def test_a_licensed_guest_passes_and_shows_no_secret(tmp_path: Path) -> None:
    checks = Guest(tmp_path).checks()
    names = ("feature", "token", "service", "status")
    assert {c["id"]: c["result"] for c in checks} == {f"licence.{name}": "pass" for name in names}
    assert "secret" not in str(checks)


@pytest.mark.parametrize("wish", [{}, {"vgpu": [], "licence_feature": 1}])
def test_a_host_without_shares_is_skipped_with_a_reason(
    wish: dict[str, Any], tmp_path: Path
) -> None:
    (found,) = host_evidence.collect(Host(str(tmp_path)), Wishes(licence=wish), ["licence"])[
        "checks"
    ]
    assert (found["result"], found["reason"]) == (
        "skipped",
        "the host is no guest with shares of GPUs",
    )


def _other_feature(guest: Guest) -> None:
    guest.host.write(licence.CONFIGURATION, "#FeatureType=1\n FeatureType = 2\n")


def _two_features(guest: Guest) -> None:
    guest.host.write(licence.CONFIGURATION, "FeatureType=1\nFeatureType=2\n")


def _no_configuration(guest: Guest) -> None:
    guest.host.remove(licence.CONFIGURATION)


def _no_token(guest: Guest) -> None:
    guest.host.remove(f"{licence.TOKENS}/client.tok")


def _stopped(guest: Guest) -> None:
    guest.service = Result(3, "inactive\n", "")


def _one_unlicensed(guest: Guest) -> None:
    guest.query = Result(0, LENT + SHARE.format("Unlicensed (Unrestricted)"), "")


def _one_share(guest: Guest) -> None:
    guest.query = Result(0, LENT, "")


def _other_driver(guest: Guest) -> None:
    guest.query = Result(0, "Driver Version : 535.261.03\n", "")


def _no_driver(guest: Guest) -> None:
    guest.query = Result(127, "", "nvidia-smi: command not found\n")


STATUS = "every share of a GPU is licensed — vm1 [licence.status] — got "
BOTH = "allowed Licensed, Licensed"
GUESTS = "Have NVIDIA's driver for guests in the guest's image: it comes from its licensing portal."
LOG = "See 'journalctl -u nvidia-gridd.service' on the guest."


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            _other_feature,
            (
                "guest asks for the requested licence — vm1 [licence.feature] — got 2 / allowed 1"
                " — "
                f"{SITE}"
            ),
        ),
        (
            _two_features,
            (
                "guest asks for the requested licence — vm1 [licence.feature] — got 1, 2 / "
                f"allowed 1 — {SITE}"
            ),
        ),
        (
            _no_configuration,
            (
                "guest asks for the requested licence — vm1 [licence.feature] — got no"
                " FeatureType "
                f"in /etc/nvidia/gridd.conf / allowed 1 — {SITE}"
            ),
        ),
        (
            _no_token,
            (
                "guest has a token of its licence server — vm1 [licence.token] — got no .tok file "
                "in /etc/nvidia/ClientConfigToken / allowed a token — Set "
                "gpu_passthrough_licence_token and run bedplate.gpu.site, or "
                "have it in the guest's image."
            ),
        ),
        (
            _stopped,
            (
                "nvidia-gridd.service asks the licence server — vm1 [licence.service] — got "
                f"inactive / allowed active — {GUESTS}"
            ),
        ),
        (_one_unlicensed, f"{STATUS}Licensed, Unlicensed (Unrestricted) / {BOTH} — {LOG}"),
        (_one_share, f"{STATUS}Licensed / {BOTH} — {LOG}"),
        (_other_driver, f"{STATUS}nvidia-smi reports no licence / {BOTH} — {GUESTS}"),
        (_no_driver, f"{STATUS}nvidia-smi: command not found / {BOTH} — {GUESTS}"),
    ],
)
def test_each_fault_is_told(fault: Callable[[Guest], None], said: str, tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    fault(guest)
    assert evidence.failures(guest.checks(), "vm1") == [said]
