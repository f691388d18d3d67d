"""What is read once for many hosts is what Ansible gives to each of them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.manager import VariableManager

from bedplate.common.errors import SiteError
from bedplate.resolver.plan import plan
from bedplate.site import ansible_adapter, load_site
from bedplate.site.reach import Reaches
from tests.unit.test_site_broken import broken

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "hosts.yml": """\
all:
  vars: {bedplate_a: all in hosts, bedplate_b: all in hosts, bedplate_yes: true}
  children:
    control_plane: {hosts: {cp1: {ansible_host: 192.0.2.1}}}
    gpu_pools:
      vars: {bedplate_b: gpu_pools in hosts, ansible_user: pools}
      children:
        pool_a:
          vars: {bedplate_c: pool_a in hosts, ansible_group_priority: 5}
          hosts:
            "a[1:3].example": {}
            a4: {ansible_host: "{{ inventory_hostname }}.example", bedplate_d: host in hosts}
        pool_b: {hosts: {b1: {ansible_port: 2222}, b2: {bedplate_e: {x: [1, "{{ rack }}"]}}}}
    rack_1: {hosts: {a4: {}, b2: {}}, vars: {rack: one, bedplate_c: rack_1 in hosts}}
""",
    "zone.yml": "zone: {hosts: {b1: {}, b2: {}}, vars: {bedplate_c: zone, rack: zone's}}\n",
    "group_vars/all/first.yml": """\
bedplate_a: all
bedplate_t: "{{ inventory_hostname }} {{ rack }}"
""",
    "group_vars/all/second.yml": "bedplate_b: all\nbedplate_n: [1, 2.50, {k: null}]\nrack: none\n",
    "group_vars/gpu_pools.yml": "bedplate_b: gpu_pools\nbedplate_yes: false\n",
    "group_vars/pool_a/own.yml": "bedplate_c: pool_a\nbedplate_same: \"{{ 'x' * 3 }}\"\n",
    "host_vars/a4.yml": "bedplate_c: a4\n",
    "host_vars/a1.example.yml": "bedplate_yes: true\nrack: its own\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site in which everything overrides something."""
    for name, text in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "site"


@pytest.mark.parametrize("precedence", ["default", "reversed"])
def test_variables_are_those_of_ansible(
    precedence: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All wishes and connection variables of all hosts, whatever precedence is configured."""
    from ansible import constants

    if precedence == "reversed":
        turned = list(reversed(constants.VARIABLE_PRECEDENCE))
        monkeypatch.setattr(constants, "VARIABLE_PRECEDENCE", turned)
    loader = DataLoader()
    loader.set_basedir(str(site))
    inventory = InventoryManager(loader=loader, sources=[str(site)])
    manager = VariableManager(loader=loader, inventory=inventory)
    compared, names = 0, Reaches().names
    raw = {host.name: host for host in ansible_adapter.read(site).hosts}
    assert raw.keys() == inventory.hosts.keys()
    for name, host in inventory.hosts.items():
        variables = manager.get_vars(host=host, include_hostvars=False)
        templar = Templar(loader=loader, variables=variables)
        wanted = {
            str(key): templar.template(value)
            for key, value in variables.items()
            if str(key).startswith("bedplate_") or key in names
        }
        assert {**raw[name].wishes, **raw[name].connection} == wanted, name
        compared += len(wanted)
    assert compared > 50


def test_hosts_that_are_alike_share_their_wishes(site: Path) -> None:
    (site / "group_vars" / "all" / "first.yml").write_text("bedplate_a: all\n")
    hosts = {host.name: host for host in ansible_adapter.read(site).hosts}
    assert hosts["a2.example"].wishes is hosts["a3.example"].wishes
    assert hosts["a2.example"].wishes is not hosts["a1.example"].wishes
    assert hosts["b1"].wishes is not hosts["b2"].wishes


def test_templates_that_differ_by_host_are_evaluated_for_each(site: Path) -> None:
    hosts = {host.name: host for host in ansible_adapter.read(site).hosts}
    assert hosts["a2.example"].wishes["bedplate_t"] == "a2.example none"
    assert hosts["a1.example"].wishes["bedplate_t"] == "a1.example its own"
    assert hosts["a4"].connection["ansible_host"] == "a4.example"


def test_truth_has_the_place_of_the_key_that_wins(site: Path) -> None:
    """Ansible can attach nothing to true and false: their keys tell where they stand."""
    hosts = {host.name: host for host in ansible_adapter.read(site).hosts}
    for name, file, line in (
        ("cp1", "hosts.yml", 2),
        ("b1", "group_vars/gpu_pools.yml", 2),
        ("a1.example", "host_vars/a1.example.yml", 1),
    ):
        place = hosts[name].places.of(("bedplate_yes",))
        assert (place.file, place.line) == (str(site / file), line)


def test_a_mistake_that_all_hosts_share_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        'all: {children: {control_plane: {hosts: {"n[001:300]": {}}}}}\n', encoding="utf-8"
    )
    with pytest.raises(SiteError) as caught:
        load_site(tmp_path)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["bedplate_host", "bedplate_kubernetes"]


def test_a_variable_of_the_users_own_is_no_setting(tmp_path: Path) -> None:
    """It may be called as one of ours without the prefix: the plan warns, and says nothing where
    a template uses it."""
    own = "proxy: {url: 'http://p:3128'}\nlabels: {room: b}\n"
    own += 'cuda: "{{ x }}"\nimages: {a: b}\ny: "{{ images.a }}"\n'
    site = broken(tmp_path, {"append": {"group_vars/pool_train.yml": own}})
    found = [str(one) for one in plan(site, date(2026, 11, 29)).plan.notices]
    file = site / "group_vars/pool_train.yml"
    assert (
        f"named as a setting without bedplate_, and not read: labels at {file}:6:1, "
        f"proxy at {file}:5:1; write bedplate_ before it, unless it is a variable of your own"
    ) in found
