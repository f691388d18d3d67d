"""From the built wheel in an empty environment and an empty folder, as the README of `init` says.

No checkout, a home of its own, PATH with the environment, Pulumi and nothing of this repository:
the language host of tests/substrate/pulumi stands in for the official one.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.lock import load_lock
from tests.substrate.pulumi import HERE, built
from tests.unit.bill.vendors import Key, serve, serving

if TYPE_CHECKING:
    from tests.install.conftest import Runs

ROOT = Path(__file__).parents[2]


def test_what_the_wheel_carries(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for stack in ("cluster", "schedulers", "frameworks"):
        files = {n.rpartition("/")[2] for n in names if n.startswith(f"bedplate/stacks/{stack}/")}
        assert files == {"Pulumi.yaml", "__main__.py"}
    for folder in ("templates/report", "templates/site", "stacks"):
        there = {f"bedplate/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*.j2")}
        assert there <= names
    gpu = "ansible_collections/bedplate/gpu"
    assert {f"{gpu}/galaxy.yml", f"{gpu}/playbooks/site.yml", f"{gpu}/meta/runtime.yml"} <= names
    assert f"{gpu}/plugins/module_utils/portable/host.py" in names
    assert not [n for n in names if "molecule/" in n or n.startswith(("tests/", "docs/"))]
    assert [n for n in names if n.endswith(".dist-info/licenses/LICENSE")]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    """A key that signs the stand-in's index of packages."""
    return Key(tmp_path_factory.mktemp("gpg") / "home")


def test_init_to_preview(installed: Path, key: Key, user: Runs, tmp_path: Path) -> None:
    with serving() as server:
        user(installed, "bedplate", "init", "lab", "--hosts", "cp=192.0.2.1", "--hosts",
             "gpu=192.0.2.[11:12]", "--gpu", "h100-pcie-80gb:8")  # fmt: skip
        site = tmp_path / "lab"
        steps = re.findall(
            r"^    (.*?)(?:  +#.*)?$", (site / "README.md").read_text(), re.MULTILINE
        )
        assert "pip install -r requirements.txt" in steps[0]
        # The vendors are a server of this test, under the site's own address for all of them.
        settings = site / "inventory/group_vars/all/bedplate.yml"
        content = yaml.safe_load(settings.read_text())
        assert content["bedplate_sources"] == {"mode": "upstream"}
        keys = {"nvidia.github.io": key.fingerprint}
        content["bedplate_sources"] = {"mode": "mirror", "url": server.url, "keys": keys}
        settings.write_text(yaml.safe_dump(content))

        def step(words: str, *more: str, **variables: str) -> str:
            assert any(words in line for line in steps), f"{words} is in no line of the README"
            done = user(installed, *words.split(), *more, cwd=site, **variables)
            assert "Traceback" not in done.stdout + done.stderr
            return done.stdout

        assert "Wrote inventory/.bedplate.lock.yml" in step("bedplate plan inventory")
        serve(server, load_lock(site / "inventory"), key)
        assert "Wrote inventory/.bedplate.bill.yml" in step("bedplate mirror resolve inventory")
        step("ansible-playbook -i inventory bedplate.gpu.site", "--syntax-check")
        listed = step("ansible-playbook -i inventory bedplate.gpu.site", "--list-hosts")
        assert {"cp1", "gpu1", "gpu2"} <= set(listed.split())

        (site / "state").mkdir()
        programs = [built("pulumi"), built("pulumi-kubernetes"), HERE]
        assert all(programs), "the tools are not built: tests/substrate/tools/build.py"
        pulumi = {
            "PATH": ":".join(map(str, programs)),
            "PULUMI_BACKEND_URL": f"file://{site}/state",
            "PULUMI_CONFIG_PASSPHRASE": "of this test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        select = "stack select --create main"
        assert any(select in line for line in steps)
        words = ["pulumi", "-C", "stacks/cluster"]
        user(installed, *words, *select.split(), cwd=site, **pulumi)
        shown = user(installed, *words, "preview", cwd=site, **pulumi).stdout
        assert f"using pulumi-resource-bedplate from $PATH at {installed}" in shown
        created = re.search(r"\+ (\d+) to create", shown)
        assert created is not None
        assert int(created[1]) > 6, shown
        assert not (site / "stacks/cluster/.venv").exists()
