"""What goes back with a driver, whoever asks for it: rollback.yml, or an upgrade that failed.

The playbooks run on this machine with stand-ins of the roles, as in `test_upgrade_budget`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.test_upgrade_budget import HERE, SICK, stand_ins, upgrade

if TYPE_CHECKING:
    from pathlib import Path

#: A module of the GPUs' driver goes with what was set in it, and with those that need it.
GOES_BACK = ["nvidia_driver rollback", "rdma configure", "gpu_sharing configure"]
SETTINGS = {
    "bedplate_sharing": {"mode": "time-slicing", "replicas": 4},
    "bedplate_rdma": {"stack": "inbox"},
}
#: A driver that came since the first time that this was asked.
RECORD = '''\
#!/usr/bin/python
"""Stand-in of the record: the driver of the second answer is not that of the first."""
import os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({{"state": {{"type": "str"}}}}, supports_check_mode=True)
second = os.path.exists("{seen}")
open("{seen}", "w").close()
module.exit_json(
    changed=False, unfinished=False, target={{"version": "570.1"}}, target_name="570.1",
    present_name="580.1" if second else "570.1",
)
'''


@pytest.fixture
def collections(tmp_path: Path) -> Path:
    """The collection with a stand-in of the driver's record as well."""
    folder = stand_ins(tmp_path / "collections")
    plugins = folder / "ansible_collections/bedplate/gpu/plugins"
    real = plugins.resolve()
    plugins.unlink()
    (plugins / "modules").mkdir(parents=True)
    for path in [*real.iterdir(), *(real / "modules").iterdir()]:
        if path.name != "modules":
            (plugins / path.relative_to(real)).symlink_to(path)
    record = plugins / "modules/nvidia_driver_record.py"
    record.unlink()
    record.write_text(RECORD.format(seen=tmp_path / "seen"))
    return folder


@pytest.mark.parametrize(
    ("playbook", "host"), [("bedplate.gpu.upgrade", SICK), ("bedplate.gpu.rollback", HERE)]
)
def test_the_same_goes_back_in_the_same_order(
    tmp_path: Path, collections: Path, playbook: str, host: dict[str, str]
) -> None:
    done = upgrade(tmp_path, collections, {"one": host}, playbook=playbook, settings=SETTINGS)
    asked = done.asked["one"]
    assert GOES_BACK[0] in asked, done.output
    at = asked.index(GOES_BACK[0])
    assert asked[at : at + 3] == GOES_BACK, done.output
    if playbook == "bedplate.gpu.upgrade":
        what = f"{SICK['tests_fault']} — driver 580.1 was rolled back; now: 570.1"
        assert done.reasons == {"one": what}
