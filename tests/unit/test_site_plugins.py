"""Plugins by their full names, and those of a collection that the user brings, take part in a plan.

Ansible takes its settings when it is imported, and its collections once: each plan is a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.common.errors import SiteError
from bedplate.lock import load_lock
from bedplate.site import load_site
from tests.unit.test_site_broken import broken, plan

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock.model import Host

#: An inventory plugin as a cloud's is: it reads its own file, and names hosts, groups, variables.
INVENTORY = '''
DOCUMENTATION = """
name: rack
short_description: hosts of a rack
description: One GPU host for each slot.
options:
  plugin: {description: this plugin, required: true, choices: [lab.own.rack]}
  slots: {description: the slots, type: list, elements: int, required: true}
"""
from ansible.plugins.inventory import BaseInventoryPlugin


class InventoryModule(BaseInventoryPlugin):
    NAME = "lab.own.rack"

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        inventory.add_group("pool_train")
        for slot in self.get_option("slots"):
            name = inventory.add_host(f"slot{slot}", "pool_train")
            inventory.set_variable(name, "ansible_host", f"10.213.0.{100 + slot}")
'''
LOOKUP = """
DOCUMENTATION = "name: address\\nshort_description: an address\\ndescription: An address."
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **options):
        return [f"10.213.0.{term}" for term in terms]
"""
FILTER = """
class FilterModule:
    def filters(self):
        return {"next": lambda text: text[:-1] + str(int(text[-1]) + 1)}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The demo's site, beside a folder of collections with one of the user's own."""
    plugins = tmp_path / "collections" / "ansible_collections" / "lab" / "own" / "plugins"
    for kind, name, text in (
        ("inventory", "rack", INVENTORY),
        ("lookup", "address", LOOKUP),
        ("filter", "next", FILTER),
    ):
        (plugins / kind).mkdir(parents=True)
        (plugins / kind / f"{name}.py").write_text(text, encoding="utf-8")
    return broken(tmp_path, {})


def planned(folder: Path) -> dict[str, Host]:
    """Plan the site in *folder* and return the lock's hosts."""
    done = plan(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return load_lock(folder / "site").hosts


@pytest.mark.parametrize("plugin", ["constructed", "ansible.builtin.constructed"])
def test_groups_come_from_a_plugin_named_short_or_in_full(plugin: str, tmp_path: Path) -> None:
    moved = {"hosts.yml": ["gpu-b: {ansible_host: 10.213.0.22}", "{}"]}
    site = broken(tmp_path, {"replace": moved})
    (site / "zz-constructed.yml").write_text(
        f"plugin: {plugin}\nstrict: true\ngroups: {{pool_class: inventory_hostname == 'gpu-b'}}\n"
    )
    (site / "more.yml").write_text("all: {hosts: {gpu-b: {ansible_host: 10.213.0.22}}}\n")
    host = planned(tmp_path)["gpu-b"]
    assert (host.pool, host.address) == ("pool_class", "10.213.0.22")


@pytest.mark.parametrize("by", ["environment", "ansible.cfg"])
def test_a_collection_of_the_user_brings_hosts_and_values(
    by: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "environment":
        monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "collections"))
    else:
        (tmp_path / "ansible.cfg").write_text("[defaults]\ncollections_path = collections\n")
    (site / "rack.yml").write_text("plugin: lab.own.rack\nslots: [1, 2]\n")
    (site / "host_vars").mkdir()
    (site / "host_vars" / "gpu-b.yml").write_text(
        "ansible_host: \"{{ lookup('lab.own.address', 44) | lab.own.next }}\"\n"
    )
    (site / "hosts.yml").write_text(
        (site / "hosts.yml").read_text().replace("gpu-b: {ansible_host: 10.213.0.22}", "gpu-b: {}")
    )
    hosts = planned(tmp_path)
    assert hosts["gpu-b"].address == "10.213.0.45"
    assert {name: hosts[name].address for name in ("slot1", "slot2")} == {
        "slot1": "10.213.0.101",
        "slot2": "10.213.0.102",
    }
    assert hosts["slot1"].pool == "pool_train"


def test_a_lookup_by_its_full_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACK_ADDRESS", "10.213.0.23")
    value = "\"{{ lookup('ansible.builtin.env', 'RACK_ADDRESS') | ansible.builtin.trim }}\""
    broken(tmp_path, {"replace": {"hosts.yml": ["10.213.0.22", value]}})
    assert planned(tmp_path)["gpu-b"].address == "10.213.0.23"


def test_a_collection_that_is_not_there_is_named(tmp_path: Path) -> None:
    site = broken(tmp_path, {})
    (site / "rack.yml").write_text("plugin: lab.absent.rack\nslots: [1, 2]\n")
    with pytest.raises(SiteError) as caught:
        load_site(site)
    assert str(caught.value).replace(str(site), "site") == (
        "site/rack.yml:1:9: inventory plugin is not installed — plugin — got lab.absent.rack / "
        "allowed a plugin that `ansible-doc -t inventory -l` lists — correct it, or run: "
        "ansible-galaxy collection install lab.absent"
    )


def test_reading_again_in_one_process_is_no_fault(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Ansible warns when its collections are set up twice."""
    site = broken(tmp_path, {})
    assert load_site(site).digest == load_site(site).digest
    assert not [warning for warning in recwarn if "Collection" in str(warning.message)]
