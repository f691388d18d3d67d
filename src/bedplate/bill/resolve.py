"""From what a lock needs to its bill: small requests, several at once, all failures together."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.bill import notebook
from bedplate.bill.charts import chart
from bedplate.bill.errors import ResolveError, refused, together
from bedplate.bill.model import Bill, File, Gone, Image, Known, Packages, Refused
from bedplate.bill.needs import NeededImage, Repository
from bedplate.bill.registry import image, layer
from bedplate.bill.repository import offers, trusted
from bedplate.bill.web import CONNECTIONS
from bedplate.common.errors import BedplateError, Problem
from bedplate.common.progress import Progress
from bedplate.portable.fetch import FetchError, named_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from bedplate.bill.needs import NeededFile, NeededPackages, Needs
    from bedplate.bill.partial import Partial
    from bedplate.bill.places import Places
    from bedplate.bill.repository import Offer
    from bedplate.bill.web import Web
    from bedplate.catalogue.published_facts import Package

#: Objects of a manifest that run containers have their images here, at some depth.
IMAGE = "image"


type Made = Callable[[str, str], Image | None]


@dataclass
class Resolver:
    """Looks things up for one bill.

    Attributes:
        web: the client.
        places: where addresses are asked.
        keys: fingerprints by host, instead of the catalogue's, where a mirror signs anew.
        before: the bill that there is, whose digests are not exchanged.
        partial: what an earlier run has found.
        path: of the bill, for messages.
        made: gives the entry of an image that the site builds, by its name and what needs it, where
            this machine has it.
        unfit: what is wrong with own images, by what needs them; each is refused alone.
        unread: own images whose entries stay though they could not be read, and why.
    """

    web: Web
    places: Places
    keys: Mapping[str, str]
    before: Bill
    partial: Partial
    path: Path
    made: Made | None = None
    unfit: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    progress: Progress = field(default_factory=lambda: Progress(unit="looked up"))

    def bill(self, needs: Needs) -> Bill:
        """Return the bill. Raises ResolveError with everything that could not be looked up."""
        problems: list[Problem] = []
        files: dict[str, File] = {}
        images: dict[str, Image] = {}
        packages: dict[str, Packages] = {}
        named: dict[str, str] = {}
        refused: dict[str, Refused] = {}

        def one_file(name: str) -> None:
            self.progress.now = name
            files[name], references = self._file(name, needs.files[name])
            named.update(dict.fromkeys(references, name))

        def one_image(reference: str, needed: NeededImage) -> None:
            self.progress.now = reference
            try:
                images[reference] = self._image(reference, needed)
            except ResolveError as error:
                if needed.digest is not None:
                    # A course's image holds up no other course, and no host.
                    if (kept := self._kept(reference, needed, error)) is not None:
                        images[reference] = kept
                    else:
                        reason = "; ".join(map(str, error.problems))
                        refused[reference] = Refused(needed_by=needed.needed_by, reason=reason)
                    return
                # One that was there may only be out of reach: its bill keeps no gap for it.
                if not needed.optional or reference in self.before.images:
                    raise

        def one_index(source: str) -> None:
            self.progress.now = source
            packages[source] = self._packages(source, needs.packages[source])

        def of_index(group: Mapping[str, NeededFile]) -> None:
            files.update(self._packaged(group))

        plain = [name for name, needed in needs.files.items() if not needed.artifact.package]
        with self.progress, ThreadPoolExecutor(CONNECTIONS) as pool:
            asked = [
                *(pool.submit(one_file, name) for name in plain),
                *(pool.submit(of_index, group) for group in _by_index(needs.files)),
                *(pool.submit(one_index, source) for source in needs.packages),
                *(pool.submit(one_image, *item) for item in needs.images.items()),
            ]
            problems += self._waited(asked)
            more = {one: NeededImage(by) for one, by in named.items() if one not in needs.images}
            those = [pool.submit(one_image, *item) for item in sorted(more.items())]
            problems += self._waited(those)
        if problems:
            raise ResolveError(together(problems, self.web.traffic.hosts))
        bill = Bill(files=files, images=images, packages=packages, refused=refused)
        if changed := list(self._exchanged(bill)):
            self.partial.done()  # asked again next time: it may be put right by then
            raise ResolveError(changed)
        return bill

    def _waited(self, asked: Sequence[Future[None]]) -> list[Problem]:
        """Wait for all, show how far they are, and return what could not be looked up."""
        self.progress.total += len(asked)
        for _ in self.progress.waited(asked):
            self.progress.add(1, fetched=True)
        problems: list[Problem] = []
        for future in asked:
            try:
                future.result()
            except BedplateError as error:
                problems.extend(error.problems)
        return problems

    def _kept(self, reference: str, needed: NeededImage, error: ResolveError) -> Image | None:
        """Return the entry of an own image that is only out of reach: its digest is the same."""
        before = self.before.images.get(reference)
        wrong = any(one.rule in {"image", "notebook"} for one in error.problems)
        if before is None or wrong or (needed.starts and not needed.starts.known(before.notebook)):
            return None
        self.unread[needed.needed_by] = "; ".join(map(str, error.problems))
        return before

    def _file(self, name: str, needed: NeededFile) -> tuple[File, list[str]]:
        """Return a file's entry, and the images that it names where it is a manifest."""
        key = f"file {name} {needed.version}"
        if kept := self.partial.get(key):
            return File.model_validate(kept["answer"]), list(kept["images"])
        fact = needed.artifact
        what = f"{name} {needed.version} is not found"
        if fact.chart is not None:
            entry = chart(self.web, self.places, fact.chart, needed.version, what)
            self.partial.keep(key, entry, {"images": []})
            return entry, []
        if fact.layer is not None:
            named = needed.filled(fact.layer.image)
            entry = layer(self.web, self.places, named, fact.layer.adds, needed.version, what)
            self.partial.keep(key, entry, {"images": []})
            return entry, []
        url = needed.filled(fact.url or "")
        if fact.checksum_file is not None:
            known = Known(checksum_file=needed.filled(fact.checksum_file))
            where = self.places.file(needed.filled(fact.checksum_file))
            text = self.web.content(where, f"{what}: its checksum file")
            try:
                sha256 = named_digest(text, url, where)
            except FetchError as error:
                raise refused(f"digest of {name} is not known", where, str(error)) from error
            size = self.web.size(self.places.file(url), what)
        else:
            known = Known(release=needed.filled(fact.release or ""))
            where = self.places.file(needed.filled(fact.release or ""))
            sha256, size = _asset(self.web.content(where, what), url, where)
        entry = File(version=needed.version, url=url, sha256=sha256, size=size, known=known)
        images = self._named(entry) if fact.names_images else []
        self.partial.keep(key, entry, {"images": images})
        return entry, images

    def _named(self, entry: File) -> list[str]:
        """Return the images that a manifest names, read from the file itself."""
        where = self.places.file(entry.url)
        content = self.web.content(where, "manifest is not found", f"sha256:{entry.sha256}")
        try:
            return sorted({*_images_in(list(yaml.safe_load_all(content)))})
        except yaml.YAMLError as error:
            raise refused("manifest cannot be read", where, str(error)) from error

    def _image(self, reference: str, needed: NeededImage) -> Image:
        if wrong := self.unfit.get(needed.needed_by):
            raise ResolveError(wrong)
        key = f"image {reference}"
        if kept := self.partial.get(key):
            entry = Image.model_validate(kept["answer"])
            if needed.starts is None or needed.starts.known(entry.notebook):
                return entry
        if needed.built and self.made and (made := self.made(reference, needed.needed_by)):
            return made
        before = self.before.images.get(reference) if needed.moves else None
        try:
            entry = image(
                self.web, self.places, reference, needed.needed_by, before, digest=needed.digest
            )
        except ResolveError as error:
            if not needed.built:
                raise
            raise _not_built(reference, self.places, error) from error
        if needed.starts is not None:
            entry = entry.model_copy(update={"notebook": self._notebook(reference, entry, needed)})
        self.partial.keep(key, entry)
        return entry

    def _notebook(self, reference: str, entry: Image, needed: NeededImage) -> dict[str, str]:
        """Return what an own image starts with; layers of a digest are read once."""
        before = self.before.images.get(reference)
        same = before is not None and before.manifest == entry.manifest
        if needed.starts is None or (before and same and needed.starts.known(before.notebook)):
            return before.notebook if before else {}
        named = f"{reference.rpartition(':')[0]}@{entry.digest}"
        versions, wrong = notebook.of_image(self.web, self.places, named, needed.starts)
        if wrong:
            raise ResolveError([replace(one, key=needed.needed_by) for one in wrong])
        return versions

    def _packaged(self, group: Mapping[str, NeededFile]) -> dict[str, File]:
        """Return the entries of files that are packages of one repository."""
        found: dict[str, File] = {}
        missing: dict[str, tuple[NeededFile, Package]] = {}
        for name, needed in group.items():
            if kept := self.partial.get(f"file {name} {needed.version}"):
                found[name] = File.model_validate(kept["answer"])
            elif needed.artifact.package is not None:
                missing[name] = needed, needed.artifact.package
        if not missing:
            return found
        _, first = next(iter(missing.values()))
        repository = self._trusted(Repository(first.index, first.key, first.fingerprint))
        names = {package.name for _, package in missing.values()}
        offered = offers(self.web, self.places, repository, names)
        for name, (needed, package) in missing.items():
            offer = _exact(offered, package.name, needed.filled(package.version), repository.index)
            known = Known(index=repository.index, fingerprint=repository.fingerprint)
            entry = File(
                version=needed.version,
                url=offer.url,
                sha256=offer.sha256,
                size=offer.size,
                known=known,
            )
            self.partial.keep(f"file {name} {needed.version}", entry, {"images": []})
            found[name] = entry
        return found

    def _packages(self, source: str, needed: NeededPackages) -> Packages:
        key = f"packages {source}"
        if (kept := self.partial.get(key)) and kept["of"] == dict(needed.packages):
            return Packages.model_validate(kept["answer"])
        there: dict[str, list[str]] = {}
        indexes: dict[str, str] = {}
        unread = []
        for repository in map(self._trusted, needed.repositories):
            indexes[repository.index] = repository.fingerprint
            try:
                found = offers(self.web, self.places, repository, needed.packages)
            except ResolveError:
                if needed.needed:
                    raise
                unread.append(repository.index)
                continue
            for name, its in found.items():
                there.setdefault(name, []).extend(offer.version for offer in its)
        offered, gone = {}, {}
        for name, version in needed.packages.items():
            if version in there.get(name, ()):
                offered[name] = version
            elif not unread:
                versions = list(dict.fromkeys(reversed(there.get(name, []))))
                gone[name] = Gone(locked=version, offered=versions)
        entry = Packages(indexes=indexes, unread=unread, offered=offered, gone=gone)
        if not unread:
            self.partial.keep(key, entry, {"of": dict(needed.packages)})
        return entry

    def _trusted(self, repository: Repository) -> Repository:
        """Return a repository with the key that the site trusts for its host, if it names one."""
        return trusted(repository, self.keys)

    def _exchanged(self, bill: Bill) -> Iterable[Problem]:
        """Yield what has another digest than the bill that there is, under the same version."""
        for name, file in bill.files.items():
            old = self.before.files.get(name)
            if old is not None and old.version == file.version and old.sha256 != file.sha256:
                yield self._problem(
                    f"files.{name}", f"{name} {file.version}", file.sha256, old.sha256
                )
        for name, one in bill.images.items():
            known = self.before.images.get(name)
            if known is not None and known.digest != one.digest:
                yield self._problem(f"images.{name}", name, one.digest, known.digest)

    def _problem(self, key: str, what: str, got: str, allowed: str) -> Problem:
        return Problem(
            f"{what} has another digest than the committed one",
            str(self.path),
            key=key,
            got=got,
            allowed=allowed,
            fix="find out why its publisher changed it; to accept the new one, remove this entry "
            "from the bill and run the command again",
            rule="bill",
        )


def _not_built(reference: str, places: Places, error: ResolveError) -> ResolveError:
    """Return what is to be done about an image that no maker has."""
    return refused(
        f"image {reference} is one that the site builds, and is not there",
        places.repository(reference),
        error.problems[0].got or error.problems[0].what,
        "the image, pushed under this name",
        "build it from the files of `bedplate frameworks SITE --output FOLDER`, and take it by "
        f"`bedplate mirror add SITE {reference} SOURCE`; or push it to a registry that "
        f"{reference.partition('/')[0]} leads to; a fact of the site can name another place of it",
    )


def _by_index(files: Mapping[str, NeededFile]) -> list[dict[str, NeededFile]]:
    groups: dict[str, dict[str, NeededFile]] = {}
    for name, needed in files.items():
        if needed.artifact.package is not None:
            groups.setdefault(needed.artifact.package.index, {})[name] = needed
    return list(groups.values())


def _exact(offered: Mapping[str, list[Offer]], name: str, version: str, index: str) -> Offer:
    there = offered.get(name, [])
    for offer in there:
        if offer.version == version:
            return offer
    versions = ", ".join(dict.fromkeys(offer.version for offer in reversed(there)))
    raise refused(
        f"{name} {version} is not offered",
        index,
        versions or "no version of it",
        version,
        "choose a version that is there with bedplate_pins, and plan again",
    )


def _asset(content: bytes, url: str, where: str) -> tuple[str, int]:
    """Return SHA-256 and size of a released file, from GitHub's answer about its release."""
    name = url.rpartition("/")[2]
    try:
        for asset in json.loads(content)["assets"]:
            if asset["name"] == name and str(asset["digest"]).startswith("sha256:"):
                return str(asset["digest"]).removeprefix("sha256:"), int(asset["size"])
    except (ValueError, KeyError, TypeError) as error:
        raise refused(f"digest of {name} is not known", where, "no list of files") from error
    raise refused(
        f"digest of {name} is not known",
        where,
        "no such file, or none with a digest",
        "a file of this name with its SHA-256",
        "choose another version",
    )


def _images_in(content: Any) -> Iterable[str]:
    if isinstance(content, list):
        for item in content:
            yield from _images_in(item)
    elif isinstance(content, dict):
        for key, value in content.items():
            if key == IMAGE and isinstance(value, str):
                yield value
            else:
                yield from _images_in(value)
