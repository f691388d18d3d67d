"""What images ask of driver and GPUs, read from a registry, against the pools of a lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill.errors import ResolveError
from bedplate.bill.image_needs import Asks, Machine, asked, asks_of, machines, mismatches, satisfied
from bedplate.bill.inspect_command import unfit
from bedplate.bill.places import Places
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.cli import main as cli
from bedplate.lock import load_lock
from bedplate.lock.model import TeamImage
from tests.substrate.internet.fixtures import serving

if TYPE_CHECKING:
    from tests.substrate.internet.fixtures import Served

DEMO = Path(__file__).parents[3] / "inventories/demo"
V100 = Machine("535.309.01", "12.2", frozenset({11, 12}), "7.0", "tesla", "v100-sxm2-32gb")
#: The beginning of what nvidia/cuda:12.6.3 has.
CUDA_12_6 = (
    "cuda>=12.6 brand=unknown,driver>=470,driver<471 brand=tesla,driver>=470,driver<471 "
    "brand=tesla,driver>=535,driver<536 brand=geforce,driver>=535,driver<536"
)


@pytest.mark.parametrize(
    ("text", "machine", "holds"),
    [
        (CUDA_12_6, V100, True),
        (CUDA_12_6, Machine("545.23.08", "12.3", frozenset({12}), "7.0", "tesla"), False),
        (CUDA_12_6, Machine("560.35.05", "12.6", frozenset({12}), "7.0", "tesla"), True),
        ("brand=geforce,driver>=535", V100, False),
        ("brand!=geforce", V100, True),
        ("brand=quadro,driver>=535", Machine("535.1", None, frozenset(), "8.6"), True),
        ("cuda>=11.8", Machine("535.1", None, frozenset(), "7.0"), False),
        ("arch>=7.5", V100, False),
        ("arch=7.0,cuda<=12.2", V100, True),
        ("driver=535.309.01", V100, True),
        ("driver>535.309.1", V100, False),
        ("something else", V100, True),
    ],
)
def test_a_constraint_holds_for_a_machine(text: str, machine: Machine, holds: bool) -> None:
    assert satisfied(text, machine) is holds


def test_what_an_image_says_of_itself() -> None:
    environment = [
        "CUDA_VERSION=12.6.3",
        f"NVIDIA_REQUIRE_CUDA={CUDA_12_6}",
        "NVIDIA_REQUIRE_EMPTY=",
        "TORCH_CUDA_ARCH_LIST=7.5 8.0 9.0a+PTX",
        "PATH=/usr/bin",
    ]
    said = {"os": "linux", "architecture": "amd64", "config": {"Env": environment}}
    assert asks_of(said) == Asks(
        "linux/amd64",
        "12.6",
        ("7.5", "8.0", "9.0"),
        ptx=True,
        constraints=(("NVIDIA_REQUIRE_CUDA", CUDA_12_6),),
    )
    off = {**said, "config": {"Env": [*environment, "NVIDIA_DISABLE_REQUIRE=1"]}}
    assert asks_of(off).constraints == ()
    assert asks_of({"os": "linux", "architecture": "arm64", "config": None}) == Asks("linux/arm64")


def test_labels_of_our_own_containerfiles() -> None:
    labels = {
        "io.bedplate.cuda": "12.8",
        "io.bedplate.compute-capabilities": "7.0 7.5",
        "io.bedplate.ptx": "true",
    }
    said = {"os": "linux", "architecture": "amd64", "config": {"Labels": labels}}
    assert asks_of(said) == Asks("linux/amd64", "12.8", ("7.0", "7.5"), ptx=True)
    labels["io.bedplate.ptx"] = "false"
    assert not asks_of(said).ptx


@pytest.mark.parametrize(
    ("asks", "found"),
    [
        (Asks("linux/amd64"), []),
        (Asks("linux/amd64", "12.6", ("6.0", "7.0", "8.0")), []),
        (Asks("linux/amd64", "12.6", ("6.0",), ptx=True), []),
        (Asks("linux/arm64"), ["image is for another platform"]),
        (Asks("linux/amd64", "13.0"), ["driver is too old for the image's CUDA"]),
        (Asks("linux/amd64", "12.6", ("7.5", "8.0"), ptx=True), ["image has no code for the GPU"]),
        (
            Asks(
                "linux/amd64",
                "12.6",
                ("8.0",),
                constraints=(("NVIDIA_REQUIRE_CUDA", "cuda>=12.6"),),
            ),
            ["driver does not meet NVIDIA_REQUIRE_CUDA", "image has no code for the GPU"],
        ),
    ],
)
def test_what_keeps_an_image_from_a_machine(asks: Asks, found: list[str]) -> None:
    assert [one.what for one in mismatches(asks, V100)] == found


def test_the_machines_of_a_lock_have_their_drivers_cuda() -> None:
    lock, catalogue = load_lock(DEMO), load_catalogue()
    found = {name: machines(pool, catalogue) for name, pool in lock.pools.items()}
    assert {one.capability for one in found["pool_class"]} == {"7.5"}
    assert {one.capability for one in found["pool_train"]} == {"9.0"}
    for name, those in found.items():
        driver = lock.pools[name].nvidia_driver
        assert driver is not None
        assert {(one.driver, one.cuda, one.brand) for one in those} == {
            (driver.version, "12.2", "tesla")
        }
        assert all(one.majors == {11, 12} for one in those)


@pytest.fixture
def internet(tmp_path: Path) -> Served:
    """A registry with an image of another CUDA."""
    with serving(tmp_path) as there:
        yield there


def test_an_image_is_read_by_tag_and_by_digest(internet: Served) -> None:
    digest = internet.tree.image("nvcr.io/lab/own:1", environment=("CUDA_VERSION=13.0.1",))
    web = Web(internet.authority)
    places = Places(None, {})
    with internet.names():
        by_tag = asked(web, places, "nvcr.io/lab/own:1")
        assert asked(web, places, f"nvcr.io/lab/own@{digest}") == by_tag
        assert asked(web, places, f"nvcr.io/lab/own:1@{digest}") == by_tag
        assert asked(web, Places(internet.url, {}), f"nvcr.io/lab/own@{digest}") == by_tag
        with pytest.raises(ResolveError, match=r"image nvcr\.io/lab/own:2 is not found"):
            asked(web, places, "nvcr.io/lab/own:2")
    assert by_tag[1] == Asks("linux/amd64", "13.0")
    web.close()


def test_other_bytes_than_a_digests_are_refused(internet: Served) -> None:
    internet.tree.image("nvcr.io/lab/own:1", environment=("CUDA_VERSION=13.0.1",))
    for blob in (internet.tree.root / "registry").rglob("data"):
        if b"13.0.1" in blob.read_bytes():
            blob.write_bytes(blob.read_bytes().replace(b"13.0.1", b"12.0.1"))
    web = Web(internet.authority)
    with (
        internet.names(),
        pytest.raises(ResolveError, match=r"got content sha256:.* / allowed content sha256:"),
    ):
        asked(web, Places(None, {}), "nvcr.io/lab/own:1")
    web.close()


def test_the_command_names_pools_and_reasons(
    internet: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    text = (DEMO / ".bedplate.lock.yml").read_text()
    (site / ".bedplate.lock.yml").write_text(text.replace("http://10.213.0.1:5080", internet.url))
    internet.tree.image("nvcr.io/lab/own:1", environment=("CUDA_VERSION=13.0.1",))
    internet.tree.image("nvcr.io/lab/cpu:1")
    trusted = ["--ca", str(internet.authority)]
    assert cli.main(["mirror", "inspect", str(site), "nvcr.io/lab/own:1", *trusted]) == 2
    said = capsys.readouterr().out
    assert "  linux/amd64, CUDA 13.0\n  pool pool_class: does not run\n" in said
    assert (
        "driver is too old for the image's CUDA — pool pool_class — got CUDA 13.0 in "
        "nvcr.io/lab/own:1 / allowed CUDA 11 or 12 with driver " in said
    )
    assert cli.main(["mirror", "inspect", str(site), "nvcr.io/lab/cpu:1", *trusted]) == 0
    assert "pool pool_train: runs\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["mirror", "inspect", str(site), "own:1", *trusted])
    assert "own:1 is not HOST/NAME:TAG or HOST/NAME@sha256:…" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="3"):
        cli.main(["mirror", "inspect", str(site), "u:hunter2@nvcr.io/lab/own:1", *trusted])
    said = capsys.readouterr().err
    assert "IMAGE has a user or a password in it" in said
    assert "hunter2" not in said


def test_own_images_that_do_not_run_are_named_by_their_settings(internet: Served) -> None:
    """The site says nothing of the image's CUDA, so the plan accepts it; the registry says it."""
    new = internet.tree.image("nvcr.io/lab/own:1", environment=("CUDA_VERSION=13.0.1",))
    plain = internet.tree.image("nvcr.io/lab/cpu:1")
    images = {
        "gone": TeamImage(image=f"nvcr.io/lab/gone@sha256:{'1' * 64}", pool="pool_train"),
        "new": TeamImage(image=f"nvcr.io/lab/own@{new}", pool="pool_class"),
        "plain": TeamImage(image=f"nvcr.io/lab/cpu@{plain}", pool="pool_class"),
    }
    lock = load_lock(DEMO)
    assert lock.cluster is not None
    web, places, catalogue = Web(internet.authority), Places(internet.url, {}), load_catalogue()
    lock = lock.model_copy(update={"cluster": lock.cluster.model_copy(update={"images": images})})
    wrong = unfit(web, places, lock, catalogue)
    web.close()
    said = {setting: [one.what for one in problems] for setting, problems in wrong.items()}
    assert said == {
        "bedplate_images.gone": [f"image nvcr.io/lab/gone@sha256:{'1' * 64} is not found"],
        "bedplate_images.new": ["driver is too old for the image's CUDA"],
    }
    assert wrong["bedplate_images.new"][0].file == "pool pool_class"
