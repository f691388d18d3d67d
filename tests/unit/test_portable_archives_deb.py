"""Programs out of Debian packages: made by dpkg-deb, read without it."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.archives import Archive, defect, ensure
from bedplate.portable.unpack import UnpackError, unpack_deb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTROL = """\
Package: tool-base
Version: 1.0-1
Architecture: amd64
Maintainer: Bedplate <tool@example.invalid>
Description: a tool
"""
PROGRAMS = {"usr/bin/tool": "t", "usr/bin/tool-hook": "h"}
WHOLE = "a whole Debian package: debian-binary, control.tar and data.tar in an archive of ar"


@pytest.fixture
def package(tmp_path: Path) -> Callable[..., Path]:
    """Make a package with dpkg-deb, compressed as named."""

    def build(compression: str = "xz", links: dict[str, str] | None = None) -> Path:
        root = tmp_path / f"root-{compression}"
        (root / "DEBIAN").mkdir(parents=True)
        root.chmod(0o755)
        (root / "DEBIAN/control").write_text(CONTROL)
        (root / "DEBIAN/postinst").write_text("#!/bin/sh\nexit 1\n")
        (root / "DEBIAN/postinst").chmod(0o755)
        for name, text in PROGRAMS.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755)
        (root / "usr/share").mkdir()
        (root / "usr/share/copyright").write_text("free\n")
        (root / "usr/share/copyright").chmod(0o600)
        for name, target in (links or {}).items():
            (root / name).symlink_to(target)
        file = tmp_path / "tool-base_1.0-1_amd64.deb"
        command = ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build"]
        subprocess.run([*command, str(root), str(file)], check=True, stdout=subprocess.DEVNULL)
        return file

    return build


def unpack(file: Path, tmp_path: Path, strip: int = 0, members: tuple[str, ...] = ()) -> list[str]:
    folder = tmp_path / "new"
    folder.mkdir()
    return unpack_deb(str(file), str(folder), strip, members)


@pytest.mark.parametrize("compression", ["none", "gzip", "xz"])
def test_the_content_is_unpacked_however_it_is_compressed(
    compression: str, package: Callable[..., Path], tmp_path: Path
) -> None:
    file = package(compression)
    found = unpack(file, tmp_path)
    assert found == ["usr/bin/tool", "usr/bin/tool-hook", "usr/share/copyright"]
    modes = [(tmp_path / "new" / name).stat().st_mode & 0o777 for name in found]
    assert modes == [0o755, 0o755, 0o644]
    assert (tmp_path / "new/usr/bin/tool").read_text() == "t"
    assert sorted(tmp_path.glob("*.content")) == []


def test_members_and_strip_choose_as_they_do_of_a_tar(
    package: Callable[..., Path], tmp_path: Path
) -> None:
    file = package(links={"usr/bin/absolute": "/etc/passwd"})  # not among the members
    assert unpack(file, tmp_path, 2, ("tool",)) == ["tool"]
    with pytest.raises(UnpackError) as refused:
        unpack_deb(str(file), str(tmp_path / "new"), 2, ("other",))
    assert str(refused.value) == (
        "the archive lacks what is to be installed — tool-base_1.0-1_amd64.deb — got no file / "
        "allowed other — Check the version, and the number of leading folders to strip."
    )


def test_a_package_that_leaves_its_folder_is_refused(
    package: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(UnpackError) as refused:
        unpack(package(links={"usr/bin/absolute": "/etc/passwd"}), tmp_path)
    assert str(refused.value).startswith(
        "the archive cannot be unpacked safely — tool-base_1.0-1_amd64.deb: ./usr/bin/absolute — "
        "got a link to /etc/passwd / allowed "
    )


def test_a_compression_that_python_lacks_is_refused_with_its_name(
    package: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(UnpackError) as refused:
        unpack(package("zstd"), tmp_path)
    assert str(refused.value) == (
        "the package's compression cannot be read — tool-base_1.0-1_amd64.deb — got data.tar.zst / "
        "allowed data.tar, data.tar.gz, data.tar.xz, data.tar.bz2 — Take a package that is "
        "compressed with gzip or xz: those built for older releases are."
    )


def cut(at: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:at]


@pytest.mark.parametrize(
    ("damage", "got"),
    [
        (lambda _: b"\x1f\x8b a tar.gz", "a file that is no archive of ar"),
        (cut(8), "no member data.tar"),
        (cut(40), "a damaged header of a member"),
        (cut(72), "no member data.tar"),
        (cut(-100), "100 bytes less than it says"),
        (lambda content: content.replace(b"debian-binary", b"other-binary ", 1),
         "other-binary as its first member"),
        (lambda content: content.replace(b"data.tar.xz", b"more.tar.xz", 1), "no member data.tar"),
    ],
)  # fmt: skip
def test_what_is_no_whole_package_is_refused(
    damage: Callable[[bytes], bytes], got: str, package: Callable[..., Path], tmp_path: Path
) -> None:
    file = package()
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UnpackError) as refused:
        unpack(file, tmp_path)
    assert str(refused.value) == (
        f"the archive cannot be read — {file.name} — got {got} / allowed {WHOLE} — "
        "Check what the URL serves."
    )


@pytest.mark.parametrize("compression", ["none", "gzip", "xz"])
def test_damaged_content_is_refused(
    compression: str, package: Callable[..., Path], tmp_path: Path
) -> None:
    file = package(compression)
    content = bytearray(file.read_bytes())
    begins = content.rindex(b"`\n") + 2
    content[begins + 12 : begins + 72] = b"\xff" * 60
    file.write_bytes(content)
    with pytest.raises(UnpackError) as refused:
        unpack(file, tmp_path)
    assert str(refused.value).startswith(f"the archive cannot be read — {file.name} — got ")


def test_a_signature_after_the_content_is_passed_over(
    package: Callable[..., Path], tmp_path: Path
) -> None:
    """debsigs adds a member at the end."""
    file = package("none")
    with file.open("ab") as out:
        out.write(b"_gpgorigin      0           0     0     100644  4         `\nsign")
    assert "usr/bin/tool" in unpack(file, tmp_path)


def test_an_archive_of_layout_deb_is_installed_and_linked(
    package: Callable[..., Path], tmp_path: Path
) -> None:
    file = package()
    archive = Archive(
        name="tool-base",
        version="1.0",
        url=file.as_uri(),
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        dest=str(tmp_path / "store/tool-base/1.0"),
        layout="deb",
        members=("usr/bin/tool",),
        links=((str(tmp_path / "usr/tool"), "usr/bin/tool"),),
    )
    assert ensure([archive]).problems == []
    assert (tmp_path / "usr/tool").read_text() == "t"
    assert defect(archive) == ""
    kept = file.rename(tmp_path / "kept")
    assert ensure([archive]) == ([], [], [])
    kept.rename(file)
    as_tar = archive._replace(layout="tar", dest=archive.dest + "-tar")
    (told,) = ensure([as_tar]).problems
    assert told.startswith(f"tool-base 1.0: the archive cannot be read — {file.name} — got ")
