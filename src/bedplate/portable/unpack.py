"""Unpacking an archive that is not trusted to stay inside its folder."""

import os
import shutil
import tarfile
from typing import IO, List, Optional, Sequence

from .message import problem


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
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    # A new file only: were the path a link made by an earlier member, it would be followed.
    with open(path, "xb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
    os.chmod(path, mode)


def _link(archive: str, member: str, relative: str, target: str, folder: str) -> None:
    inside = os.path.normpath(os.path.join(os.path.dirname(relative), target))
    if target.startswith("/") or inside.startswith(".."):
        raise _refuse(archive, member, f"a link to {target}")
    path = os.path.join(folder, relative)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    os.symlink(target, path)


def unpack_tar(path: str, folder: str, strip: int = 0, members: Sequence[str] = ()) -> List[str]:
    """Unpack a (compressed) tar into the existing, empty ``folder``; return the files' names.

    ``strip`` leading path components are dropped; ``members`` (after stripping) are all that is
    taken, if given. Owners in the archive are ignored, modes are 0755 or 0644.

    Raises:
        UnpackError: damaged, reaching outside, or without one of ``members``.
    """
    archive = os.path.basename(path)
    found: List[str] = []
    links: List[str] = []
    try:
        with tarfile.open(path) as tar:
            for entry in tar:
                relative = _stripped(archive, entry.name, strip)
                if relative is None or entry.isdir() or (members and relative not in members):
                    continue
                where = os.path.realpath(os.path.join(folder, os.path.dirname(relative)))
                if os.path.commonpath([where, os.path.realpath(folder)]) != os.path.realpath(
                    folder
                ):
                    raise _refuse(archive, entry.name, "a path through a link")
                if entry.issym():
                    _link(archive, entry.name, relative, entry.linkname, folder)
                    links.append(relative)
                elif entry.isfile():
                    source = tar.extractfile(entry)
                    if source is None:
                        raise _refuse(archive, entry.name, "a file without content")
                    mode = 0o755 if entry.mode & 0o111 else 0o644
                    _write(source, os.path.join(folder, relative), mode)
                    found.append(relative)
                else:
                    raise _refuse(archive, entry.name, "a device, pipe or hard link")
    except (tarfile.TarError, EOFError, FileExistsError) as error:
        raise UnpackError(
            problem(
                "the archive cannot be read",
                archive,
                str(error),
                "a tar, plain or compressed with gzip, bzip2 or xz",
                "Check what the URL serves.",
            )
        ) from None
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


def place_file(path: str, folder: str, name: str) -> List[str]:
    """Take a download that is itself the program as executable ``name`` in ``folder``."""
    with open(path, "rb") as source:
        _write(source, os.path.join(folder, name), 0o755)
    return [name]
