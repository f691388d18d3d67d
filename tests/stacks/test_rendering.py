"""`bedplate render`: what the stacks' own programs register, for readers and for kubectl."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.catalogue import catalogue_of
from bedplate.cli.main import main
from bedplate.components.config import SECRETS
from bedplate.components.frameworks import (
    hub_objects,
    hub_proxy,
    hub_settings,
    hub_use,
    hub_volume,
    volumes,
)
from bedplate.components.rendering.program import HIDDEN, registered
from bedplate.components.schedulers import volcano_objects
from bedplate.components.schedulers.kueue import policies, queues, tenancy
from bedplate.components.schedulers.kueue.args import queues_args
from bedplate.components.schedulers.topology import Places, node_labels, places
from bedplate.lock import load_lock
from tests.schedulers.certificates import Authority
from tests.unit.bill import made

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "inventories/demo"
LATER = "<known later: "
LARGER = {
    "all/bedplate": "bedplate_schedulers: [kueue, jobset, volcano]\n"
    "bedplate_teams:\n"
    "  vision: {members: [ada], gpus: {pool_train: {guaranteed: 8}}}\n",
    "pool_train": "bedplate_rdma: {stack: inbox}\n",
}
HUB = """\
bedplate_hub:
  admins: [ada]
  url: https://hub.example
  certificate: .tls/hub.pem
  sign_in: oauth
  oauth:
    client_id: hub
    authorize_url: https://id.example/authorize
    token_url: https://id.example/token
    userdata_url: https://id.example/userinfo
"""
SOURCES = """\
bedplate_sources:
  mode: mirror
  files: https://files.example
  registry: registry.example/bedplate
bedplate_sources_login: {user: puller, password: planted-password}
"""
ENGINE = f"engine.example/engine@sha256:{'a' * 64}"


@pytest.fixture(autouse=True)
def _no_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: socket.socket, address: object) -> None:
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def larger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a planned site of 20 nodes with RDMA and every scheduler, and a bill."""
    site = tmp_path / "larger"
    shutil.copytree(ROOT / "tests/unit/two_pools", site)
    for name, text in LARGER.items():
        with (site / f"group_vars/{name}.yml").open("a") as file:
            file.write(text)
    return planned(site, capsys)


def planned(site: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Plan a site, give it a bill, and forget what was printed."""
    assert main(["plan", str(site)]) == 0
    made.make(site)
    capsys.readouterr()
    return site


def demo(folder: Path, **more: str) -> Path:
    """Copy the demo's site with other settings in place of its own."""
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns(".bedplate"))
    last = folder / "group_vars/all/zz.yml"
    last.write_text("".join(more.values()))
    return folder


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """Return the stacks' folder beside sites, as `bedplate init` writes it."""
    folder = tmp_path / "stacks"
    shutil.copytree(ROOT / "stacks", folder, ignore=shutil.ignore_patterns("Pulumi.*.yaml"))
    return folder


def named(objects: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], Any]:
    """Return objects by kind, namespace and name."""
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in objects
    }


def shown(text: str) -> tuple[dict[tuple[str, str, str], Any], dict[str, Any]]:
    """Return a render's objects, and its charts by name."""
    found = list(yaml.safe_load_all(text))
    charts = {one["chart"]: one for one in found if "chart" in one}
    return named(one for one in found if "kind" in one), charts


def test_the_demo_is_there_with_all_that_pure_functions_give(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["render", str(DEMO)]) == 0
    said = capsys.readouterr()
    objects, charts = shown(said.out)
    lock = load_lock(DEMO)
    of = queues_args(lock, catalogue_of(DEMO))
    whole = named([*tenancy.objects(of), *queues.objects(of), *policies.objects(of)])
    assert {key: objects.get(key) for key in whole} == whole
    courses = hub_settings.courses_of(lock)
    for one in (
        *hub_objects.rights(courses),
        *hub_objects.network_policies(),
        *hub_objects.state_volume(hub_volume.of(lock)),
    ):
        assert objects[next(iter(named([one])))] == one
    assert named(hub_use.objects(lock, "")).keys() <= objects.keys()
    assert named(volumes.objects(volumes.volumes_args(lock), "", "")).keys() <= objects.keys()
    assert ("Job", "bedplate-smoke", "nvidia-smi") in objects
    configuration = charts["kueue"]["values"]["managerConfig"]["controllerManagerConfigYaml"]
    assert yaml.safe_load(configuration)["kind"] == "Configuration"
    assert "controllerManagerConfigYaml: |\n" in said.out, "read as lines"
    assert charts["kueue"]["url"].startswith(LATER), "the demo has no bill"
    assert "bedplate mirror resolve" in said.err
    seed = objects["Secret", "bedplate-hub", "hub-seed"]
    assert (seed["data"], objects["RuntimeClass", "", "nvidia"]["handler"]) == (
        {"seed": HIDDEN},
        "nvidia",
    )
    assert objects["Deployment", "bedplate-hub", "hub"]["spec"]["replicas"] == 1
    labels = objects["Node", "", "gpu-a"]["metadata"]["labels"]
    assert labels["bedplate.io/pool"] == "pool_train"
    assert labels["nvidia.com/gpu.*"].startswith(LATER)
    (network,) = [one for one in yaml.safe_load_all(said.out) if "manifest" in one]
    (config, _) = network["set"]
    assert yaml.safe_load(config["data"]["net-conf.json"]) == {"Network": "10.244.0.0/16"}


def test_a_larger_site_with_every_scheduler(
    larger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", str(larger), "--stack", "schedulers"]) == 0
    said = capsys.readouterr()
    objects, charts = shown(said.out)
    lock = load_lock(larger)
    assert set(charts) == {"jobset", "kueue", "volcano"}
    assert charts["volcano"]["url"] == f"https://vendor.example.com/volcano-chart-{_volcano(lock)}"
    assert LATER not in str(charts), "the bill has all"
    labels = node_labels(lock, {})
    assert len(labels) == 20
    for name, wished in labels.items():
        found = objects["Node", "", name]["metadata"]["labels"]
        assert {key: found[key] for key in wished} == wished
    known = places(lock, {})
    with_gpus = {name: known.nodes[name] for name in known.nodes if lock.hosts[name].pool}
    batch = named(volcano_objects.objects({}, lock.preset, [], Places(known.levels, with_gpus)))
    assert len(batch) >= 20
    assert {key: objects.get(key) for key in batch} == batch
    nccl = objects["ConfigMap", "vision", "nccl-pool-train"]["data"]
    assert list(nccl.values()) == [f"{LATER}by verify>"]
    assert not [key for key in objects if key[0] == "Job"], "of the stack that was asked for"
    kinds = [one.get("kind") for one in yaml.safe_load_all(said.out)]
    assert kinds == sorted(kinds, key=lambda kind: kind != "Namespace"), "what others lie in"
    assert said.err == ""


def _volcano(lock: Any) -> str:
    return next(str(one.version) for one in lock.cluster.addons if one.name == "volcano")


def test_equal_locks_give_equal_bytes() -> None:
    """In processes whose sets and dictionaries of gRPC have another order."""
    command = [sys.executable, "-m", "bedplate.cli", "render", str(DEMO)]
    texts = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 10_000


def test_no_secret_is_shown(
    tmp_path: Path,
    stacks: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = demo(tmp_path / "secrets", hub=HUB, sources=SOURCES)
    (site / ".tls").mkdir()
    certificate, key = Authority(tmp_path).issue("hub", names=["hub.example"])
    shutil.copy(certificate, site / ".tls/hub.pem")
    planted = {f"bedplate:{name}": f"planted-{name}" for name in SECRETS}
    planted["bedplate:hubKey"] = key.read_text()
    config = yaml.safe_dump({"config": planted})
    (stacks / "frameworks/Pulumi.secrets.yaml").write_text(config)
    monkeypatch.setenv("PULUMI_CONFIG", str(planted).replace("'", '"'))
    planned(site, capsys)
    assert main(["render", str(site)]) == 0
    text = capsys.readouterr().out
    objects, _ = shown(text)
    assert "planted" not in text
    assert key.read_text().splitlines()[1] not in text
    assert str(objects["Secret", "bedplate-hub", hub_proxy.TLS]["stringData"]).startswith(LATER)
    for kind, namespace, name in objects:
        if kind == "Secret":
            found = objects[kind, namespace, name]
            held = {**found.get("data", {}), "": found.get("stringData", HIDDEN)}
            assert all(one == HIDDEN or str(one).startswith(LATER) for one in held.values()), name


def test_each_secret_of_a_program_is_kept_unknown() -> None:
    for path in (ROOT / "stacks").glob("*/__main__.py"):
        asked = path.read_text().split('get_secret("')[1:]
        assert {one.partition('"')[0] for one in asked} <= set(SECRETS)


def test_settings_of_the_stack_count(
    stacks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = planned(demo(tmp_path / "engine"), capsys)
    config = {
        "bedplate:site": "elsewhere",
        "bedplate:remoteEngine": ENGINE,
        "bedplate:remoteImage": ENGINE,
        "bedplate:remoteEngineCommand": ["engine", "--serve"],
        "bedplate:other": {"secure": "v1:unreadable"},
    }
    (stacks / "frameworks/Pulumi.engine.yaml").write_text(yaml.safe_dump({"config": config}))
    found = {one.kind for one in registered("frameworks", site)}
    assert "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition" in found
    assert main(["render", str(site), "--stack", "frameworks"]) == 0
    assert ENGINE in capsys.readouterr().out

    # A tag is what is refused here: an engine is named by its digest.
    config["bedplate:remoteEngine"] = "engine:1"
    (stacks / "frameworks/Pulumi.engine.yaml").write_text(yaml.safe_dump({"config": config}))
    assert main(["render", str(site)]) == 3
    said = capsys.readouterr()
    assert said.err.startswith("an image without a digest — bedplate:remoteEngine — got engine")
    assert said.out == "", "nothing is shown where one of the stacks refuses"

    (stacks / "frameworks/Pulumi.engine.yaml").write_text("config: [\n")
    assert main(["render", str(site)]) == 3
    assert capsys.readouterr().err.startswith("settings of a stack cannot be read — ")


def test_programs_beside_the_site_are_run_with_settings_by_name(
    stacks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = planned(demo(tmp_path / "inventory"), capsys)
    for name in ("main", "other"):
        text = yaml.safe_dump({"config": {"bedplate:own": f"of-{name}"}})
        (stacks / f"schedulers/Pulumi.{name}.yaml").write_text(text)
    program = stacks / "schedulers/__main__.py"
    with program.open("a") as file:
        file.write('own = {"name": pulumi.Config("bedplate").require("own")}\n')
        file.write("on = pulumi.ResourceOptions(provider=provider)\n")
        file.write('kubernetes.core.v1.Namespace("own", metadata=own, opts=on)\n')
    asked = ["render", str(site), "--stack", "schedulers"]
    for given, expected in (([], "of-main"), (["--pulumi-stack", "other"], "of-other")):
        assert main([*asked, *given]) == 0
        objects, _ = shown(capsys.readouterr().out)
        assert ("Namespace", "", expected) in objects
    (stacks / "schedulers/Pulumi.other.yaml").write_text("config: {}\n")
    assert main([*asked, "--pulumi-stack", "other"]) == 3
    assert capsys.readouterr().err.startswith("Missing required configuration variable")
    assert main([*asked, "--pulumi-stack", "neither"]) == 3
    assert capsys.readouterr().err.startswith("no such Pulumi stack — --pulumi-stack — got neither")


def test_folders_have_whole_objects_apart_from_parts(
    larger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out/rendered"
    assert main(["render", str(larger), "--output", str(folder)]) == 0
    whole = {
        path.relative_to(folder): yaml.safe_load(path.read_text())
        for path in folder.glob("*/*.yml")
    }
    parts = {path.name for path in folder.glob("*/parts/*.yml")}
    assert f"Wrote {len(whole) + len(parts)} files" in capsys.readouterr().out
    assert {"chart-kueue.yml", "manifest-flannel-manifest.yml"} <= parts
    assert len([one for one in parts if one.startswith("node-")]) == 20
    assert whole[Path("schedulers/clusterqueue-vision.yml")]["kind"] == "ClusterQueue"
    for content in whole.values():
        assert {"apiVersion", "kind", "metadata"} <= content.keys()
        assert LATER not in str(content)

    mine = folder / "schedulers/mine.yml"
    mine.write_text("kind: ConfigMap\n")
    settings = larger / "group_vars/all/bedplate.yml"
    settings.write_text(settings.read_text().replace("vision", "speech"))
    assert main(["render", str(larger), "--output", str(folder)]) == 3
    assert (folder / "schedulers/clusterqueue-vision.yml").exists(), "a stale lock changes nothing"
    planned(larger, capsys)
    assert main(["render", str(larger), "--output", str(folder)]) == 0
    found = {path.name for path in (folder / "schedulers").glob("clusterqueue-*")}
    assert found == {"clusterqueue-speech.yml"}
    assert mine.exists(), "of another's hand"


@pytest.mark.parametrize("stale", [False, True])
def test_a_site_without_a_lock_of_its_own_is_refused_as_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, stale: bool
) -> None:
    site = demo(tmp_path / "demo", hub="bedplate_hub: {admins: [ada, bob]}\n")
    if not stale:
        (site / ".bedplate.lock.yml").unlink()
    assert main(["frameworks", str(site)]) == 3
    elsewhere = capsys.readouterr()
    assert main(["render", str(site)]) == 3
    said = capsys.readouterr()
    assert said == elsewhere
    assert ("lock is stale" if stale else "site has no lock") in said.err
