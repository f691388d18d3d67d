"""Filling a mirror with what a site's bill lists: by digest, several at once, again and again.

What is there is read and compared first, so that a run after a kill, a full disk or a changed byte
ends whole, and a run with nothing to do makes no request.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bedplate.bill.errors import ResolveError, refused
from bedplate.bill.places import split
from bedplate.bill.web import StoppedError
from bedplate.common.errors import BedplateError, Problem
from bedplate.common.progress import Progress, sized
from bedplate.mirror import wanted
from bedplate.mirror.download import FULL, Downloads, Part
from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from bedplate.bill import Bill, Image, Places
    from bedplate.bill.web import Web
    from bedplate.mirror.store import Store
    from bedplate.mirror.wanted import WantedImage

JOBS = 8


@dataclass
class Filling:
    """One run.

    Attributes:
        store: what is filled; the caller holds its lock.
        web: the client.
        places: the vendors' addresses.
        built: images that the site builds itself: no vendor has them.
        jobs: how many downloads run at once.
    """

    store: Store
    web: Web
    places: Places
    built: Collection[str] = ()
    jobs: int = JOBS
    progress: Progress = field(default_factory=Progress)

    def fill(self, bill: Bill) -> int:
        """Bring the store up to a bill and return how many files and blobs were fetched.

        Raises:
            BedplateError: everything that could not be fetched, together.
            MirrorError: the disk is full.
        """
        self.store.clean()
        self.downloads = Downloads(self.web, self.store.incoming, self.progress)
        with ThreadPoolExecutor(self.jobs) as self.pool, self.progress, ExitStack() as stack:
            stack.callback(self.pool.shutdown, wait=True, cancel_futures=True)
            stack.callback(self.downloads.stop.set)
            files = wanted.files(bill, self.store)
            images, problems = self._images(bill)
            blobs = [part for image in images for part in image.blobs]
            # Images share layers.
            parts = list({part.target: part for part in (*files.values(), *blobs)}.values())
            lacking = self._lacking(parts)
            self._expect_room(lacking)
            problems += self._each(self.downloads.fetch, lacking)
        for image in images:
            if all(not part.wrong_size() for part in image.blobs):
                image.name_in(self.store.images)
        whole = {name: part for name, part in files.items() if not part.wrong_size()}
        pulled = [
            image
            for image in images
            if self.store.images.tagged(*split(image.name)) == image.manifests[0]
        ]
        self.store.add_to_record(wanted.entries(whole, pulled))
        if problems:
            raise BedplateError(problems)
        self.store.forget_incoming()
        return len(lacking)

    def _images(self, bill: Bill) -> tuple[list[WantedImage], list[Problem]]:
        """Read the manifests of all images, from the store or from their registries."""
        found: list[WantedImage] = []

        def one(item: tuple[str, Image]) -> None:
            found.append(self._image(*item))

        problems = self._each(one, sorted(bill.images.items()))
        return sorted(found, key=lambda image: image.name), problems

    def _image(self, name: str, entry: Image) -> WantedImage:
        images = self.store.images
        where = f"{self.places.official(name)}/manifests"
        for digest in wanted.manifests(name, entry):
            if images.manifest(digest) is None:
                if name in self.built:
                    raise _not_built(name, str(self.store.root))
                what = f"image {name} is not found"
                images.add(self.web.manifest(f"{where}/{digest}", what, digest)[0])
        return wanted.image(
            name, entry, images.manifest(entry.manifest) or {}, self.store, self.places
        )

    def _lacking(self, parts: list[Part]) -> list[Part]:
        """Return what is not there or has other bytes, the largest first."""
        self.progress.total = sum(part.size for part in parts)
        lacking: list[Part] = []

        def look(part: Part) -> None:
            if part.damage():
                lacking.append(part)
            else:
                self.progress.add(part.size, fetched=False)

        self._each(look, parts)
        return sorted(lacking, key=lambda part: (-part.size, part.name))

    def _expect_room(self, lacking: list[Part]) -> None:
        begun = [self.downloads.begun(part) for part in lacking]
        there = sum(path.stat().st_size for path in begun if path.is_file())
        needed = sum(part.size for part in lacking) - there
        if needed > shutil.disk_usage(self.store.root).free:
            raise self._full(needed)

    def _full(self, needed: int) -> MirrorError:
        free = shutil.disk_usage(self.store.root).free
        return MirrorError(
            "the disk has no room for the mirror",
            str(self.store.root),
            f"{sized(free)} free",
            f"{sized(max(needed, 0))} more",
            "free some, or name a folder on a larger disk in BEDPLATE_CACHE; run it again: "
            "what is whole is kept",
        )

    def _each[T](self, action: Callable[[T], None], items: Iterable[T]) -> list[Problem]:
        """Do something for all items, several at once, and return what went wrong."""
        problems = list[Problem]()
        for future in self.progress.waited([self.pool.submit(action, item) for item in items]):
            try:
                future.result()
            except StoppedError:
                pass  # what stopped it is raised by another
            except BedplateError as error:
                problems += error.problems
            except OSError as error:
                if error.errno in FULL:
                    raise self._full(self.progress.total - self.progress.done) from error
                raise _unwritable(error, str(self.store.root)) from error
        return problems


def _not_built(name: str, root: str) -> ResolveError:
    return refused(
        f"image {name} is one that the site builds, and is not there",
        root,
        "no such image",
        "the image of the bill",
        "build it by `bedplate frameworks SITE --output DIR --base IMAGE`, and take it by "
        f"`bedplate mirror add SITE {name} SOURCE`",
    )


def _unwritable(error: OSError, root: str) -> MirrorError:
    return MirrorError(
        "the mirror's folder cannot be written",
        str(error.filename or root),
        str(error.strerror or error),
        "a folder of this user's on a disk that works",
        "name another one in BEDPLATE_CACHE, or see to its rights",
    )
