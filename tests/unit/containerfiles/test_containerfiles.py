"""Files for images of frameworks. The goldens are written by running this module."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from bedplate.bill.needs import jupyterhub_of
from bedplate.catalogue import load_catalogue
from bedplate.cli import main as cli
from bedplate.common.versions import number
from bedplate.lock.builds import notebook_of
from bedplate.lock.model import Framework, Sources
from bedplate.planning.containerfiles.render import Build, builds_of, files_of
from tests.schedulers.locks import lock_of

GOLDENS = Path(__file__).parent / "goldens"
MIRROR = Sources(
    mode="mirror",
    url="http://mirror.example:5080",
    pip="http://mirror.example/pypi/simple",
    conda="http://mirror.example/conda",
)
#: Each framework once: on V100 and on H100, from the makers and from a site's mirrors.
CASES: dict[str, tuple[tuple[str, str, str], Sources]] = {
    "v100": (("pytorch", "2.14.0", "cu126"), Sources(mode="upstream")),
    "v100-mirror": (("pytorch", "2.14.0", "cu126"), MIRROR),
    "h100": (("pytorch", "2.14.0", "cu130"), Sources(mode="upstream")),
    "tensorflow": (("tensorflow", "2.21.0", "cuda12"), Sources(mode="upstream")),
    "jax": (("jax", "0.12.0.1", "cuda13"), Sources(mode="upstream")),
    "paddle-mirror": (("paddle", "3.3.1", "cu126"), MIRROR),
    "tensorflow-cpu": (("tensorflow-cpu", "2.21.0", "cpu"), Sources(mode="upstream")),
}


def build_of(*identity: str) -> Build:
    """Return a build of the catalogue as a pool runs it."""
    catalogue = load_catalogue()
    name, version, variant = identity
    fact = catalogue.frameworks["-".join(identity)].value
    framework = Framework(name=name, version=version, variant=variant, cuda=fact.cuda)
    lock = lock_of({"pool_a": [{}], "pool_b": [{}]}, {})
    pools = {
        pool: found.model_copy(update={"frameworks": [framework]})
        for pool, found in lock.pools.items()
    }
    (build,) = builds_of(lock.model_copy(update={"pools": pools}), catalogue)
    return build


def written(case: str) -> dict[str, str]:
    """Return the files of a case."""
    identity, sources = CASES[case]
    return files_of(build_of(*identity), sources)


@pytest.mark.parametrize("case", CASES)
def test_the_files_are_those_that_were_reviewed(case: str) -> None:
    folder = GOLDENS / case
    golden = {path.name: path.read_text() for path in folder.iterdir()}
    assert written(case) == golden, "python -m tests.unit.containerfiles.test_containerfiles"


def test_every_build_of_the_catalogue_can_be_written() -> None:
    catalogue = load_catalogue()
    for name, fact in catalogue.frameworks.items():
        value = fact.value
        package = catalogue.framework_packages[value.framework].value
        build = Build(value, package, ("pool_a",), jupyterhub_of(catalogue))
        requirement = Requirement(build.requirement)
        assert str(requirement.specifier) == f"=={value.version}", name
        files = files_of(build, Sources(mode="upstream"))
        ast.parse(files["smoke.py"])
        told = f'io.bedplate.cuda="{value.cuda}"' in files["Containerfile"]
        assert told == (value.cuda is not None), name
        # The base has one Python for all: none of them may need a newer one.
        assert number(package.python) >= number(value.python_from or "3"), name


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of a V100 pool and an H100 pool that both have PyTorch."""
    shared: dict[str, Any] = {
        "bedplate_host": {"os": "ubuntu-24.04"},
        "bedplate_kubernetes": {"version": "1.36.3", "endpoint": "192.0.2.1:6443"},
        "bedplate_sources": {"pip": "https://mirror.example/simple"},
        "bedplate_frameworks": ["pytorch-2.14"],
    }
    pools = {"pool_old": "v100-sxm2-32gb", "pool_new": "h100-sxm5-80gb"}
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "gpu_pools.yml").write_text(
        yaml.safe_dump({"bedplate_frameworks": shared.pop("bedplate_frameworks")})
    )
    (tmp_path / "group_vars" / "all.yml").write_text(yaml.safe_dump(shared))
    children: dict[str, Any] = {}
    for number_, (pool, model) in enumerate(pools.items(), start=2):
        children[pool] = {"hosts": {f"gpu{number_}": {"ansible_host": f"192.0.2.{number_}"}}}
        (tmp_path / "group_vars" / f"{pool}.yml").write_text(
            yaml.safe_dump({"bedplate_gpu": {"model": model, "count": 8}})
        )
    hosts = {
        "control_plane": {"hosts": {"cp1": {"ansible_host": "192.0.2.1"}}},
        "gpu_pools": {"children": children},
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}))
    assert cli.main(["plan", "--today", "2026-11-26", str(tmp_path)]) == 0
    return tmp_path


def test_each_pool_has_the_build_that_its_gpus_have_kernels_in(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    output = tmp_path / "images"
    assert cli.main(["frameworks", str(site), "--output", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["pytorch-2.14.0-cu126", "CUDA", "12.6", "torch==2.14.0", "pool_old"],
        ["pytorch-2.14.0-cu130", "CUDA", "13.0", "torch==2.14.0", "pool_new"],
    ]
    assert lines[-1] == f"Wrote 2 folders in {output}; each Containerfile says how to build."
    names = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert names == {
        f"pytorch-2.14.0-{variant}/{name}"
        for variant in ("cu126", "cu130")
        for name in ("Containerfile", "requirements.in", "notebook.in", "smoke.py", "pip.conf")
    }
    pip = (output / "pytorch-2.14.0-cu130" / "pip.conf").read_text()
    assert pip == "[global]\nindex-url = https://mirror.example/simple\n"


def test_a_base_is_named_by_its_digest(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["frameworks", str(site), "--base", "example.com/python:3.12"]) == 3
    assert capsys.readouterr().err == (
        "base image has no digest — --base — got example.com/python:3.12 / allowed "
        "IMAGE@sha256:DIGEST — read it: skopeo inspect --format '{{.Digest}}' docker://IMAGE\n"
    )
    output = site / "images"
    base = f"example.com/python@sha256:{'a' * 64}"
    assert cli.main(["frameworks", str(site), "--base", base, "--output", str(output)]) == 0
    text = (output / "pytorch-2.14.0-cu130" / "Containerfile").read_text()
    assert f"\nFROM {base} AS framework\n" in text
    assert "By tag" not in text


def test_a_notebook_is_built_under_the_name_that_the_bill_has() -> None:
    """It has the hub's own JupyterHub, and the user that the hub starts it as."""
    files = written("h100")
    name = notebook_of("pytorch", "2.14.0", "cu130")
    assert f"--target notebook --tag {name} ." in files["Containerfile"]
    notebook = files["Containerfile"].partition(" AS notebook")[2]
    assert "USER 1000:100\nWORKDIR /home/jovyan\n" in notebook
    assert notebook.rstrip().endswith('CMD ["jupyterhub-singleuser"]')
    lines = files["notebook.in"].splitlines()
    assert f"jupyterhub=={load_catalogue().images['hub'].value.jupyterhub}" in lines
    assert {"jupyterlab", "nbgitpuller"} <= set(lines)


if __name__ == "__main__":
    for each in CASES:
        folder = GOLDENS / each
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in written(each).items():
            (folder / name).write_text(content)
