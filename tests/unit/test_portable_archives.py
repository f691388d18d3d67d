"""Archives on disk: complete or absent, known by digest, and never outside their folder."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from bedplate.portable import archives
from bedplate.portable.archives import Archive, defect, ensure
from bedplate.portable.fetch import workplace

if TYPE_CHECKING:
    from collections.abc import Callable

Member = tuple[str, bytes, int] | tarfile.TarInfo


def pack(path: Path, members: list[Member]) -> str:
    """Write a tar.gz and return its digest."""
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, content, mode = member
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names(folder: Path | str) -> list[str]:
    return sorted(entry.name for entry in Path(folder).iterdir())


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Archive]:
    def build(
        version: str = "1.0", members: list[Member] | None = None, **extra: object
    ) -> Archive:
        packed = tmp_path / f"tool-{version}.tar.gz"
        content: list[Member] = members or [("bin/tool", version.encode(), 0o755)]
        digest = pack(packed, content)
        wish: dict[str, object] = {
            "name": "tool",
            "version": version,
            "url": packed.as_uri(),
            "sha256": digest,
            "dest": str(tmp_path / "store/tool" / version),
            "links": ((str(tmp_path / "usr/tool"), "bin/tool"),),
        }
        return Archive(**(wish | extra))  # type: ignore[arg-type]

    return build


def test_installs_once_and_then_needs_no_source(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    archive = make()
    first = ensure([archive])
    assert first.problems == []
    assert first.changes == [
        f"{archive.dest}: absent -> 1.0",
        f"{tmp_path}/usr/tool: absent -> {archive.dest}/bin/tool",
    ]
    assert (tmp_path / "usr/tool").read_bytes() == b"1.0"
    assert os.access(tmp_path / "usr/tool", os.X_OK)
    (tmp_path / "tool-1.0.tar.gz").unlink()
    assert ensure([archive]) == ([], [], [])


def test_who_waits_for_another_takes_what_that_one_has_brought(
    make: Callable[..., Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make()
    waits, outcomes, fetched = threading.Event(), [], []

    def opener(url: str) -> IO[bytes]:
        fetched.append(url)
        raise AssertionError(f"{url} was fetched again")

    def seen(path: str) -> object:
        waits.set()
        return workplace(path)

    other = make(dest=archive.dest + ".elsewhere", links=())
    assert ensure([other]).problems == []
    with workplace(archive.dest):
        monkeypatch.setattr(archives, "workplace", seen)
        late = threading.Thread(target=lambda: outcomes.append(ensure([archive], opener=opener)))
        late.start()
        assert waits.wait(120)  # it has seen that nothing is there
        Path(other.dest).rename(archive.dest)
    late.join(120)
    assert fetched == []
    (outcome,) = outcomes
    assert outcome.problems == []
    assert defect(archive) == ""


def test_check_mode_says_the_same_and_writes_nothing(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    archive = make()
    told = ensure([archive], check=True)
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "usr").exists()
    assert told.changes == ensure([archive]).changes


def test_a_changed_program_is_found_and_replaced(make: Callable[..., Archive]) -> None:
    archive = make()
    ensure([archive])
    program = Path(archive.dest, "bin/tool")
    program.write_bytes(b"1.0evil")
    assert defect(archive) == "bin/tool was changed"
    assert ensure([archive]).changes == [f"{archive.dest}: bin/tool was changed -> 1.0"]
    assert program.read_bytes() == b"1.0"
    program.unlink()
    assert defect(archive) == "bin/tool is missing"


def test_another_digest_is_refused_and_leaves_nothing(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    archive = make(sha256="0" * 64)
    packed = tmp_path / "tool-1.0.tar.gz"
    digest, size = hashlib.sha256(packed.read_bytes()).hexdigest(), packed.stat().st_size
    outcome = ensure([archive])
    assert outcome.problems == [
        (
            f"tool 1.0: the download has another digest — {archive.url} — "
            f"got sha256:{digest} ({size} bytes) / allowed sha256:{'0' * 64} — Nothing was "
            "installed. If the source was rebuilt, make the plan and the mirror again; otherwise"
            " do "
            "not trust this source."
        )
    ]
    assert outcome.changes == []
    assert names(tmp_path / "store/tool") == []
    assert not (tmp_path / "usr").exists()


def test_a_source_that_does_not_answer_is_named_and_the_others_are_installed(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    lost = make(url=(tmp_path / "nowhere.tar.gz").as_uri())
    good = make("2.0")
    outcome = ensure([lost, good])
    assert len(outcome.problems) == 1
    assert outcome.problems[0].startswith(f"tool 1.0: the download failed — {lost.url} — got ")
    assert outcome.problems[0].endswith(
        "allowed a server that answers with the file — Check the address with curl on this host; "
        "behind a proxy, set bedplate_proxy."
    )
    assert defect(good) == ""


@pytest.mark.parametrize("style", ["bare", "list"])
def test_the_digest_may_come_from_a_checksum_file(
    style: str, make: Callable[..., Archive], tmp_path: Path
) -> None:
    archive = make()
    sums = tmp_path / "sums.sha256"
    other = f"{'1' * 64}  other.tar.gz\n{archive.sha256} *tool-1.0.tar.gz\n"
    sums.write_text(archive.sha256 if style == "bare" else other)
    archive = archive._replace(sha256=sums.as_uri())
    assert ensure([archive]).problems == []
    sums.unlink()
    assert ensure([archive]) == ([], [], [])


def test_a_checksum_file_that_names_something_else_is_refused(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    sums = tmp_path / "sums.sha256"
    sums.write_text(f"{'1' * 64}  other.tar.gz\n")
    archive = make(sha256=sums.as_uri())
    assert ensure([archive]).problems == [
        (
            f"tool 1.0: the checksum file does not name the download — {sums.as_uri()} — "
            "got 1 line(s), none for tool-1.0.tar.gz / allowed a SHA-256, bare or with that "
            "file name — Correct the address of the checksum file, or give the digest itself."
        )
    ]


def symlink(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


@pytest.mark.parametrize(
    ("members", "member", "why"),
    [
        ([("../evil", b"x", 0o644)], "../evil", "a path that leaves the folder"),
        ([("/etc/evil", b"x", 0o644)], "/etc/evil", "an absolute path"),
        ([symlink("link", "/etc")], "link", "a link to /etc"),
        ([symlink("a/link", "../../x")], "a/link", "a link to ../../x"),
        (
            [symlink("d", "."), symlink("d/e", ".."), ("d/e/evil", b"x", 0o644)],
            "d/e",
            "a link to ..",
        ),
    ],
)
def test_an_archive_that_leaves_its_folder_is_refused(
    members: list[Member], member: str, why: str, make: Callable[..., Archive], tmp_path: Path
) -> None:
    archive = make(members=members, links=())
    expected = (
        f"tool 1.0: the archive cannot be unpacked safely — tool-1.0.tar.gz: {member} — "
        f"got {why} / allowed files, folders and links that stay inside the archive — "
        "Do not trust this archive; get it from its publisher."
    )
    if member == "d/e":  # "d/.." normalises to the folder itself; writing through it is refused
        assert ensure([archive]).problems
    else:
        assert ensure([archive]).problems == [expected]
    assert names(tmp_path / "store/tool") == []
    assert not (tmp_path / "store/evil").exists()


def test_members_and_strip_choose_what_is_taken(make: Callable[..., Archive]) -> None:
    members: list[Member] = [("top/bin/tool", b"t", 0o755), ("top/README", b"r", 0o644)]
    archive = make(members=members)
    archive = archive._replace(strip=1, members=("bin/tool",))
    assert ensure([archive]).problems == []
    assert names(archive.dest) == [".bedplate.json", "bin"]
    lacking = archive._replace(members=("bin/other",), dest=archive.dest + "-b")
    assert ensure([lacking]).problems == [
        (
            "tool 1.0: the archive lacks what is to be installed — tool-1.0.tar.gz — got no file / "
            "allowed bin/other — Check the version, and the number of leading folders to strip."
        )
    ]


def test_a_file_is_a_program_of_the_given_name(
    tmp_path: Path, make: Callable[..., Archive]
) -> None:
    program = tmp_path / "runc.amd64"
    program.write_bytes(b"elf")
    archive = make()._replace(
        url=program.as_uri(),
        sha256=hashlib.sha256(b"elf").hexdigest(),
        layout="file",
        members=("runc",),
        links=((str(tmp_path / "usr/runc"), "runc"),),
    )
    assert ensure([archive]).problems == []
    assert (tmp_path / "usr/runc").read_bytes() == b"elf"
    assert os.access(tmp_path / "usr/runc", os.X_OK)


def test_a_folder_of_links_takes_the_programs_only(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    members: list[Member] = [
        ("./bridge", b"b", 0o755),
        ("./loopback", b"l", 0o755),
        ("./LICENSE", b"", 0o644),
    ]
    archive = make(members=members, links=((f"{tmp_path}/cni/", "."),))
    assert ensure([archive]).problems == []
    assert names(tmp_path / "cni") == ["bridge", "loopback"]
    assert ensure([archive]) == ([], [], [])


def lacks(archive: Archive, path: str, got: str, allowed: str) -> str:
    """Return the message about a link that would lead to nothing."""
    return (
        f"tool 1.0: the archive lacks the file that a link is to lead to — tool-1.0.tar.gz: {path} "
        f"— got {got} / allowed {allowed} — Nothing was linked. Check the version, the layout and "
        "the number of leading folders to strip."
    )


def test_an_archive_of_another_layout_is_not_installed(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    path, folder = str(tmp_path / "usr/tool"), f"{tmp_path}/cni/"
    packages: list[Member] = [(f"packages/{n}.deb", b"", 0o644) for n in range(10)]
    archive = make(members=packages, links=((str(tmp_path / "usr/a"), "packages/0.deb"),))
    one = archive._replace(links=((path, "bin/tool"),))
    shown = ", ".join(f"packages/{n}.deb" for n in range(8)) + " and 2 more"
    assert ensure([one]) == ([], [], [lacks(one, path, shown, "bin/tool")])
    all_of_a_folder = archive._replace(links=(*archive.links, (folder, "packages")))
    allowed = "a program in packages"
    assert ensure([all_of_a_folder]).problems == [lacks(one, folder, shown, allowed)]
    assert names(tmp_path / "store/tool") == []
    assert not (tmp_path / "usr").exists()
    assert ensure([archive]).problems == []


def test_a_link_that_leads_to_nothing_is_found_and_mended(
    make: Callable[..., Archive], tmp_path: Path
) -> None:
    """An earlier version linked what the archive does not have; a wish may name another file."""
    archive = make(members=[("bin/tool", b"t", 0o755), symlink("bin/also", "tool")])
    ensure([archive])
    path = str(tmp_path / "usr/other")
    more = archive._replace(links=(*archive.links, (path, "bin/other")))
    assert defect(more) == f"bin/other, which {path} is to lead to, is missing"
    assert ensure([more]).problems == [lacks(more, path, "bin/tool", "bin/other")]
    assert defect(archive) == "", "what is there stays"
    also = archive._replace(links=((path, "bin/also"),))
    assert defect(also) == ""
    Path(archive.dest, "bin/also").unlink()
    assert ensure([also]).changes[0].startswith(f"{archive.dest}: bin/also, which {path} is to ")
    assert (tmp_path / "usr/other").read_bytes() == b"t"


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("sha256", ["", "A" * 64])
def test_an_artefact_without_a_digest_is_refused(
    sha256: str, check: bool, make: Callable[..., Archive], tmp_path: Path
) -> None:
    archive = make(sha256=sha256, url="https://user:secret@192.0.2.1/tool-1.0.tar.gz")
    refused = (
        "tool 1.0: the artefact has no digest to know it by — https://192.0.2.1/tool-1.0.tar.gz — "
        f"got {sha256 or 'none'} / allowed a SHA-256 in lower-case hexadecimal, or the URL of a "
        "checksum file — Nothing is installed whose digest is not known. Where a site decides, "
        "resolve its artefacts again; otherwise give the digest."
    )
    assert ensure([archive], check=check) == ([], [], [refused])
    assert not (tmp_path / "store").exists()


def test_held_links_stay_and_are_told(make: Callable[..., Archive], tmp_path: Path) -> None:
    old, new = make("1.0"), make("2.0")
    ensure([old], hold_links=True)
    assert (tmp_path / "usr/tool").read_bytes() == b"1.0", "an absent link is set all the same"
    outcome = ensure([new], hold_links=True)
    assert outcome.changes == [f"{new.dest}: absent -> 2.0"]
    assert outcome.pending == [f"{tmp_path}/usr/tool: {old.dest}/bin/tool -> {new.dest}/bin/tool"]
    assert (tmp_path / "usr/tool").read_bytes() == b"1.0"
    ensure([new])
    assert (tmp_path / "usr/tool").read_bytes() == b"2.0"


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        ({"sha256": "0" * 64}, "another archive (sha256:{digest})"),
        ({"strip": 1}, "unpacked otherwise"),
    ],
)
def test_a_held_folder_is_not_exchanged_under_its_links(
    make: Callable[..., Archive], tmp_path: Path, other: dict[str, object], wrong: str
) -> None:
    archive = make()
    ensure([archive])
    told = f"{archive.dest}: {wrong.format(digest=archive.sha256)} -> 1.0"
    held = ensure([archive._replace(**other)], hold_links=True)  # type: ignore[arg-type]
    assert held == ([], [told], [])
    assert defect(archive) == ""
    assert (tmp_path / "usr/tool").read_bytes() == b"1.0"


def test_a_held_folder_that_was_damaged_is_repaired(make: Callable[..., Archive]) -> None:
    archive = make()
    ensure([archive])
    Path(archive.dest, "bin/tool").unlink()
    outcome = ensure([archive], hold_links=True)
    assert outcome == ([f"{archive.dest}: bin/tool is missing -> 1.0"], [], [])
    assert defect(archive) == ""


def test_a_users_own_file_is_never_replaced(make: Callable[..., Archive], tmp_path: Path) -> None:
    archive = make()
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/tool").write_text("mine")
    assert ensure([archive]).problems == [
        (
            "the link would replace a file that Bedplate does not own — "
            f"{tmp_path}/usr/tool — got a file / allowed nothing there, or a link into "
            f"{tmp_path}/store/ — Move it away, or remove the package that owns it, and run again."
        )
    ]
    assert (tmp_path / "usr/tool").read_text() == "mine"


def test_what_a_killed_run_left_is_repaired(make: Callable[..., Archive], tmp_path: Path) -> None:
    archive = make()
    half = tmp_path / "store/tool/.bedplate-1.0.abcdef/new/bin"
    half.mkdir(parents=True)
    (half / "tool").write_text("hal")
    assert ensure([archive]).problems == []
    assert names(tmp_path / "store/tool") == ["1.0"]
    assert (tmp_path / "usr/tool").read_bytes() == b"1.0"


def test_a_folder_without_marker_is_not_taken_for_an_installation(
    make: Callable[..., Archive],
) -> None:
    archive = make()
    Path(archive.dest, "bin").mkdir(parents=True)
    assert defect(archive) == "incomplete"
    assert ensure([archive]).problems == []
    assert defect(archive) == ""
