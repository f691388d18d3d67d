"""From the built wheel in an empty environment and an empty folder, as the README of `init` says.

No checkout, a home of its own, PATH with the environment, Pulumi and nothing of this repository:
the language host of tests/substrate/pulumi stands in for the official one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.lock import load_lock
from tests.install.tunnel import tunnel
from tests.substrate.pulumi import HERE, built
from tests.substrate.standin.signing import Key
from tests.unit.bill.vendors import put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.install.conftest import Runs
    from tests.substrate.internet.fixtures import Served

ROOT = Path(__file__).parents[2]


COLLECTION = "ansible_collections/bedplate/gpu/"


def tracked(*folders: str) -> set[str]:
    """Name the files that git tracks below some folders."""
    listing = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listing.stdout.split())


def test_what_the_wheel_carries(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = {name.removeprefix("src/") for name in tracked("src/bedplate")}
    wanted |= {f"bedplate/{name}" for name in tracked("stacks", "templates")}
    pages = tracked("docs") - {"docs/conf.py"}
    wanted |= {f"bedplate/{name}" for name in pages if not name.endswith(".png")}
    portable = "plugins/module_utils/portable"
    parts = tracked("roles", "plugins", "playbooks", "meta", "galaxy.yml") - {portable}
    # The scenarios need the test tree; the link to the portable part is a folder of its own.
    wanted |= {f"{COLLECTION}{name}" for name in parts if "/molecule/" not in name}
    source = "src/bedplate/portable"
    copies = {Path(name).relative_to(source) for name in tracked(source)}
    wanted |= {f"{COLLECTION}{portable}/{name}" for name in copies}
    assert len(wanted) > 600
    assert wanted - names == set()
    others = {name for name in names - wanted if ".dist-info/" not in name}
    assert others == set(), "nothing else"
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Key]:
    """A key that signs the stand-in's index of packages."""
    signing = Key(tmp_path_factory.mktemp("gpg") / "home")
    yield signing
    signing.close()


def test_init_to_preview(
    installed: Path, key: Key, internet: Served, user: Runs, tmp_path: Path
) -> None:
    """The vendors are a stand-in behind a proxy, with their own names and TLS."""
    hosts = ["--hosts", "cp=192.0.2.1", "--hosts", "gpu=192.0.2.[11:12]"]
    user(installed, "bedplate", "init", "lab", *hosts, "--gpu", "h100-pcie-80gb:8")
    site = tmp_path / "lab"
    readme = (site / "README.md").read_text()
    steps = re.findall(r"^    (.*?)(?:  +#.*)?$", readme, re.MULTILINE)
    assert steps[0] == f". {installed}/activate"
    assert (installed / "activate").is_file()
    # What another machine installs are these bytes, by their digest.
    pip = [sys.executable, "-m", "pip", "--python", installed / "python", "install", "--dry-run"]
    words = [*pip, "--ignore-installed", "--no-index", "--no-deps", "-r", "requirements.txt"]
    assert "Would install bedplate-" in user(installed, *words, cwd=site).stdout
    # NVIDIA's key is not at hand to sign with: the site names another one.
    settings = site / "inventory/group_vars/all/bedplate.yml"
    content = yaml.safe_load(settings.read_text())
    assert content["bedplate_sources"] == {"mode": "upstream"}
    content["bedplate_sources"]["keys"] = {"nvidia.github.io": key.fingerprint}
    settings.write_text(yaml.safe_dump(content))

    def step(words: str, *more: object, **variables: str) -> str:
        assert any(words in line for line in steps), f"{words} is in no line of the README"
        done = user(installed, *words.split(), *more, cwd=site, **variables)
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout

    assert "Wrote inventory/.bedplate.lock.yml" in step("bedplate plan inventory")
    put(internet.tree, load_lock(site / "inventory"), key)
    with tunnel(int(internet.url.rpartition(":")[2])) as proxy:
        # Pulumi's parts speak to each other on this machine, past any proxy.
        vendors = {"https_proxy": proxy, "no_proxy": "127.0.0.1,localhost"}
        vendors["SSL_CERT_FILE"] = str(internet.authority)
        shown = step("bedplate mirror resolve inventory", "--ca", internet.authority, **vendors)
        assert "Wrote inventory/.bedplate.bill.yml" in shown
        step("ansible-playbook -i inventory bedplate.gpu.site", "--syntax-check")
        listed = step("ansible-playbook -i inventory bedplate.gpu.site", "--list-hosts")
        assert {"cp1", "gpu1", "gpu2"} <= set(listed.split())

        (site / "state").mkdir()
        programs = [built("pulumi"), built("pulumi-kubernetes"), HERE]
        assert all(programs), "the tools are not built: tests/substrate/tools/build.py"
        vendors |= {
            "PATH": ":".join(map(str, programs)),
            "PULUMI_BACKEND_URL": f"file://{site}/state",
            "PULUMI_CONFIG_PASSPHRASE": "of this test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        select = "stack select --create main"
        assert any(select in line for line in steps)
        words = ["pulumi", "-C", "stacks/cluster"]
        user(installed, *words, *select.split(), cwd=site, **vendors)
        shown = user(installed, *words, "preview", cwd=site, **vendors).stdout
    assert f"using pulumi-resource-bedplate from $PATH at {installed}" in shown
    created = re.search(r"\+ (\d+) to create", shown)
    assert created is not None
    assert int(created[1]) > 6, shown
