"""A registry and a file server of the site's own: TLS by its authority, and a login from a vault.

The real registry, nginx, skopeo and containerd's own client; hosts' downloads by the modules' code.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible.template import Templar, trust_as_template

from bedplate.bill import Bill, Places, load_bill
from bedplate.bill.own import web_of
from bedplate.bill.registry import image
from bedplate.bill.web import Own, Web
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main
from bedplate.lock import load_lock
from bedplate.mirror.download import Part
from bedplate.mirror.push import Pushing
from bedplate.mirror.store import Store
from bedplate.portable import fetch, sources
from bedplate.portable.host import Host
from bedplate.portable.mirror_sources import Mirror, use
from tests.schedulers.processes import free_port
from tests.substrate.images import recipes
from tests.substrate.internet.authority import Authority
from tests.substrate.internet.fixtures import serving
from tests.substrate.internet.own import PASSWORD, USER, OwnServers, running
from tests.substrate.standin.signing import Key
from tests.unit.bill.vendors import planned

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles" / "container_runtime"
#: What writes to hosts whom they trust, and the variable that has the files.
REACH = ROOT / "playbooks/tasks/reach.yml"
FILES = "__bedplate_sources_files"
IMAGE = "registry.k8s.io/pause:3.10.2"


@dataclass(frozen=True)
class Servers:
    """Both servers, their authority, and a site that names them."""

    files: str
    registry: str
    authority: Authority
    site: Path
    root: Path
    containerd: recipes.Tool

    def log_in(self, password: str = PASSWORD) -> None:
        """Have the site's vault hold this password."""
        text = VaultLib([("default", VaultSecret(b"of the vault"))]).encrypt(
            yaml.safe_dump({"bedplate_sources_login": {"user": USER, "password": password}})
        )
        (self.site / "group_vars/all/login.yml").write_bytes(text)

    def tell_hosts(self, monkeypatch: pytest.MonkeyPatch, password: str, ca: Path) -> None:
        """Have this machine's downloads do as a host's to which the playbook has written."""
        folder = self.root / "host"
        tasks = DataLoader().load_from_file(str(REACH), trusted_as_template=True)
        (given,) = [task["vars"] for task in tasks if FILES in task.get("vars", {})]
        own = {"files": self.files, "registry": self.registry, "ca": str(ca)}
        variables = {
            "inventory_dir": str(self.site),
            "__bedplate_lock": {"sources": {"mode": "mirror", **own}},
            "__bedplate_sources_ca": str(folder / "ca.pem"),
            "__bedplate_sources_login": f"{USER}:{password}",
        }
        folder.mkdir(exist_ok=True)
        for file in Templar(loader=DataLoader(), variables=given | variables).template(
            given[FILES]
        ):
            (folder / Path(file["path"]).name).write_text(file["content"])
        monkeypatch.setattr(sources, "PATH", str(folder / "access.env"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers, and a site whose bill is what a stand-in for the vendors has."""
    root = tmp_path_factory.mktemp("own")
    own = OwnServers(root, "127.0.0.1", "localhost", (free_port(), free_port()))
    key, containerd = Key(root / "gpg"), recipes.known_tools()["containerd"]
    named = {"files": own.files, "registry": own.registry, "ca": ".ca.pem"}
    with ExitStack() as stack:
        stack.callback(key.close)
        stack.enter_context(own.serving())
        vendors = stack.enter_context(serving(root / "internet"))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("BEDPLATE_CACHE", str(root / "cache"))
        (root / "vault").write_text("of the vault\n")
        patch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(root / "vault"))
        first = {"mode": "mirror", "url": vendors.url, "packages": "hosts"}
        site = planned(root / "site", vendors, key, first)
        assert main(["mirror", "resolve", str(site)]) == 0
        shutil.copy(own.authority.certificate, site / ".ca.pem")
        settings_file = site / "group_vars/all/bedplate.yml"
        content = yaml.safe_load(settings_file.read_text())
        keys = content["bedplate_sources"]["keys"]
        content["bedplate_sources"] = {
            "mode": "mirror",
            "packages": "hosts",
            "keys": keys,
            **named,
        }
        settings_file.write_text(yaml.safe_dump(content))
        found = Servers(own.files, own.registry, own.authority, site, root, containerd)
        # Before there is a vault: Ansible in this process has read its own settings already.
        assert main(["plan", str(site)]) == 0
        found.log_in()
        with vendors.names():
            assert main(["mirror", "fill", str(site), "--ca", str(vendors.authority)]) == 0
        with closing(Web(own.authority.certificate)) as web:
            own.await_answers(web)
        assert main(["mirror", "push", str(site)]) == 0
        yield found


@pytest.fixture(autouse=True)
def with_login(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vault's password and this machine's mirror, for each test."""
    monkeypatch.setenv("BEDPLATE_CACHE", str(servers.root / "cache"))
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(servers.root / "vault"))
    servers.log_in()
    shutil.copy(servers.authority.certificate, servers.site / ".ca.pem")


def bill_of(site: Path) -> Bill:
    found = load_bill(site)
    assert found is not None
    return found


def test_what_was_pushed_is_what_the_resolver_finds(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bill_of(servers.site)
    assert digests(servers, *before.images) == [entry.digest for entry in before.images.values()]
    assert main(["mirror", "push", str(servers.site)]) == 0
    said = capsys.readouterr().out
    assert f"{len(before.files)} files (0 of them put now)" in said
    assert said.count(": there\n") == len(before.images)


def test_the_login_is_in_no_file_but_the_vault(servers: Servers) -> None:
    lock = (servers.site / ".bedplate.lock.yml").read_text()
    assert f"registry: {servers.registry}" in lock
    texts = [path.read_bytes() for path in servers.site.rglob("*") if path.is_file()]
    secret = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    assert not [text for text in texts if PASSWORD.encode() in text or secret in text]


def test_a_wrong_password_is_one_clear_message(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    servers.log_in("another-password")
    host = servers.registry.partition("/")[0]
    with pytest.raises(Exception, match="a login that the server does not take") as raised:
        lookup(servers)
    assert f"https://{host}/v2/site/{IMAGE.partition(':')[0]}/manifests/" in str(raised.value)
    assert "correct bedplate_sources_login in the site" in str(raised.value)
    assert "another-password" not in str(raised.value) + "".join(capsys.readouterr())
    (servers.site / "group_vars/all/login.yml").unlink()
    with pytest.raises(Exception, match="got no login / allowed a user and password"):
        lookup(servers)


def test_another_authority_is_one_clear_message(servers: Servers, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    other.ensure()
    shutil.copy(other.certificate, servers.site / ".ca.pem")
    with pytest.raises(Exception, match=r"host is not trusted — localhost:\d+ — got .*") as raised:
        lookup(servers)
    assert str(raised.value).endswith("name its certificate with bedplate_sources.ca")


def test_an_image_that_is_not_there_is_one_clear_message(servers: Servers) -> None:
    with pytest.raises(Exception, match=r"image .* is not found — .* — got HTTP 404 Not Found"):
        lookup(servers, "registry.k8s.io/pause:9.9")


def lookup(servers: Servers, name: str = IMAGE) -> str:
    return digests(servers, name)[0]


def digests(servers: Servers, *names: str) -> list[str]:
    """Ask the site's registry for images, as `mirror resolve` does."""
    found = load_lock(servers.site).sources
    places = Places.of(found, load_catalogue())
    with closing(web_of(servers.site, found)) as web:
        return [image(web, places, name, f"image {name}").digest for name in names]


def test_hosts_download_with_authority_and_login(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = next(iter(bill_of(servers.site).files.values()))
    url = f"{servers.files}/{file.url.removeprefix('https://')}"
    servers.tell_hosts(monkeypatch, PASSWORD, servers.authority.certificate)
    fetch.download(url, file.sha256, str(tmp_path / "file"))
    assert (tmp_path / "file").stat().st_size == file.size
    servers.tell_hosts(monkeypatch, "another-password", servers.authority.certificate)
    with pytest.raises(fetch.FetchError, match=r"got HTTP 401 Unauthorized.*bedplate_sources_log"):
        fetch.read(url)
    other = Authority(tmp_path / "other")
    other.ensure()
    servers.tell_hosts(monkeypatch, PASSWORD, other.certificate)
    with pytest.raises(fetch.FetchError, match=r"authority .* in bedplate_sources\.ca"):
        fetch.read(url)


def hosts_toml(servers: Servers, folder: Path, **changes: str) -> Path:
    """Write the role's files of registries below a folder, as on a host."""
    host, _, below = servers.registry.partition("/")
    variables: dict[str, Any] = {
        "container_runtime_mirror": f"https://{host}",
        "container_runtime_mirror_below": below,
        "container_runtime_mirror_ca": str(servers.authority.certificate),
        "container_runtime_mirror_login": f"{USER}:{PASSWORD}",
        "container_runtime_mirror_registries": ["registry.k8s.io"],
        **changes,
    }
    text = trust_as_template((ROLE / "templates/registries.yml.j2").read_text())
    written = Templar(loader=DataLoader(), variables=variables).template(text)
    for file in yaml.safe_load(written):
        assert file["mode"] == "0600"
        path = folder / Path(file["path"]).relative_to("/etc/containerd/certs.d")
        path.parent.mkdir(parents=True)
        path.write_text(file["content"])
    return folder


def test_containerd_pulls_with_authority_and_login(servers: Servers, tmp_path: Path) -> None:
    tool = servers.containerd
    socket, ctr = tmp_path / "c.sock", str(tool.program("ctr"))
    (tmp_path / "config.toml").write_text(
        f'version = 3\nroot = "{tmp_path}/root"\nstate = "{tmp_path}/state"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", '
        '"io.containerd.cri.v1.runtime"]\n'
        f'[grpc]\naddress = "{socket}"\n[ttrpc]\naddress = "{socket}.ttrpc"\n'
    )
    entry = bill_of(servers.site).images[IMAGE]
    # `ctr` would fetch manifests of other platforms too, which are not there.
    reference = f"{IMAGE.partition(':')[0]}@{entry.manifest}"

    def fetched(hosts: Path) -> str:
        command = [ctr, "--address", str(socket), "content", "fetch", "--platform", "linux/amd64"]
        command += ["--hosts-dir", str(hosts), reference]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        return "" if done.returncode == 0 else done.stderr

    program = str(tool.program("containerd"))
    with running(tmp_path, "containerd", program, "--config", str(tmp_path / "config.toml")):
        for _ in range(1200):
            if subprocess.run([ctr, "--address", str(socket), "version"], check=False).returncode:
                time.sleep(0.1)
            else:
                break
        wrong = {"container_runtime_mirror_login": f"{USER}:another-password"}
        assert "no basic auth credentials" in fetched(
            hosts_toml(servers, tmp_path / "wrong", **wrong)
        )
        other = Authority(tmp_path / "other")
        other.ensure()
        wrong = {"container_runtime_mirror_ca": str(other.certificate)}
        said = fetched(hosts_toml(servers, tmp_path / "untrusted", **wrong))
        assert "certificate signed by unknown authority" in said
        assert not fetched(hosts_toml(servers, tmp_path / "right"))


def test_a_read_only_file_server_is_one_clear_message(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    bill = bill_of(servers.site)
    file = next(iter(bill.files.values()))
    place = servers.root / "www/bedplate" / file.url.removeprefix("https://")
    kept = place.read_bytes()
    place.unlink()
    place.mkdir()
    try:
        assert main(["mirror", "push", str(servers.site)]) != 0
    finally:
        place.rmdir()
        place.write_bytes(kept)
    assert "server does not take a file" in capsys.readouterr().err


def test_a_sign_in_page_does_not_pass_for_a_file_that_was_put(servers: Servers) -> None:
    with closing(web_of(servers.site, load_lock(servers.site).sources)) as web:
        assert web.put(f"{servers.files}/moved/file", servers.site / ".ca.pem") == HTTPStatus.FOUND


def test_an_index_that_kept_its_size_is_put_again(servers: Servers, tmp_path: Path) -> None:
    target, put = tmp_path / "index", []
    own = Own((f"{servers.files}/",), servers.authority.certificate, (USER, PASSWORD))
    with closing(Web(None, own)) as web:
        places = Places(None, {}, servers.files)
        pushing = Pushing(Store(tmp_path), places, servers.registry, own, web)
        for content in (b"one", b"one", b"two"):
            target.write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            part = Part("index", "", digest, len(content), target)
            put.append(pushing.file("packages.example/index", part, whole=True))
    assert put == [True, False, True]


def test_apt_takes_packages_with_authority_and_login(servers: Servers, tmp_path: Path) -> None:
    built = servers.root / "www/bedplate/packages.example/debian-12"
    command = ["-m", "tests.substrate.standin.companions", str(built), "tool=1.0"]
    subprocess.run([sys.executable, *command, "--os", "debian-12"], cwd=ROOT, check=True)
    url = f"{servers.files}/packages.example/debian-12/"
    ca = str(servers.authority.certificate)
    right = Mirror(url, (built / "standin.asc").read_text(), ca, f"{USER}:{PASSWORD}")
    other = Authority(tmp_path / "other")
    other.ensure()
    wrong = {
        "401  Unauthorized": right._replace(login=f"{USER}:another-password"),
        "Certificate verification failed": right._replace(ca=str(other.certificate)),
    }
    for reason, mirror in wrong.items():
        assert re.search(rf"Failed to fetch .* {reason}", updated(tmp_path / reason, mirror))
    assert updated(tmp_path / "right", right) == ""


def updated(root: Path, mirror: Mirror) -> str:
    """Have apt read a host's sources, below a folder; return what it said."""
    use(Host(str(root)), "Debian", mirror)
    for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "usr").symlink_to("/usr")
    settings = root / "apt.conf"
    settings.write_text(f'RootDir "{root}";\nAPT::Sandbox::User "root";\n')
    done = subprocess.run(
        ["apt-get", "update"],
        env={"APT_CONFIG": str(settings), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert f"{mirror.url.rstrip('/')}  InRelease" in done.stdout
    return done.stderr
