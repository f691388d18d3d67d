"""Release archives side by side by version, each complete or absent, and the links to them."""

import json
import os
import shutil
import stat
import tempfile
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from . import documents
from .addresses import file_name, shown
from .fetch import (
    FetchError,
    Opener,
    download,
    is_digest,
    open_url,
    resolve_digest,
    workplace,
)
from .host import make_folders
from .message import problem
from .unpack import MARK, UnpackError, place_file, unpack_deb, unpack_tar

#: What a complete folder carries; written last, before the folder gets its name.
MARKER = MARK
#: How many of an archive's files a message names.
_SHOWN = 8


class Archive(NamedTuple):
    """One archive to have.

    ``sha256`` is the digest or the URL of a checksum file. ``layout`` is ``tar``, ``deb`` (the
    content of a Debian package, on any system) or ``file``.
    ``links`` maps a path to a file in ``dest``; a path that ends in a slash is a folder that gets
    a link for every executable in the named folder of ``dest``. ``size`` is in bytes, 0 where it
    is not known: a download that is longer is cut off.
    """

    name: str
    version: str
    url: str
    sha256: str
    dest: str
    layout: str = "tar"
    strip: int = 0
    members: Tuple[str, ...] = ()
    links: Tuple[Tuple[str, str], ...] = ()
    size: int = 0


class Outcome(NamedTuple):
    """What was done (or would be, in check mode), held back, and refused."""

    changes: List[str]
    pending: List[str]
    problems: List[str]


def _marker(dest: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(dest, MARKER), encoding="utf-8") as stream:
            found = documents.table(stream.read())
    except (OSError, ValueError):
        return {}
    files = found.get("files")
    sound = isinstance(files, dict) and all(_is_print(name, one) for name, one in files.items())
    return found if sound else {}


def _is_print(name: str, value: Any) -> bool:
    """Whether a file of a mark lies in the archive's folder, with what `_print` says of it."""
    inside = os.path.normpath(name) == name and not name.startswith(("/", ".."))
    numbers = isinstance(value, list) and len(value) == 3 and all(type(n) is int for n in value)
    return inside and numbers and "\0" not in name


def _print(path: str) -> List[int]:
    """Size, time and mode of a file: enough to notice a change without reading 100 MB."""
    info = os.lstat(path)
    return [info.st_size, info.st_mtime_ns, stat.S_IMODE(info.st_mode)]


def changed(dest: str) -> List[str]:
    """Files of a complete folder that are missing or not as the archive brought them."""
    files = _marker(dest).get("files", {})
    return [
        name
        for name, expected in sorted(files.items())
        if not os.path.lexists(os.path.join(dest, name))
        or _print(os.path.join(dest, name)) != expected
    ]


def defect(archive: Archive) -> str:
    """Say what keeps ``archive`` from being installed as wished; empty if nothing does."""
    if not os.path.isdir(archive.dest):
        return "absent"
    marker = _marker(archive.dest)
    if marker.get("format") != 1:
        return "incomplete"
    wished = marker.get("sha256") if is_digest(archive.sha256) else marker.get("checksum")
    if wished != archive.sha256:
        return "another archive (sha256:{})".format(marker.get("sha256"))
    if set(archive.members) - set(marker["files"]) or marker.get("strip") != archive.strip:
        return "unpacked otherwise"
    for name, expected in sorted(marker["files"].items()):
        path = os.path.join(archive.dest, name)
        if not os.path.lexists(path):
            return f"{name} is missing"
        if _print(path) != expected:
            return f"{name} was changed"
    for path, target in archive.links:
        if not _leads(archive.dest, path, target, marker["files"]):
            return f"{target}, which {path} is to lead to, is missing"
    return ""


def _leads(folder: str, path: str, target: str, files: Mapping[str, List[int]]) -> bool:
    """Whether a link finds something in an archive's folder: a file, or programs of a folder."""
    if path.endswith("/"):
        return bool(_programs(target, files))
    return os.path.isfile(os.path.join(folder, target))


def _programs(folder: str, files: Mapping[str, List[int]]) -> List[str]:
    """The executables in a folder of an archive, sorted."""
    inside = os.path.normpath(folder)
    return [
        name
        for name, (_, _, mode) in sorted(files.items())
        if os.path.normpath(os.path.dirname(name) or ".") == inside and mode & 0o111
    ]


def _check_links(archive: Archive, folder: str, files: Mapping[str, List[int]]) -> None:
    """Refuse an archive that lacks what a link is to lead to.

    Raises:
        UnpackError: it has other files; the first few are named.
    """
    for path, target in archive.links:
        if _leads(folder, path, target, files):
            continue
        shown = sorted(files)[:_SHOWN]
        more = len(files) - len(shown)
        raise UnpackError(
            problem(
                "the archive lacks the file that a link is to lead to",
                f"{file_name(archive.url)}: {path}",
                ", ".join(shown) + (f" and {more} more" if more else ""),
                f"a program in {target}" if path.endswith("/") else target,
                "Nothing was linked. Check the version, the layout and the number of leading "
                "folders to strip.",
            )
        )


def _without_digest(archive: Archive) -> str:
    """Say that nothing tells what the download has to be; empty if something does."""
    if is_digest(archive.sha256) or "://" in archive.sha256:
        return ""
    return problem(
        "the artefact has no digest to know it by",
        shown(archive.url),
        shown(archive.sha256) or "none",
        "a SHA-256 in lower-case hexadecimal, or the URL of a checksum file",
        "Nothing is installed whose digest is not known. Where a site decides, resolve its "
        "artefacts again; otherwise give the digest.",
    )


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _install(archive: Archive, opener: Opener) -> None:
    with workplace(archive.dest) as work:
        # Whoever worked here while this waited for its turn may have had the same to do.
        if not defect(archive):
            return
        digest = resolve_digest(archive.sha256, archive.url, opener)
        packed = os.path.join(work, file_name(archive.url))
        download(archive.url, digest, packed, opener, archive.size)
        new = os.path.join(work, "new")
        os.mkdir(new)
        os.chmod(new, 0o755)  # noqa: S103 - programs for every user; mkdir minds the umask
        if archive.layout == "file":
            files = place_file(packed, new, archive.members[0])
        else:
            unpack = unpack_deb if archive.layout == "deb" else unpack_tar
            files = unpack(packed, new, archive.strip, archive.members)
        prints = {name: _print(os.path.join(new, name)) for name in files}
        _check_links(archive, new, prints)
        marker = {
            "format": 1,
            "name": archive.name,
            "version": archive.version,
            "sha256": digest,
            "checksum": "" if is_digest(archive.sha256) else archive.sha256,
            "strip": archive.strip,
            "files": prints,
        }
        with open(os.path.join(new, MARKER), "w", encoding="utf-8") as stream:
            json.dump(marker, stream, indent=1, sort_keys=True)
            os.fchmod(stream.fileno(), 0o644)
            stream.flush()
            os.fsync(stream.fileno())
        _sync(new)
        if os.path.lexists(archive.dest):
            os.rename(archive.dest, os.path.join(work, "old"))
        os.rename(new, archive.dest)
        _sync(os.path.dirname(archive.dest))


def _expand(archive: Archive) -> List[Tuple[str, str]]:
    """The links of ``archive`` one by one, as (path, target).

    In check mode an archive may not be there yet; then the executables of a folder are unknown,
    and its links are left out.
    """
    wanted: List[Tuple[str, str]] = []
    files = _marker(archive.dest).get("files", {})
    for path, target in archive.links:
        if not path.endswith("/"):
            wanted.append((path, os.path.join(archive.dest, target)))
            continue
        for name in _programs(target, files):
            link = os.path.join(path, os.path.basename(name))
            wanted.append((link, os.path.join(archive.dest, name)))
    return wanted


def _set_link(path: str, target: str) -> None:
    folder = os.path.dirname(path)
    make_folders(folder)
    work = tempfile.mkdtemp(prefix=".bedplate.", dir=folder)
    try:
        os.symlink(target, os.path.join(work, "link"))
        os.replace(os.path.join(work, "link"), path)
    finally:
        shutil.rmtree(work)


def _links(archive: Archive, check: bool, hold: bool, outcome: Outcome) -> None:
    store = os.path.dirname(os.path.dirname(archive.dest)) + "/"
    for path, target in _expand(archive):
        present = os.readlink(path) if os.path.islink(path) else None
        if present == target:
            continue
        if os.path.lexists(path) and not (present or "").startswith(store):
            outcome.problems.append(
                problem(
                    "the link would replace a file that Bedplate does not own",
                    path,
                    f"a link to {present}" if present else "a file",
                    f"nothing there, or a link into {store}",
                    "Move it away, or remove the package that owns it, and run again.",
                )
            )
        elif present and hold:
            outcome.pending.append(f"{path}: {present} -> {target}")
        else:
            outcome.changes.append("{}: {} -> {}".format(path, present or "absent", target))
            if not check:
                _set_link(path, target)


def _unwritable(archive: Archive, error: OSError) -> str:
    return problem(
        "the archive cannot be installed",
        archive.dest,
        str(error),
        "a writable file system with room for the archive and its content",
        "Free some space or fix the file system, and run again.",
    )


def ensure(
    archives: Sequence[Archive],
    check: bool = False,
    hold_links: bool = False,
    opener: Opener = open_url,
) -> Outcome:
    """Have every archive unpacked in its folder and every link set.

    A folder appears complete or not at all, also when the process is killed; of two processes with
    the same wish one does the work, and the other waits for it. With ``hold_links``
    a link that names another version stays, and so does a complete folder of the same version from
    another archive; both are reported as pending. One archive that fails
    does not keep the others from being installed; its problem is in the outcome.
    """
    outcome = Outcome([], [], [])
    for archive in archives:
        unknown = _without_digest(archive)
        if unknown:
            outcome.problems.append(f"{archive.name} {archive.version}: {unknown}")
            continue
        wrong = defect(archive)
        if hold_links and wrong.startswith(("another archive", "unpacked otherwise")):
            # Complete and in use: to exchange it under its links would exchange what they name.
            outcome.pending.append(f"{archive.dest}: {wrong} -> {archive.version}")
            continue
        if wrong:
            outcome.changes.append(f"{archive.dest}: {wrong} -> {archive.version}")
            if not check:
                try:
                    _install(archive, opener)
                except (FetchError, UnpackError) as error:
                    outcome.changes.pop()
                    outcome.problems.append(f"{archive.name} {archive.version}: {error}")
                    continue
                except OSError as error:
                    outcome.changes.pop()
                    outcome.problems.append(_unwritable(archive, error))
                    continue
        _links(archive, check, hold_links, outcome)
    return outcome
