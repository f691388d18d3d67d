"""Unpacking an archive that is not trusted to stay inside its folder."""

import errno
import gzip
import lzma
import os
import shutil
import struct
import tarfile
import zlib
from typing import IO, Dict, List, Optional, Sequence, Tuple

from .host import make_folders
from .message import problem

#: A Debian package is an archive of ar(1): this, then members with a header of 60 bytes each.
_AR = b"!<arch>\n"
_AR_HEADER = 60
_WHOLE = "a whole Debian package: debian-binary, control.tar and data.tar in an archive of ar"
#: What the standard library reads of a package's content, by the name of its member.
_DEB_DATA = ("data.tar", "data.tar.gz", "data.tar.xz", "data.tar.bz2")
#: What complete folders carry at their top, by us and no archive.
MARK = ".bedplate.json"
#: What the standard library raises for damaged streams, headers and names.
_DAMAGED = (
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    EOFError,
    ValueError,
    LookupError,
    OverflowError,
    RecursionError,
    struct.error,
)
#: Why a name of an archive cannot be made, on any file system with room.
_NO_NAME = (
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
)
#: How many links the kernel follows from one name.
_MOST_LINKS = 40


class UnpackError(Exception):
    """An archive that cannot be unpacked safely or completely; the text says how to fix it."""


def _refuse(archive: str, member: str, why: str) -> UnpackError:
    return UnpackError(
        problem(
            "the archive cannot be unpacked safely",
            f"{archive}: {member}",
            why,
            "files, folders and links that stay inside the archive",
            "Do not trust this archive; get it from its publisher.",
        )
    )


def _stripped(archive: str, name: str, strip: int) -> Optional[str]:
    if name.startswith("/"):
        raise _refuse(archive, name, "an absolute path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refuse(archive, name, "a path that leaves the folder")
    return "/".join(parts[strip:]) or None


def _write(source: "IO[bytes]", path: str, mode: int) -> None:
    make_folders(os.path.dirname(path))
    # A new file only: were the path a link made by an earlier member, it would be followed.
    with open(path, "xb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
    os.chmod(path, mode)


def _link(archive: str, member: str, relative: str, target: str, folder: str) -> None:
    if target.startswith("/"):
        raise _refuse(archive, member, f"a link to {target}")
    path = os.path.join(folder, relative)
    make_folders(os.path.dirname(path))
    os.symlink(target, path)


def _leaves(folder: str, name: str) -> bool:
    """Whether a name of ``folder`` is anywhere outside it while its links are followed.

    Step by step: the folder gets another name and place, where a way out and in again would end
    elsewhere.
    """
    ahead, at, followed = name.split("/")[::-1], [""], 0
    while ahead and followed <= _MOST_LINKS:
        part = ahead.pop()
        if part == "..":
            at.pop()
            if not at:
                return True
        elif part not in ("", "."):
            at.append(part)
            path = os.path.join(folder, *at)
            if os.path.islink(path):
                followed += 1
                at.pop()
                target = os.readlink(path)
                if target.startswith("/"):
                    return True
                ahead += target.split("/")[::-1]
    return False


def _take(
    tar: tarfile.TarFile, archive: str, folder: str, strip: int, members: Sequence[str]
) -> Tuple[List[str], List[str]]:
    """Unpack the wanted members of an open tar; return the names of files and of links."""
    found: List[str] = []
    links: Dict[str, str] = {}
    root = os.path.realpath(folder)
    for entry in tar:
        relative = _stripped(archive, entry.name, strip)
        if relative is None or entry.isdir() or (members and relative not in members):
            continue
        if relative.split("/")[0] == MARK:
            raise _refuse(archive, entry.name, "a name that Bedplate keeps for itself")
        where = os.path.realpath(os.path.join(folder, os.path.dirname(relative)))
        if os.path.commonpath([where, root]) != root:
            raise _refuse(archive, entry.name, "a path through a link")
        if entry.issym():
            _link(archive, entry.name, relative, entry.linkname, folder)
            links[relative] = entry.name
        elif entry.isfile():
            source = tar.extractfile(entry)
            if source is None:
                raise _refuse(archive, entry.name, "a file without content")
            mode = 0o755 if entry.mode & 0o111 else 0o644
            _write(source, os.path.join(folder, relative), mode)
            found.append(relative)
        else:
            raise _refuse(archive, entry.name, "a device, pipe or hard link")
    # Only now: what a link leads to may come after it, and be a link itself.
    for relative, name in links.items():
        if _leaves(folder, relative):
            target = os.readlink(os.path.join(folder, relative))
            raise _refuse(archive, name, f"a link to {target}")
    return found, list(links)


def _unpack(
    path: str, archive: str, folder: str, strip: int, members: Sequence[str], allowed: str
) -> List[str]:
    try:
        with tarfile.open(path) as tar:
            found, links = _take(tar, archive, folder, strip, members)
    except _DAMAGED as error:
        raise _unreadable(archive, str(error) or type(error).__name__, allowed) from None
    except OSError as error:
        if error.errno not in _NO_NAME:
            raise
        raise _unreadable(archive, f"{error.strerror}: a member's name", allowed) from None
    missing = sorted(set(members) - set(found) - set(links))
    if missing or not found:
        raise UnpackError(
            problem(
                "the archive lacks what is to be installed",
                archive,
                ", ".join(found) or "no file",
                ", ".join(missing) or "at least one file",
                "Check the version, and the number of leading folders to strip.",
            )
        )
    return sorted(found)


def _unreadable(archive: str, got: str, allowed: str) -> UnpackError:
    return UnpackError(
        problem("the archive cannot be read", archive, got, allowed, "Check what the URL serves.")
    )


def unpack_tar(path: str, folder: str, strip: int = 0, members: Sequence[str] = ()) -> List[str]:
    """Unpack a (compressed) tar into the existing, empty ``folder``; return the files' names.

    ``strip`` leading path components are dropped; ``members`` (after stripping) are all that is
    taken, if given. Owners in the archive are ignored, modes are 0755 or 0644.

    Raises:
        UnpackError: damaged, reaching outside, or without one of ``members``.
    """
    allowed = "a tar, plain or compressed with gzip, bzip2 or xz"
    return _unpack(path, os.path.basename(path), folder, strip, members, allowed)


def unpack_deb(path: str, folder: str, strip: int = 0, members: Sequence[str] = ()) -> List[str]:
    """Unpack the content of a Debian package into ``folder``, as `unpack_tar` does with a tar.

    No script of the package runs and no system's package manager is asked: the programs are files
    of ours, on Red Hat's family too. Format: deb(5).

    Raises:
        UnpackError: damaged, compressed in a way that Python's standard library does not read,
            reaching outside, or without one of ``members``.
    """
    archive = os.path.basename(path)
    content = path + ".content"  # in the same private folder
    with open(path, "rb") as package:
        member, size = _deb_content(package, archive)
        if member not in _DEB_DATA:
            raise UnpackError(
                problem(
                    "the package's compression cannot be read",
                    archive,
                    member,
                    ", ".join(_DEB_DATA),
                    "Take a package that is compressed with gzip or xz: those built for older "
                    "releases are.",
                )
            )
        with open(content, "xb") as out:
            while size > 0:
                block = package.read(min(size, 1 << 20))
                if not block:
                    raise _unreadable(archive, f"{size} bytes less than it says", _WHOLE)
                size -= len(block)
                out.write(block)
    try:
        return _unpack(content, archive, folder, strip, members, _WHOLE)
    finally:
        os.unlink(content)


def _deb_content(package: "IO[bytes]", archive: str) -> Tuple[str, int]:
    """Go to where the package's content begins; return its member's name and size in bytes."""
    first = ""
    if package.read(len(_AR)) != _AR:
        raise _unreadable(archive, "a file that is no archive of ar", _WHOLE)
    while True:
        header = package.read(_AR_HEADER)
        if not header:
            raise _unreadable(archive, "no member data.tar", _WHOLE)
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        size = header[48:58].strip()
        if len(header) < _AR_HEADER or not header.endswith(b"`\n") or not size.isdigit():
            raise _unreadable(archive, "a damaged header of a member", _WHOLE)
        first = first or name
        if first != "debian-binary":
            raise _unreadable(archive, f"{first} as its first member", _WHOLE)
        if name.startswith("data.tar"):
            return name, int(size)
        package.seek(int(size) + int(size) % 2, os.SEEK_CUR)


def place_file(path: str, folder: str, name: str) -> List[str]:
    """Take a download that is itself the program as executable ``name`` in ``folder``."""
    with open(path, "rb") as source:
        _write(source, os.path.join(folder, name), 0o755)
    return [name]
