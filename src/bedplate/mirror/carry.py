"""A mirror in one file, to carry on a disk: nothing of it is used before all of it is verified.

What a site's bill lists is verified by the bill, which the site has on the other side too. Other
files of the mirror (repositories of packages, which are signed) are verified by a list in front.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from bedplate.bill.place import HOST
from bedplate.common import writing
from bedplate.common.progress import Progress, sized
from bedplate.mirror import wanted
from bedplate.mirror.check import check
from bedplate.mirror.download import FULL, Part
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.index import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from bedplate.bill import Bill, Places
    from bedplate.mirror.store import Store
    from bedplate.mirror.wanted import WantedImage

LIST = "bedplate-mirror.json"
FORMAT = 1
BLOCK = 1 << 20
LARGEST_LIST = 64 << 20
#: Files that no bill lists and that go along: repositories of packages, signed by the site's key.
ALONG = f"{HOST}/"


class _Hashing:
    """A file that is read or written once, and hashed on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self.file.read(size)
        self.sha256.update(block)
        return block

    def write(self, block: bytes) -> int:
        self.sha256.update(block)
        return self.file.write(block)


@dataclass
class Carrying:
    """A bill and a mirror's store; the caller holds the store's lock."""

    bill: Bill
    store: Store
    places: Places
    progress: Progress = field(default_factory=Progress)

    def pack(self, target: Path) -> str:
        """Write the file and return its SHA-256.

        Raises:
            MirrorError: the mirror is not as the bill has it, or the disk is full.
        """
        if wrong := check(self.bill, self.store, self.places, sizes_only=True):
            raise _not_whole(self.store, str(wrong[0]), len(wrong))
        images = self._images()
        along = {
            name: entry
            for name, entry in self.store.contents().files.items()
            if name.startswith(ALONG)
        }
        others = [
            Part(name, "", entry.sha256, entry.size, self.store.place(name))
            for name, entry in sorted(along.items())
        ]
        parts = [*self._manifests(), *self._parts(images), *others]
        self.progress.total = sum(part.size for part in parts)
        listed = {
            "format": FORMAT,
            "files": {
                name: {"sha256": entry.sha256, "size": entry.size} for name, entry in along.items()
            },
        }
        with _disk(target), writing.stream(target) as file, self.progress:
            whole: Any = _Hashing(file)  # tarfile only writes to it
            with tarfile.open(fileobj=whole, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                content = json.dumps(listed, indent=1, sort_keys=True).encode()
                member = tarfile.TarInfo(LIST)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
                for part in parts:
                    self._put(archive, part)
        return str(whole.sha256.hexdigest())

    def _put(self, archive: tarfile.TarFile, part: Part) -> None:
        member = tarfile.TarInfo(str(part.target.relative_to(self.store.root)))
        member.size = part.size
        self.progress.now = part.name
        try:
            with part.target.open("rb") as file:
                read = _Hashing(file)
                archive.addfile(member, read)
        except FileNotFoundError as error:
            raise _not_whole(self.store, f"{part.name}: missing", 1) from error
        if read.sha256.hexdigest() != part.sha256:
            raise _not_whole(self.store, f"{part.name}: changed", 1)
        self.progress.add(part.size, fetched=True)
        self.progress.show()

    def unpack(self, source: Path) -> int:
        """Verify the file, then put what it has in its places; return the size in bytes.

        Raises:
            MirrorError: it lacks something, has something else, or is damaged; then nothing of it
                is used. Or the disk is full.
        """
        self.store.clean()
        try:
            with _disk(self.store.root), _opened(source) as archive, self.progress:
                self.store.incoming.mkdir(parents=True, exist_ok=True)
                along, staged = self._staged(archive, source)
            more = Counter(part.sha256 for part in staged.values())
            for part in staged.values():
                more[part.sha256] -= 1
                self._place(part, last=not more[part.sha256])
        finally:
            self.store.forget_incoming()
        images = self._images()
        for image in images:
            image.name_in(self.store.images)
        self.store.add_to_record(wanted.entries(wanted.files(self.bill, self.store), images, along))
        return sum(part.size for part in staged.values())

    def _place(self, part: Part, *, last: bool) -> None:
        """Put verified bytes in their place, or a copy where they have another place too."""
        came = self.store.incoming / part.sha256
        part.target.parent.mkdir(parents=True, exist_ok=True)
        if last:
            came.replace(part.target)
            writing.sync(part.target.parent)
            return
        with came.open("rb") as file, writing.stream(part.target) as copy:
            shutil.copyfileobj(file, copy, BLOCK)

    def _staged(
        self, archive: tarfile.TarFile, source: Path
    ) -> tuple[dict[str, FileEntry], dict[str, Part]]:
        """Read all members into the folder of downloads, by digest, and compare each.

        Returns:
            The files that go along, and everything by its path below the root.
        """
        members = iter(archive)
        along = _listed(next(members, None), archive, source)
        known = {self._path(part): part for part in wanted.files(self.bill, self.store).values()}
        for name, entry in along.items():
            part = Part(name, "", entry.sha256, entry.size, self.store.place(name))
            known[self._path(part)] = part
        named = {
            str(self.store.images.blob(digest).relative_to(self.store.root)): (name, digest)
            for name, entry in self.bill.images.items()
            for digest in wanted.manifests(name, entry)
        }
        self.progress.total = sum(part.size for part in known.values())
        staged: dict[str, Part] = {}
        blobs: dict[str, Part] = {}  # known once all manifests are, which come first
        for member in members:
            if member.name in named and member.size <= LARGEST_LIST:
                name, digest = named[member.name]
                sha256 = digest.removeprefix(wanted.SHA256)
                part = Part(name, "", sha256, member.size, self.store.images.blob(digest))
                self.progress.total += part.size
            else:
                if not blobs and staged.keys() >= named.keys():
                    parts = [one for image in self._images(self._read) for one in image.blobs]
                    blobs = {self._path(one): one for one in parts}
                    self.progress.total += sum(one.size for one in blobs.values())
                found = known.get(member.name) or blobs.get(member.name)
                if found is None:
                    raise _damaged(source, f"{member.name}, which the bill does not list")
                part = found
            self._stage(archive, member, part, source)
            staged[member.name] = part
        if lacking := sorted((known.keys() | named.keys() | blobs.keys()) - staged.keys()):
            raise _damaged(source, f"no {lacking[0]} and {len(lacking) - 1} more")
        return along, staged

    def _path(self, part: Part) -> str:
        return str(part.target.relative_to(self.store.root))

    def _read(self, digest: str) -> dict[str, Any] | None:
        place = self.store.incoming / digest.removeprefix(wanted.SHA256)
        found: dict[str, Any] = json.loads(place.read_bytes())
        return found

    def _stage(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, part: Part, source: Path
    ) -> None:
        content = archive.extractfile(member) if member.isreg() else None
        if content is None or member.size != part.size:
            raise _damaged(source, f"{part.name}: {member.size} bytes")
        read = _Hashing(content)
        with (self.store.incoming / part.sha256).open("wb") as file:
            while block := read.read(BLOCK):
                file.write(block)
                self.progress.add(len(block), fetched=True)
                self.progress.show()
            file.flush()
            os.fdatasync(file.fileno())
        if read.sha256.hexdigest() != part.sha256:
            raise _damaged(source, f"{part.name}: changed")

    def _manifests(self) -> list[Part]:
        """Return the manifests of the bill's images, each once."""
        digests = {
            digest: name
            for name, entry in sorted(self.bill.images.items())
            for digest in wanted.manifests(name, entry)
        }
        return [
            Part(name, "", digest.removeprefix(wanted.SHA256), place.stat().st_size, place)
            for digest, name in digests.items()
            for place in [self.store.images.blob(digest)]
        ]

    def _images(
        self, read: Callable[[str], dict[str, Any] | None] | None = None
    ) -> list[WantedImage]:
        read = read or self.store.images.manifest
        return [
            wanted.image(name, entry, read(entry.manifest) or {}, self.store, self.places)
            for name, entry in sorted(self.bill.images.items())
        ]

    def _parts(self, images: Iterable[WantedImage]) -> list[Part]:
        blobs = [part for image in images for part in image.blobs]
        files = wanted.files(self.bill, self.store).values()
        return list({part.target: part for part in (*files, *blobs)}.values())


def _listed(
    member: tarfile.TarInfo | None, archive: tarfile.TarFile, source: Path
) -> dict[str, FileEntry]:
    """Read the list in front."""
    if member is None or member.name != LIST or member.size > LARGEST_LIST or not member.isreg():
        raise _damaged(source, "no list in front")
    file = archive.extractfile(member)
    try:
        content = json.loads(file.read() if file else b"")
        if content["format"] != FORMAT:
            raise _damaged(source, f"format {content['format']}")
        found = {
            str(name): FileEntry(
                sha256=one["sha256"], size=one["size"], recipe=f"{wanted.SHA256}{one['sha256']}"
            )
            for name, one in content["files"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(source, "a list that cannot be read") from error
    if strange := [name for name in found if not name.startswith(ALONG)]:
        raise _damaged(source, f"{strange[0]}, which the bill does not list")
    return found


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with source.open("rb") as file, tarfile.open(fileobj=file, mode="r|") as archive:
            yield archive
    except tarfile.TarError as error:
        raise _damaged(source, f"no whole archive ({error})") from error
    except FileNotFoundError as error:
        raise MirrorError(
            "no such file", str(source), "nothing", "what `bedplate mirror pack` wrote", "name it"
        ) from error


@contextmanager
def _disk(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        free = shutil.disk_usage(place if place.is_dir() else place.parent).free
        raise MirrorError(
            "the disk is full",
            str(place),
            f"{sized(free)} free",
            "room for the whole mirror",
            "free some, or name a place on a larger disk",
        ) from error


def _damaged(source: Path, got: str) -> MirrorError:
    return MirrorError(
        "packed mirror is not what the site's bill lists; nothing of it was used",
        str(source),
        got,
        "every file and image of the bill with its digest, and nothing else",
        "compare it with its .sha256 file (sha256sum -c), and pack it again by the same bill",
    )


def _not_whole(store: Store, got: str, count: int) -> MirrorError:
    return MirrorError(
        "mirror does not hold what the site's bill lists",
        str(store.root),
        got + (f" and {count - 1} more" if count > 1 else ""),
        "every file and image of the bill",
        "run: bedplate mirror fill SITE",
    )
