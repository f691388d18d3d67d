"""Filling a mirror's root: makes what is missing or damaged, and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from bedplate.bill.charts import OCI, index_of, reference
from bedplate.bill.places import HTTPS, Places
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.index import Contents, FileEntry, ImageEntry
from tests.substrate.hosts.shell import run
from tests.substrate.images import deb, layers, oci, placing, recipes, registry
from tests.substrate.images.published import Made, published

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bedplate.mirror.store import Store
    from tests.substrate.images.recipes import Chart, File, Image, Tool

NOT_THE_VENDORS = (
    "Assembled on this machine from source builds and Debian packages; not the vendor's"
)
WORK = ".w-"
COMPILE = ["gcc", "-Os", "-Wall", "-static", "-s"]


def fill(
    store: Store,
    tools: Mapping[str, Tool],
    *,
    skip_missing: bool = False,
    demo: bool = False,
    requested: Collection[str] = (),
) -> Contents:
    """Bring a mirror's root up to the recipes and return what it holds.

    Every file and blob is read and compared with its digest, so damage is found and mended.

    Args:
        store: the root.
        tools: what is packed, by name; see `recipes.known_tools`.
        skip_missing: leave out, with a line that says so, what needs tools that are not built. What
            needs a tool on request is left out in any case where that is not built.
        demo: leave out what only tests need, but keep what of it is there already.
        requested: names of images that are made on request only.

    Raises:
        MirrorError: a tool is not built, or the registry refuses.
    """
    wanted_files = recipes.files(tools)
    there = store.contents().images
    wanted_images = [
        one
        for one in recipes.images(tools)
        if (not one.on_request or one.name in requested)
        and not (demo and one.tests_only and one.name not in there)
    ]
    wanted_charts = recipes.charts(tools)
    needed = {f.tool for f in (*wanted_files, *wanted_charts)}
    needed |= {t for i in wanted_images for t in i.tools}
    absent = sorted(name for name in needed | {"registry"} if not tools[name].built)
    spared = [one for one in absent if tools[one].on_request or (demo and tools[one].tests_only)]
    lacking = [name for name in absent if name not in spared]
    if lacking and (not skip_missing or "registry" in lacking):
        raise MirrorError(
            "tools that the mirror is filled from are not built",
            str(tools[lacking[0]].folder.parent),
            f"no {', '.join(lacking)}",
            "all of tests/substrate/tools/tools.toml but those on request",
            f"run 'python tests/substrate/tools/build.py {' '.join(lacking)}'",
        )
    if absent:
        _say(f"left out: whatever needs {', '.join(absent)}")
    started = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(store.filling())
        for left in store.root.glob(f"{WORK}*"):
            shutil.rmtree(left)  # of a run that was killed: a gigabyte or more
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=store.root, prefix=WORK)))
        port = stack.enter_context(registry.writable(store, tools["registry"].program("registry")))
        filler = _Filler(store, tools, oci.Registry(port, store.registry), work)
        for file in wanted_files:
            if file.tool not in absent:
                filler.file(file)
        for chart in wanted_charts:
            if chart.tool not in absent:
                filler.chart(chart)
        for image in wanted_images:
            if not set(image.tools) & set(absent):
                filler.image(image)
        filler.publish()
        store.record(filler.done)
        placing.remove_others(store, filler.done)
    count = f"{len(filler.done.files)} files, {len(filler.done.images)} images"
    _say(f"{count}, {filler.made} made, in {time.monotonic() - started:.1f} s")
    return filler.done


def make_layers(store: Store, tools: Mapping[str, Tool], *, demo: bool = False) -> None:
    """Make the layers that images stand on, which need no tool, where they are not there yet."""
    with store.filling(), tempfile.TemporaryDirectory(dir=store.root, prefix=WORK) as work:
        made = layers.Layers(store.root, Path(work), _say)
        for image in recipes.images(tools):
            if not image.on_request and not (demo and image.tests_only):
                made.of(image)


class _Filler:
    """One run of `fill`; what is done is recorded at once, so an interrupted run loses little."""

    def __init__(
        self, store: Store, tools: Mapping[str, Tool], registry: oci.Registry, work: Path
    ) -> None:
        self.store, self.tools, self.registry, self.work = store, tools, registry, work
        self.before = store.contents()
        self.done = Contents()
        self.made = 0
        self.layers = layers.Layers(store.root, work, _say)
        self.files: list[Made] = []
        self.lone = recipes.lone_files(tools)

    def file(self, wanted: File) -> None:
        recipe = recipes.digest(wanted, self.tools)
        entry = self.before.files.get(wanted.name)
        if (
            entry is None
            or entry.recipe != recipe
            or not placing.is_intact(self.store, wanted.name, entry)
        ):
            started = time.monotonic()
            entry = self._make_file(wanted, recipe)
            self.made += 1
            _say(f"file {wanted.name}: {_size(entry.size)} in {_since(started)}")
        self._keep_file(wanted.name, entry)
        version = self.tools[wanted.tool].version
        control = ""
        if wanted.fact.package:
            place = str(self.store.place(wanted.name))
            control = run(["dpkg-deb", "--field", place], fix="install dpkg")
        self.files.append(Made(wanted.fact, version, entry, wanted.checksum, control))

    def publish(self) -> None:
        """Write what vendors publish beside their files: checksum files, indexes, signatures."""
        for address, content in published(self.files).items():
            self._keep_file(address, placing.put(self.store, content, address))

    def chart(self, wanted: Chart) -> None:
        """Offer a chart in its registry, or in its repository with the index that names it."""
        tool = self.tools[wanted.tool]
        name = wanted.address.rpartition("/")[2]
        made = tool.program(f"{name}-{tool.version}.tgz")
        content, metadata = made.read_bytes(), chart_metadata(made)
        if wanted.address.startswith(OCI):
            self._chart_in_registry(reference(wanted.address, tool.version), content, metadata)
            return
        address = f"{wanted.address.rpartition('/')[0]}/{made.name}".removeprefix(HTTPS)
        entry = placing.put(self.store, content, address)
        self._keep_file(address, entry)
        listed = {**metadata, "urls": [made.name], "digest": entry.sha256}
        index = json.dumps({"apiVersion": "v1", "entries": {name: [listed]}}, indent=1).encode()
        place = index_of(wanted.address).removeprefix(HTTPS)
        self._keep_file(place, placing.put(self.store, index, place))

    def _chart_in_registry(self, name: str, content: bytes, metadata: dict[str, object]) -> None:
        """Push a chart, and offer its layer as the file that a site's bill has."""
        layer = f"sha256:{hashlib.sha256(content).hexdigest()}"
        before = self.before.images.get(name)
        if (
            before is None
            or before.recipe != layer
            or not self.registry.is_intact(name, before.digest)
        ):
            digest = self.registry.push_chart(name, content, metadata)
            before = ImageEntry(digest=digest, size=len(content), recipe=layer)
            self.made += 1
            _say(f"chart {name}: {_size(len(content))}")
        images = {**self.done.images, name: before}
        self._keep(self.done.model_copy(update={"images": images}))
        address = _blobs(name) + layer
        self._keep_file(address, placing.put(self.store, content, address))

    def _keep_file(self, address: str, entry: FileEntry) -> None:
        self._keep(self.done.model_copy(update={"files": {**self.done.files, address: entry}}))

    def image(self, wanted: Image) -> None:
        recipe = recipes.digest(wanted, self.tools, layers.digest(wanted))
        entry = self.before.images.get(wanted.name)
        offered = self._offered_layers(wanted.name)
        if (
            entry is None
            or entry.recipe != recipe
            or not self.registry.is_intact(wanted.name, entry.digest)
            or (wanted.name in self.lone and not offered)
        ):
            started = time.monotonic()
            entry = self._make_image(wanted, recipe)
            self.made += 1
            _say(f"image {wanted.name}: {_size(entry.size)} in {_since(started)}")
        else:
            for place, file in offered.items():
                self._keep_file(place, file)
        self._keep(
            self.done.model_copy(update={"images": {**self.done.images, wanted.name: entry}})
        )

    def _offered_layers(self, name: str) -> dict[str, FileEntry]:
        """Return the whole layers of an image that are offered as files."""
        start = _blobs(name) if name in self.lone else "-"
        return {
            place: entry
            for place, entry in self.before.files.items()
            if place.startswith(start) and placing.is_intact(self.store, place, entry)
        }

    def _keep(self, done: Contents) -> None:
        self.done = done
        self.store.record(
            Contents(files=self.before.files | done.files, images=self.before.images | done.images)
        )

    def _make_file(self, wanted: File, recipe: str) -> FileEntry:
        tool = self.tools[wanted.tool]
        if wanted.as_is:
            made = tool.program(wanted.as_is)
        else:
            made = self.work / "archive"
            prefix = "" if wanted.into == "." else f"{wanted.into}/"
            programs = [(prefix + name, tool.program(name)) for name in sorted(wanted.files)]
            if wanted.deb:
                deb.pack(made, wanted.deb, f"{tool.version}-1", programs)
            else:
                oci.pack(made, [(*program, 0o755) for program in programs])
        return placing.put_file(self.store, made, wanted.name, recipe)

    def _make_image(self, wanted: Image, recipe: str) -> ImageEntry:
        below = self.layers.of(wanted)
        members = [
            (path.lstrip("/"), None, int(mode, 8)) for path, mode in wanted.directories.items()
        ]
        tag = wanted.name.rpartition(":")[2]
        own = [(path.lstrip("/"), *self._content(file, tag)) for path, file in wanted.files.items()]
        own += [(path.lstrip("/"), target, 0o777) for path, target in wanted.links.items()]
        if members or own:
            below.append(oci.pack(self.work / "layer", [*members, *own]))
        config: dict[str, object] = {
            "Labels": {
                "io.bedplate.assembled": NOT_THE_VENDORS,
                "io.bedplate.recipe": recipe,
                "io.bedplate.tools": " ".join(f"{x}={self.tools[x].version}" for x in wanted.tools),
            }
        }
        settings = {"Entrypoint": wanted.entrypoint, "Cmd": wanted.command, "User": wanted.user}
        settings["WorkingDir"] = wanted.folder
        config |= {key: value for key, value in settings.items() if value}
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        config["Env"] = [f"{k}={v}" for k, v in (environment | wanted.environment).items()]
        last = "bedplate"
        if adds := self.lone.get(wanted.name):
            last = f"COPY {Path(adds).name} {adds}"
            place = _blobs(wanted.name) + below[-1].digest
            self._keep_file(place, placing.put_file(self.store, below[-1].path, place, recipe))
        content, size = self.registry.push(wanted.name, below, config, last)
        return ImageEntry(digest=content, size=size, recipe=recipe)

    def _content(self, file: str | dict[str, str], tag: str) -> tuple[Path | bytes, int]:
        if isinstance(file, dict):
            return file["text"].encode(), 0o644
        tool, _, name = file.partition(":")
        source = recipes.simulated(file) if tool == "simulated" else self.tools[tool].program(name)
        if source.suffix != ".c":
            return source, 0o755
        made = self.work / source.stem
        run(
            [*COMPILE, f"-DVERSION={tag}", "-o", str(made), str(source)],
            fix="install gcc and libc6-dev",
        )
        return made, 0o755


def _blobs(name: str) -> str:
    """Return where a mirror offers single layers of an image or chart, but for their digests."""
    return f"{Places(None, {}).official(name).removeprefix(HTTPS)}/blobs/"


def chart_metadata(archive: Path) -> dict[str, object]:
    """Return what a chart's own Chart.yaml says."""
    with tarfile.open(archive) as packed:
        names = [name for name in packed.getnames() if name.count("/") == 1]
        (described,) = [name for name in names if name.endswith("/Chart.yaml")]
        file = packed.extractfile(described)
        return dict(yaml.safe_load(file.read())) if file else {}


def _say(text: str) -> None:
    print(f"[mirror] {text}", flush=True)


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _since(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"
