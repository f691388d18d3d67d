"""Whether an own image has what a notebook starts with, read from layers in a registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.bill.errors import ResolveError
from bedplate.bill.file import load_bill, write_bill
from bedplate.bill.match import differences
from bedplate.bill.model import Bill
from bedplate.bill.needs import Needs, Starts, own_of
from bedplate.bill.notebook import of_image
from bedplate.bill.partial import Partial
from bedplate.bill.places import Places
from bedplate.bill.resolve import Resolver
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.cli import main as cli
from bedplate.common.errors import Problem
from bedplate.lock import load_lock
from bedplate.lock.courses import Course, Share
from bedplate.lock.model import TeamImage
from tests.substrate.internet.faults import Fault
from tests.substrate.internet.fixtures import serving
from tests.unit.mirror.conftest import DEMO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.internet.fixtures import Served

NAME = "nvcr.io/lab/own"
STARTS = Starts("5.5.0")
PACKAGES = "opt/python/lib/python3.12/site-packages"
PROGRAM = "opt/python/bin/jupyterhub-singleuser"
#: Of layers: a file's content, a folder or link by its kind; then mode, user and group.
USERS = ("root:x:0:0:root:/root:/bin/sh\njovyan:x:1000:100::/home/jovyan:/bin/sh\n", 0o644, 0, 0)
HOME = (tarfile.DIRTYPE, 0o750, 1000, 100)
FILE = ("", 0o755, 0, 0)
BASE: dict[str, tuple[Any, int, int, int]] = {"etc/passwd": USERS, "home/jovyan/": HOME}
HUB = {PROGRAM: FILE, f"{PACKAGES}/jupyterhub-5.5.2.dist-info/METADATA": FILE}
LAB = {f"{PACKAGES}/jupyterlab-4.6.6.dist-info/METADATA": FILE}
CONFIG = {
    "Env": ["PATH=/opt/python/bin:/usr/bin"],
    "WorkingDir": "/home/jovyan",
    "Entrypoint": ["tini", "-g", "--"],
}
FOUND = {"python": "3.12", "jupyterhub": "5.5.2", "jupyterlab": "4.6.6"}


def layer(files: dict[str, Any], mode: str = "w:gz") -> bytes:
    """Return a layer's bytes."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, (content, bits, user, group) in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.mode, entry.uid, entry.gid = bits, user, group
            if isinstance(content, bytes):
                entry.type = content
                tar.addfile(entry)
            elif content.startswith("-> "):
                entry.type, entry.linkname = tarfile.SYMTYPE, content[3:]
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content.encode()))
    # Without the time, so that the same files have the same digest.
    return gzip.compress(target.getvalue(), mtime=0) if mode == "w:gz" else target.getvalue()


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A registry."""
    with serving(tmp_path_factory.mktemp("internet")) as there:
        yield there


def looked_at(
    internet: Served, digest: str, starts: Starts = STARTS
) -> tuple[dict[str, str], list[Problem]]:
    """Read an image in the registry."""
    web = Web(internet.authority)
    try:
        return of_image(web, Places(internet.url, {}), f"{NAME}@{digest}", starts)
    finally:
        web.close()


def read(
    internet: Served, *layers: bytes, starts: Starts = STARTS, **config: object
) -> tuple[dict[str, str], list[str]]:
    """Return versions and problems of an image of these layers, the oldest first."""
    digest = internet.tree.image(f"{NAME}:1", layers, config={**CONFIG, **config})
    versions, wrong = looked_at(internet, digest, starts)
    before = "image does not start as a notebook: "
    return versions, [f"{one.what.removeprefix(before)} | {one.got} | {one.fix}" for one in wrong]


def test_what_a_notebook_starts_with_is_found_and_older_layers_are_not_read(
    internet: Served,
) -> None:
    assert read(internet, b"no tar", layer(BASE | HUB | LAB)) == (FOUND, [])
    # A notebook's layer, and what a teacher has added to it.
    more = {f"{PACKAGES}/pandas-3.0.0.dist-info/METADATA": FILE}
    assert read(internet, layer(BASE), layer(HUB | LAB, "w"), layer(more)) == (FOUND, [])


def test_the_newest_layer_covers_what_older_ones_have(internet: Served) -> None:
    newer = {
        f"{PACKAGES}/.wh.jupyterhub-5.5.2.dist-info": FILE,
        f"{PACKAGES}/jupyterhub-5.6.0.dist-info/METADATA": FILE,
    }
    whole = layer(BASE | HUB | LAB)
    assert read(internet, whole, layer(newer)) == (FOUND | {"jupyterhub": "5.6.0"}, [])
    _, wrong = read(internet, whole, layer({"opt/python/bin/.wh.jupyterhub-singleuser": FILE}))
    assert wrong == [
        (
            "jupyterhub-singleuser is not in PATH | none in /opt/python/bin:/usr/bin | "
            "add to its Containerfile: RUN pip install jupyterhub==5.5.0 jupyterlab"
        )
    ]
    for gone in ("opt/.wh..wh..opq", "opt/.wh.python", ".wh..wh..opq"):
        versions, wrong = read(internet, whole, layer({gone: FILE}))
        assert versions == {}
        assert wrong[0].startswith("jupyterhub-singleuser is not in PATH | none in ")


def test_a_program_that_is_a_link_has_the_packages_of_where_it_leads(internet: Served) -> None:
    linked = {"usr/bin/jupyterhub-singleuser": link("../../opt/python/bin/it")}
    path = ["PATH=/usr/local/bin:/usr/bin"]
    assert read(internet, layer(BASE | HUB | LAB | linked), Env=path) == (FOUND, [])
    _, wrong = read(internet, layer(BASE | HUB | LAB), Env=path)
    assert wrong == [
        (
            "jupyterhub-singleuser is not in PATH | PATH /usr/local/bin:/usr/bin, the program in "
            "/opt/python/bin | add to its Containerfile: ENV PATH=/opt/python/bin:$PATH"
        )
    ]


def link(to: str) -> tuple[Any, int, int, int]:
    """Return a symbolic link."""
    return (f"-> {to}", 0o777, 0, 0)


def under(prefix: str, files: dict[str, Any], kind: str = "site") -> dict[str, Any]:
    """Return a Python's files in another folder."""
    return {
        name.replace("opt/python", prefix).replace("site-", f"{kind}-"): one
        for name, one in files.items()
    }


@pytest.mark.parametrize("to", ["/opt/python", "python", "../opt/./it", "conda"])
def test_a_folder_of_path_may_be_a_link(internet: Served, to: str) -> None:
    """As /opt/conda, where Miniforge lies elsewhere."""
    path = ["PATH=/opt/conda/bin:/usr/bin"]
    links = layer({"opt/conda": link(to), "opt/it": link("/opt/python/")})
    versions, wrong = read(internet, links, layer(BASE | HUB | LAB), Env=path)
    if to == "conda":  # a circle leads nowhere
        assert (versions, len(wrong)) == ({}, 1)
        assert wrong[0].startswith("jupyterhub-singleuser is not in PATH | PATH /opt/conda/bin:")
    else:
        assert (versions, wrong) == (FOUND, [])


def test_a_link_hides_what_an_older_layer_has_in_a_folder_of_its_name(internet: Served) -> None:
    path = ["PATH=/opt/conda/bin"]
    older, newer = layer(under("opt/conda", HUB | LAB)), layer(BASE | {"opt/conda": link("x")})
    versions, wrong = read(internet, older, newer, Env=path)
    assert versions == {}
    assert wrong[0].startswith("jupyterhub-singleuser is not in PATH | none in /opt/conda/bin")
    # And a folder is no link any more, though an older layer has one there.
    folder = BASE | {"opt/conda/": (tarfile.DIRTYPE, 0o755, 0, 0)} | under("opt/conda", HUB | LAB)
    assert read(internet, layer({"opt/conda": link("x")}), layer(folder), Env=path) == (FOUND, [])


def test_the_home_may_lie_behind_a_link(internet: Served) -> None:
    files = {"etc/passwd": USERS, "home": link("srv/homes"), "srv/homes/jovyan/": HOME}
    assert read(internet, layer(files | HUB | LAB)) == (FOUND, [])


@pytest.mark.parametrize(
    ("says", "base", "kind", "home"),
    [
        ("include-system-site-packages = true\n", "opt/conda", "site", "/opt/conda/bin"),
        ("Include-System-Site-Packages=TRUE\n", "opt/conda", "site", "/opt/linked/bin"),
        ("", "opt/conda", "site", "/opt/conda/bin"),
        ("include-system-site-packages = true\n", "usr/local", "dist", "/usr/bin"),
        ("include-system-site-packages = true\n", "opt/conda", "site", "/usr/local/bin"),
        ("include-system-site-packages = false\n", "opt/conda", "site", "/opt/conda/bin"),
    ],
)
def test_a_virtual_environment_has_the_packages_that_it_says(
    internet: Served, says: str, base: str, kind: str, home: str
) -> None:
    """Its own come first; NVIDIA's images have theirs in /usr/local, of Ubuntu's Python."""
    older = {f"{PACKAGES}/jupyterhub-4.1.6.dist-info/METADATA": FILE} | LAB
    python = layer(BASE | under(base, older, kind) | {"opt/linked": link("conda")})
    linked = {"usr/local/bin/python3": link("/opt/conda/bin/python3.12")}
    settings = (f"home = {home}\n{says}version = 3.12.3\n", 0o644, 0, 0)
    own = under("opt/venv", HUB) | {"opt/venv/pyvenv.cfg": settings}
    path = ["PATH=/opt/venv/bin:/usr/bin"]
    versions, wrong = read(
        internet, python, layer(linked if home == "/usr/local/bin" else {}), layer(own), Env=path
    )
    if "false" in says:
        where = "none in the Python of /opt/venv/bin/jupyterhub-singleuser"
        fix = "add to its Containerfile: RUN pip install jupyterlab"
        assert wrong == [f"jupyterlab is missing | {where} | {fix}"]
    else:
        assert (versions, wrong) == (FOUND, [])


def test_debians_python_has_the_packages_of_both_its_folders(internet: Served) -> None:
    """JupyterHub of apt, JupyterLab of pip: one program, two folders."""
    apt = {
        "usr/bin/jupyterhub-singleuser": FILE,
        "usr/lib/python3/dist-packages/jupyterhub-5.5.2.egg-info/PKG-INFO": FILE,
    }
    pip = {"usr/local/lib/python3.12/dist-packages/jupyterlab-4.6.6.dist-info/METADATA": FILE}
    assert read(internet, layer(BASE | apt), layer(pip)) == (FOUND, [])


def test_a_path_that_no_file_can_have_is_no_file(internet: Served) -> None:
    deep = "a/" * 60_000
    files = {f"{deep}{PROGRAM}": FILE, "opt/conda": link(deep), "opt/.wh.x": FILE}
    path = [f"PATH=/{deep}:/opt/python/bin:/opt/conda/bin"]
    assert read(internet, layer(BASE | HUB | LAB), layer(files), Env=path) == (FOUND, [])


@pytest.mark.parametrize(
    ("files", "config", "wrong"),
    [
        ({PROGRAM: ("", 0o700, 0, 0)}, {}, "user 1000 cannot run jupyterhub-singleuser | mode 700"),
        ({"etc/passwd": ("", 0o644, 0, 0)}, {}, "user 1000 is missing | none in /etc/passwd"),
        ({"etc/passwd": ("-> ../x", 0o777, 0, 0)}, {}, "user 1000 is missing | none in /etc/pass"),
        (
            {"etc/passwd": ("me:x:1000:100::/home/me:/bin/sh", 0o644, 0, 0)},
            {},
            "home of user 1000 is another folder | /home/me | add to its Containerfile: ENV HOME=/",
        ),
        ({}, {"Env": ["PATH=/opt/python/bin", "HOME=/tmp"]}, "home of user 1000 is another folder"),
        ({"home/jovyan/": FILE}, {}, "home of user 1000 is missing | no folder /home/jovyan"),
        (
            {"home/jovyan/": (tarfile.DIRTYPE, 0o755, 0, 0)},
            {},
            "user 1000 cannot write in the home | /home/jovyan of user 0 and group 0 with mode 755",
        ),
        ({}, {"WorkingDir": "/app"}, "it starts in another folder than the home, and files are"),
        ({}, {"WorkingDir": ""}, "it starts in another folder than the home, and files are lost"),
        ({}, {"Entrypoint": ["/bin/sh", "-c", "run.sh"]}, "its entrypoint does not run its argu"),
        (
            {},
            {"Entrypoint": ["/bin/bash"]},
            "its entrypoint does not run its arguments | /b",
        ),
        ({}, {"Entrypoint": ["python3", "-u"]}, "its entrypoint does not run its arguments"),
        ({}, {"Entrypoint": ["jupyter", "lab"]}, "its entrypoint does not run its arguments"),
    ],
)
def test_what_keeps_an_image_from_starting(
    internet: Served, files: dict[str, Any], config: dict[str, object], wrong: str
) -> None:
    versions, found = read(internet, layer(BASE | HUB | LAB | files), **config)
    assert versions == FOUND
    assert len(found) == 1
    assert found[0].startswith(wrong)


@pytest.mark.parametrize(
    "config",
    [
        {"Entrypoint": None},
        {"Entrypoint": ["/bin/bash", "-lc"]},
        {"Entrypoint": ["bash", "-c", 'source /opt/x && exec "$@"', "--"]},
        {"Entrypoint": ["/bin/sh", "/entry.sh"]},
        {"Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"]},
        {"WorkingDir": "/home/jovyan/"},
    ],
)
def test_what_does_not(internet: Served, config: dict[str, object]) -> None:
    groups = {"home/jovyan/": (tarfile.DIRTYPE, 0o775, 0, 100), PROGRAM: ("", 0o750, 0, 100)}
    assert read(internet, layer(BASE | HUB | LAB | groups), **config) == (FOUND, [])


def test_what_lies_in_the_home_is_covered_where_students_have_homes(internet: Served) -> None:
    """As `pip install --user` leaves it: it starts, until the student's own folder is mounted."""
    under = {
        name.replace("opt/python", "home/jovyan/.local"): one for name, one in (HUB | LAB).items()
    }
    given = {"Env": ["PATH=/home/jovyan/.local/bin:/usr/bin"]}
    image = layer(BASE | under)
    assert read(internet, image, **given) == (FOUND, [])
    _, wrong = read(internet, image, starts=replace(STARTS, homes=True), **given)
    assert wrong == [
        (
            "students' homes cover jupyterhub-singleuser | "
            "/home/jovyan/.local/bin/jupyterhub-singleuser | add to its Containerfile: "
            "USER root, then RUN pip install jupyterhub==5.5.0 jupyterlab"
        )
    ]


def test_packages_are_those_of_the_programs_python(internet: Served) -> None:
    elsewhere = {name.replace("opt/python", "opt/other"): one for name, one in LAB.items()}
    _, wrong = read(internet, layer(BASE | HUB | elsewhere))
    where = f"none in the Python of /{PROGRAM}"
    fix = "add to its Containerfile: RUN pip install"
    assert wrong == [f"jupyterlab is missing | {where} | {fix} jupyterlab"]
    _, wrong = read(internet, layer(BASE | HUB | LAB), starts=Starts("5.5.0", material=True))
    assert wrong == [f"nbgitpuller is missing | {where} | {fix} nbgitpuller"]
    versions, wrong = read(internet, layer(BASE | HUB | LAB), starts=Starts("6.0.1"))
    assert versions == FOUND
    assert wrong == [
        f"its JupyterHub is of another major version | 5.5.2 | {fix} jupyterhub==6.0.1 jupyterlab"
    ]


def test_a_layer_that_cannot_be_read_is_no_answer(internet: Served) -> None:
    with pytest.raises(ResolveError, match=r"a layer of image nvcr.io/lab/own@.* cannot be read"):
        read(internet, b"\x28\xb5\x2f\xfd zstd")
    # Of the same size: another one is refused before it is read.
    right, other = (layer(BASE | HUB | LAB | {name: FILE}, "w") for name in "xy")
    digest = internet.tree.image(f"{NAME}:2", (right,), config=CONFIG)
    (blob,) = [
        one for one in (internet.tree.root / "registry").rglob("data") if one.read_bytes() == right
    ]
    blob.write_bytes(other)
    with pytest.raises(ResolveError, match="allowed content sha256:"):
        looked_at(internet, digest)


def test_a_layer_that_breaks_off_is_taken_up(internet: Served) -> None:
    content = layer(BASE | HUB | LAB)
    blob = f"*{hashlib.sha256(content).hexdigest()}"
    with internet.records.fault(Fault(path=blob, cut=True, times=1)):
        assert read(internet, content) == (FOUND, [])


def needed(digest: str, **course: Any) -> Needs:
    """What the demo's lock needs of an own image that a course has, and a job another one."""
    lock = load_lock(DEMO)
    assert lock.cluster is not None
    image = TeamImage(image=f"{NAME}@{digest}", pool="pool_class")
    share = Share(resource="nvidia.com/gpu.shared", count=1)
    taught = Course(
        students=2, share=share, pool="pool_class", frameworks=["mine"], idle_timeout_s=60, **course
    )
    images = {"mine": image, "job": image.model_copy(update={"image": f"nvcr.io/job@{digest}"})}
    cluster = lock.cluster.model_copy(update={"images": images, "courses": {"intro": taught}})
    own = own_of(lock.model_copy(update={"cluster": cluster}), load_catalogue())
    return Needs(images=dict(own))


def test_a_bill_has_own_images_of_courses_once_they_are_read(
    internet: Served, tmp_path: Path
) -> None:
    """A bill from before, or without the material's program, is out of date."""
    fetches = {f"{PACKAGES}/nbgitpuller-1.3.0.dist-info/METADATA": FILE}
    whole = layer(BASE | HUB | LAB | fetches)
    digest = internet.tree.image(f"{NAME}:3", (whole,), config=CONFIG)
    internet.tree.image("nvcr.io/job:3", (whole,), config=CONFIG)
    needs = needed(digest)
    (mine, asked), (job, other) = sorted(needs.images.items(), reverse=True)
    assert (mine.partition(":")[0], asked.starts, other.starts) == (NAME, STARTS, None)
    web, places = Web(internet.authority), Places(internet.url, {})
    resolver = Resolver(web, places, {}, Bill(), Partial(tmp_path, {}), tmp_path / "bill.yml")
    bill = resolver.bill(needs)
    assert (bill.images[mine].notebook, bill.images[job].notebook) == (FOUND, {})
    assert not list(differences(needs, bill))
    unread = bill.images[mine].model_copy(update={"notebook": {}})
    before = bill.model_copy(update={"images": {**bill.images, mine: unread}})
    said = ["bedplate_images.mine was not checked as a notebook"]
    assert list(differences(needs, before)) == said
    with_material = needed(digest, material="https://x/y")
    assert list(differences(with_material, bill)) == said
    # An interrupted run goes on with what it has found, but for what is needed since.
    again = resolver.bill(with_material)
    assert again.images[mine].notebook == FOUND | {"nbgitpuller": "1.3.0"}
    assert not list(differences(with_material, again))
    # Layers of a digest are read once: a blob that is gone is not missed.
    for blob in (internet.tree.root / "registry").rglob("data"):
        if blob.read_bytes() == whole:
            blob.unlink()
    resolver.partial.done()
    later = replace(resolver, before=again, partial=Partial(tmp_path, {}))
    assert later.bill(with_material).images == again.images
    web.close()


def test_a_course_image_that_does_not_start_holds_up_nothing_else(
    internet: Served, tmp_path: Path
) -> None:
    digest = internet.tree.image(f"{NAME}:4", (layer(BASE | HUB),), config=CONFIG)
    internet.tree.image("nvcr.io/job:4", (layer(BASE | HUB),), config=CONFIG)
    web, places = Web(internet.authority), Places(internet.url, {})
    resolver = Resolver(web, places, {}, Bill(), Partial(tmp_path, {}), tmp_path / "bill.yml")
    needs = needed(digest)
    bill = resolver.bill(needs)
    web.close()
    assert [one.needed_by for one in bill.images.values()] == ["bedplate_images.job"]
    ((name, refused),) = bill.refused.items()
    assert (name.partition(":")[0], refused.needed_by) == (NAME, "bedplate_images.mine")
    assert not list(differences(needs, bill))
    write_bill(tmp_path, bill)
    assert load_bill(tmp_path) == bill
    corrected = needed(f"sha256:{'1' * 64}")
    assert f"{name} is not needed" in list(differences(corrected, bill))
    assert refused.reason == (
        f"image does not start as a notebook: jupyterlab is missing — {NAME}@{digest} "
        f"bedplate_images.mine — got none in the Python of /{PROGRAM} / allowed jupyterlab — "
        "add to its Containerfile: RUN pip install jupyterlab"
    )


def test_an_own_image_out_of_reach_keeps_its_entry_and_one_that_was_never_read_is_refused(
    internet: Served, tmp_path: Path
) -> None:
    digest = internet.tree.image(f"{NAME}:7", (layer(BASE | HUB | LAB),), config=CONFIG)
    internet.tree.image("nvcr.io/job:7", (layer(BASE | HUB | LAB),), config=CONFIG)
    web, places = Web(internet.authority), Places(internet.url, {})
    resolver = Resolver(web, places, {}, Bill(), Partial(tmp_path, {}), tmp_path / "bill.yml")
    before = resolver.bill(needed(digest))
    resolver.partial.done()
    gone = Fault(path="/v2/nvcr.io/*", status=404)
    for known, kept in ((before, 2), (Bill(), 0)):
        later = replace(resolver, before=known, partial=Partial(tmp_path, {}), unread={})
        with internet.records.fault(gone):
            bill = later.bill(needed(digest))
        assert (len(bill.images), len(bill.refused)) == (kept, 2 - kept)
        assert len(later.unread) == kept
    # The driver of its pool is another one since: what it says of itself counts.
    wrong = Problem("driver is too old", "pool pool_class", rule="image")
    unfit = {"bedplate_images.mine": [wrong]}
    bill = replace(resolver, before=before, partial=Partial(tmp_path, {}), unfit=unfit).bill(
        needed(digest)
    )
    web.close()
    assert [one.needed_by for one in bill.refused.values()] == ["bedplate_images.mine"]
    assert "driver is too old" in next(iter(bill.refused.values())).reason


def test_the_command_says_whether_an_image_starts(
    internet: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DEMO / ".bedplate.lock.yml").read_text()
    (tmp_path / ".bedplate.lock.yml").write_text(
        text.replace("http://10.213.0.1:5080", internet.url)
    )
    internet.tree.image(f"{NAME}:5", (layer(BASE | HUB | LAB),), config=CONFIG)
    internet.tree.image(f"{NAME}:6", (layer(BASE),), config=CONFIG)
    command = ["mirror", "inspect", str(tmp_path), "--ca", str(internet.authority), "--notebook"]
    assert cli.main([*command, f"{NAME}:5"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "  notebook: has Python 3.12, JupyterHub 5.5.2, JupyterLab 4.6.6"
    assert cli.main([*command, f"{NAME}:6"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "  notebook: does not start"
    assert lines[-1].startswith(
        "    image does not start as a notebook: jupyterhub-singleuser is not in PATH — "
    )
