"""From bare hosts to a GPU in a pod by a registry and a file server of the site's own."""

from __future__ import annotations

import base64
import re
import shutil
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from bedplate.bill.web import Web
from tests.mirror.chain import INTERNET, Chain, Mirror
from tests.mirror.test_chain import HOSTS, gpu_in_a_pod, nothing_else
from tests.mixes.living import living
from tests.site.hosts import on_host
from tests.substrate.commands import STACKS
from tests.substrate.internet.own import PASSWORD, USER, OwnServers
from tests.substrate.internet.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

#: A quarter of an hour: run it with `make prove AREA=mirror`.
pytestmark = pytest.mark.prove

BEGIN, VAULT = "10.213.20.", b"of the vault"
PORTS = (5443, 5444)
#: The login as HTTP has it.
SENT = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@dataclass(frozen=True)
class OwnChain(Chain):
    """The same hosts; what they take everything from is the site's own, not Bedplate's mirror."""

    name: str = "own"
    begin: str = BEGIN

    def write(self, folder: Path) -> SiteCommands:
        """Write the site with its servers' addresses, their authority and a login in a vault."""
        commands = super().write(folder)
        own = servers(folder)
        own.root.mkdir()
        own.authority.ensure()
        shutil.copy(own.authority.certificate, commands.site / ".ca.pem")
        variables = commands.site / "group_vars/all"
        settings = variables / "bedplate.yml"
        content = yaml.safe_load(settings.read_text())
        named = {"files": own.files, "registry": own.registry, "ca": ".ca.pem"}
        content["bedplate_sources"] = {"mode": "mirror", **named}
        settings.write_text(yaml.safe_dump(content, sort_keys=False))
        login = yaml.safe_dump({"bedplate_sources_login": {"user": USER, "password": PASSWORD}})
        vault = VaultLib([("default", VaultSecret(VAULT))])
        (variables / "login.yml").write_bytes(vault.encrypt(login))
        return commands


def servers(folder: Path) -> OwnServers:
    """Return both servers, which hosts reach at this machine's address on their network."""
    return OwnServers(folder / "servers", f"{BEGIN}1", f"{BEGIN}1", PORTS)


def test_bare_hosts_to_a_pod_by_servers_of_the_sites_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vault").write_bytes(VAULT)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "vault"))
    own = servers(tmp_path)
    with living(OwnChain(), tmp_path) as site, own.serving():
        with closing(Web(own.authority.certificate)) as web:
            own.await_answers(web)
        site.plan()
        pushed(site, tmp_path)
        said = site.playbook("playbooks/hosts.yml", "--check", "--diff", "-vvv").stdout
        nothing_else(site)
        said += site.playbook("playbooks/hosts.yml", "--diff", "-vvv").stdout
        again = site.playbook("playbooks/hosts.yml").stdout
        assert all(re.search(rf"^{name} .* changed=0 ", again, re.MULTILINE) for name in HOSTS)
        by_the_login_alone(site, own)
        for stack in STACKS:
            site.select(stack)
            said += site.up(stack).stdout
            if stack == "cluster":  # the others read what the nodes' GPUs are
                said += site.playbook("playbooks/verify.yml", "-vvv").stdout
        gpu_in_a_pod(site, tmp_path)
        texts = [path.read_bytes() for path in site.site.rglob("*") if path.is_file()]
        for secret in (PASSWORD, SENT):
            assert secret not in said
            assert not [text for text in texts if secret.encode() in text]


def pushed(site: SiteCommands, folder: Path) -> None:
    """Fill a mirror from the stand-in, and the site's own servers from it; twice, to no effect."""
    internet = Service(f"bedplate-{site.stack_name}", INTERNET)
    here = Mirror(site, folder / "here", internet)
    internet.start()
    try:
        here.run("resolve", "--upstream")
        here.take_built()
        here.run("fill")
    finally:
        internet.stop()
    here.internet = None
    here.run("push")
    assert "(0 of them put now)" in here.run("push").stdout


def by_the_login_alone(site: SiteCommands, own: OwnServers) -> None:
    """See that packages come from nowhere else, and who may read the login on a host."""
    for name in HOSTS:
        sources = on_host(site, name, "apt-get indextargets --format '$(URI)'").split()
        assert {source.split("/")[2] for source in sources} == {own.files.split("/")[2]}
        words = f"-e {PASSWORD} -e {SENT}"
        places = "/etc /root /tmp /var/lib/bedplate /var/log"
        having = on_host(site, name, f"grep -rlF {words} {places}").split()
        assert len(having) > len(["access.env", "apt's"])
        modes = on_host(site, name, f"stat -c %a:%U {' '.join(having)}").split()
        assert set(modes) == {"600:root"}, having
        assert on_host(site, name, f"journalctl | grep -cF {words} || true") == "0\n"
