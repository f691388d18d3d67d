"""Whether an image has what a course's notebook starts with, read from the files of its layers.

The hub starts `jupyterhub-singleuser` of the image's PATH, behind its entrypoint, as user 1000 of
group 100, with homes at /home/jovyan. Layers are read in the registry, the newest first, until all
is found: what lies in a layer covers what lies below it, and a whiteout removes it (OCI's image
specification, layer.md). Nothing is run, so a library that is missing is not found.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bedplate.bill.errors import refused
from bedplate.bill.image_needs import read
from bedplate.common.errors import Problem
from bedplate.common.versions import parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bedplate.bill.needs import Starts
    from bedplate.bill.places import Places
    from bedplate.bill.web import Web

PROGRAM: Final = "jupyterhub-singleuser"
USER, GROUP, HOME = 1000, 100, "/home/jovyan"
#: Of a container whose image names none, by containerd and Docker.
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USERS: Final = "etc/passwd"
#: No image has a longer list of users.
USERS_BYTES: Final = 1 << 20
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
#: Linux' limits of a path, and of symbolic links in one: no image has a file beyond them.
PATH_LENGTH, LINKS = 4096, 40
#: No image has more folders, or longer ones, in its PATH.
FOLDERS: Final = 64
#: Of a virtual environment, in the folder that has bin/ (https://docs.python.org/3/library/venv.html).
ENVIRONMENT, ENVIRONMENT_BYTES = "pyvenv.cfg", 1 << 16
#: As pip, conda and Debian leave a package: below the folder that has bin/, too.
PACKAGE: Final = re.compile(
    r"(?P<prefix>.+)/lib/python(?P<python>[\d.]+)/(?P<kind>site|dist)-packages/"
    r"(?P<name>jupyterhub|jupyterlab|nbgitpuller)-(?P<version>\d[^/-]*)[^/]*\.(?:dist|egg)-info(?:/.*)?"
)
#: Python of Debian and Ubuntu has the packages of /usr and /usr/local, in folders `dist-packages`.
DEBIAN: Final = "usr"
SHELLS: Final = frozenset({"sh", "bash", "dash", "ash"})


@dataclass
class Files:
    """What is known of an image's files, from its newest layer down.

    Attributes:
        programs: entries of the program, by path.
        packages: of each folder that has bin/ and lib/: versions by name, Python's too. Those of
            Debian's Python, which lie in two such folders, are those of DEBIAN.
        folders: entries of folders and symbolic links, by path, and whatever lies at the home's.
        bases: of each virtual environment: the folder of the Python whose packages it has too;
            empty where it has its own alone.
        users: the text of /etc/passwd.
        removed: paths that newer layers have removed.
        covered: folders of which newer layers have covered all that lies below.
    """

    programs: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    packages: dict[str, dict[str, str]] = field(default_factory=dict)
    folders: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    users: str | None = None
    removed: set[str] = field(default_factory=set)
    covered: set[str] = field(default_factory=set)

    def take(self, layer: tarfile.TarFile) -> None:
        """Read a layer that lies below all that were read before."""
        removed, covered = set(), set()
        for entry in layer:
            path = _path(entry)
            folder, _, name = path.rpartition("/")
            if len(path) > PATH_LENGTH or len(entry.linkname) > PATH_LENGTH:
                continue
            if name == OPAQUE:
                covered.add(folder)
            elif name.startswith(WHITEOUT):
                removed.add(f"{folder}/{name.removeprefix(WHITEOUT)}".lstrip("/"))
            elif not self._gone(path):
                self._found(layer, entry, path, name)
                if entry.issym():
                    covered.add(path)  # what older layers have in a folder of this name
        self.removed |= removed
        self.covered |= covered

    def _found(self, layer: tarfile.TarFile, entry: tarfile.TarInfo, path: str, name: str) -> None:
        if entry.issym() or entry.isdir() or path == HOME.strip("/"):
            self.folders.setdefault(path, entry)
        if name == PROGRAM:
            self.programs.setdefault(path, entry)
        elif path == USERS and self.users is None and entry.isfile() and entry.size < USERS_BYTES:
            self.users = _text(layer, entry)
        elif name == ENVIRONMENT and entry.isfile() and entry.size < ENVIRONMENT_BYTES:
            self.bases.setdefault(path.rpartition("/")[0], _base(_text(layer, entry)))
        elif "-info" in path and (found := PACKAGE.fullmatch(path)):
            prefix = DEBIAN if found["kind"] == "dist" else found["prefix"]
            there = self.packages.setdefault(prefix, {})
            there.setdefault("python", found["python"])
            there.setdefault(found["name"], found["version"])

    def _gone(self, path: str) -> bool:
        if not self.removed and not self.covered:
            return False
        names = path.split("/")
        above = ["/".join(names[:depth]) for depth in range(len(names) + 1)]
        return not self.removed.isdisjoint(above) or not self.covered.isdisjoint(above[:-1])

    def real(self, path: str) -> str:
        """Return where a path leads by symbolic links; the path itself where they are a circle."""
        left, names, links = path.split("/")[::-1], list[str](), 0
        while left:
            name = left.pop()
            if name == "..":
                names = names[:-1]
            elif name not in {"", "."}:
                names.append(name)
            link = self.folders.get("/".join(names))
            if link is not None and link.issym():
                links += 1
                if links > LINKS:
                    return path
                names = [] if link.linkname.startswith("/") else names[:-1]
                left += link.linkname.split("/")[::-1]
        return "/".join(names)

    @property
    def home(self) -> tarfile.TarInfo | None:
        """Return the entry of the home."""
        return self.folders.get(self.real(HOME))

    def program(self, folders: Sequence[str]) -> tarfile.TarInfo | None:
        """Return the program that a search of these folders finds."""
        places = (place for folder in folders for place in (folder, self.real(folder)))
        found = (self.programs.get(f"{place}/{PROGRAM}") for place in places)
        return next((one for one in found if one is not None), None)

    def versions(self, folders: Sequence[str]) -> Mapping[str, str]:
        """Return the packages that the program's Python has."""
        program = self.program(folders)
        if program is None:
            return {}
        prefix = _above(self.real(_path(program)))
        base = self.bases.get(prefix)
        own = self._of_python(prefix)
        return {**self._of_python(_above(self.real(f"{base}/python3"))), **own} if base else own

    def _of_python(self, prefix: str) -> Mapping[str, str]:
        own = self.packages.get(prefix, {})
        if prefix == DEBIAN or (prefix == f"{DEBIAN}/local" and "jupyterhub" not in own):
            return {**self.packages.get(DEBIAN, {}), **own}
        return own

    def whole(self, folders: Sequence[str], starts: Starts) -> bool:
        """Tell whether no older layer adds to the answer."""
        known = self.users is not None and self.home is not None
        return known and self.versions(folders).keys() >= set(starts.packages)


class _Layer:
    """The bytes of a layer as they come, and their digest."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._hash = blocks, hashlib.sha256()

    def read(self, _: int) -> bytes:
        """Return more of it: tarfile keeps what it did not ask for."""
        block = b""
        while len(block) < tarfile.BLOCKSIZE and (more := next(self._blocks, b"")):
            block += more  # it tells the compression by the first block
        self._hash.update(block)
        return block

    def digest(self) -> str:
        """Read what is left, and return the digest of all."""
        while self.read(0):
            pass
        return f"sha256:{self._hash.hexdigest()}"


def of_image(
    web: Web, places: Places, reference: str, starts: Starts
) -> tuple[dict[str, str], list[Problem]]:
    """Return versions of Python and packages in an image, and what keeps it from being a notebook.

    Each problem names the line of a Containerfile that solves it.

    Args:
        web: the client.
        places: where registries are asked.
        reference: `HOST/NAME:TAG`, `HOST/NAME@sha256:…`, or both.
        starts: what the hub and the courses need of it.

    Raises:
        ResolveError: the registry does not give it, or a layer cannot be read.
    """
    where, _, manifest, configuration = read(web, places, reference)
    inner = configuration.get("config") or {}
    environment = dict(str(one).partition("=")[::2] for one in inner.get("Env") or ())
    named = [one.strip("/") for one in environment.get("PATH", PATH).split(":") if one]
    folders = [one for one in named if len(one) <= PATH_LENGTH][:FOLDERS]
    files = Files()
    for layer in reversed(manifest.get("layers") or []):
        _layer(web, where, layer, reference, files)
        if files.whole(folders, starts):
            break
    wrong = [
        *_of_program(files, folders, starts),
        *_of_entrypoint([str(one) for one in inner.get("Entrypoint") or ()]),
        *_of_home(files, environment, str(inner.get("WorkingDir") or "/")),
    ]
    versions = files.versions(folders)
    return {name: versions[name] for name in ("python", *starts.packages) if name in versions}, [
        Problem(
            f"image does not start as a notebook: {what}",
            reference,
            got=got,
            allowed=allowed,
            fix=f"add to its Containerfile: {line}",
            rule="notebook",
        )
        for what, got, allowed, line in wrong
    ]


#: What is wrong, what was found, what is allowed, and the Containerfile's line that changes it.
_Wrong = tuple[str, str, str, str]


def _layer(
    web: Web, where: str, described: Mapping[str, Any], reference: str, files: Files
) -> None:
    name, digest = f"a layer of image {reference}", str(described.get("digest"))
    url = f"{where}/blobs/{digest}"
    try:
        layer = _Layer(web.blocks(url, name, int(described["size"])))
        with tarfile.open(fileobj=layer, mode="r|*") as tar:  # type: ignore[call-overload]
            files.take(tar)
        found = layer.digest()
    except (tarfile.TarError, EOFError, OSError, ValueError, KeyError, TypeError) as error:
        raise refused(
            f"{name} cannot be read",
            url,
            str(error) or type(error).__name__,
            "a tar file, plain or compressed by gzip",
            "try again; layers that are compressed by zstd are written as gzip by: skopeo copy "
            "--dest-compress-format gzip --dest-force-compress-format",
        ) from error
    if found != digest:
        raise refused(f"{name} is changed", url, f"content {found}", f"content {digest}")


def _of_program(files: Files, folders: Sequence[str], starts: Starts) -> Iterator[_Wrong]:
    program, pip = files.program(folders), f"RUN pip install jupyterhub=={starts.hub} jupyterlab"
    if program is None:
        path = ":".join(f"/{folder}" for folder in folders)
        what, allowed = f"{PROGRAM} is not in PATH", f"{PROGRAM} in a folder of PATH"
        if files.programs:
            folder = f"/{min(files.programs).rpartition('/')[0]}"
            yield what, f"PATH {path}, the program in {folder}", allowed, f"ENV PATH={folder}:$PATH"
        else:
            yield what, f"none in {path}", allowed, pip
        return
    place = f"/{_path(program)}"
    if starts.homes and place.startswith(f"{HOME}/"):
        what, allowed = f"students' homes cover {PROGRAM}", f"a folder outside of {HOME}"
        yield what, place, allowed, f"USER root, then {pip}"
    if program.isfile() and not _may(program, 0o1):
        line = f"RUN chmod a+rx {place}"
        allowed = f"one that user {USER} may run"
        yield f"user {USER} cannot run {PROGRAM}", f"mode {program.mode:o}", allowed, line
    versions = files.versions(folders)
    for name in starts.packages:
        if name not in versions:
            line = f"RUN pip install {name}{f'=={starts.hub}' if name == 'jupyterhub' else ''}"
            where = f"none in the Python of {place}"
            yield f"{name} is missing", where, name, line
    found = versions.get("jupyterhub")
    if found is not None and not starts.accepts(found):
        allowed = f"{parts(starts.hub)[0]}.…: the hub has {starts.hub}"
        yield "its JupyterHub is of another major version", found, allowed, pip


def _of_entrypoint(words: Sequence[str]) -> Iterator[_Wrong]:
    """Yield an entrypoint that does not run the words after it: the hub gives it the program."""
    if not words:
        return
    name, rest = words[0].rpartition("/")[2], words[1:]
    flags = [one for one in rest if one.startswith("-")]
    own = False  # whether it runs something of its own, or reads a binary as its script
    if name in SHELLS:
        commands = [at for at, one in enumerate(rest) if re.fullmatch(r"-\w*c", one)]
        passes = any("$@" in one for one in rest)  # as bash -c 'source FILE && exec "$@"' --
        own = commands != [len(rest) - 1] and not passes if commands else len(flags) == len(rest)
    elif name.startswith(("python", "ipython")):
        own = len(flags) == len(rest)
    elif name.startswith("jupyter"):
        own = True
    if own:
        what, allowed = "its entrypoint does not run its arguments", "none, or one as tini"
        yield what, " ".join(words), allowed, "ENTRYPOINT []"


def _of_home(files: Files, environment: Mapping[str, str], folder: str) -> Iterator[_Wrong]:
    add = f"RUN useradd --uid {USER} --gid {GROUP} --create-home --home-dir {HOME} jovyan"
    homes = {one[2]: one[5] for one in _users(files.users or "")}
    if str(USER) not in homes:
        allowed = f"a user {USER}: the hub starts notebooks as that one"
        yield f"user {USER} is missing", f"none in /{USERS}", allowed, add
        return
    home = environment.get("HOME") or homes[str(USER)]
    entry = files.home
    if home.rstrip("/") != HOME:
        allowed = f"{HOME}, where courses have their homes"
        yield f"home of user {USER} is another folder", home, allowed, f"ENV HOME={HOME}"
    elif entry is None or not entry.isdir():
        line = f"RUN install --directory --owner {USER} --group {GROUP} {HOME}"
        yield f"home of user {USER} is missing", f"no folder {HOME}", HOME, line
    elif not _may(entry, 0o2):
        got = f"{HOME} of user {entry.uid} and group {entry.gid} with mode {entry.mode:o}"
        allowed, line = f"a folder of user {USER}", f"RUN chown {USER}:{GROUP} {HOME}"
        yield f"user {USER} cannot write in the home", got, allowed, line
    if folder.rstrip("/") != HOME:
        what, allowed = "it starts in another folder than the home, and files are lost", HOME
        yield what, folder, allowed, f"WORKDIR {HOME}"


def _users(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if len(fields := line.split(":")) > 5:
            yield fields


def _may(entry: tarfile.TarInfo, right: int) -> bool:
    """Tell whether the hub's user has a right (4, 2 or 1) to an entry."""
    place = 6 if entry.uid == USER else 3 if entry.gid == GROUP else 0
    return bool(entry.mode & (right << place))


def described(versions: Mapping[str, str]) -> str:
    """Return what an image starts with, in words."""
    names = {"python": "Python", "jupyterhub": "JupyterHub", "jupyterlab": "JupyterLab"}
    return ", ".join(f"{names.get(name, name)} {version}" for name, version in versions.items())


def _path(entry: tarfile.TarInfo) -> str:
    return entry.name.removeprefix("./").strip("/")


def _above(program: str) -> str:
    """Return the folder that has the bin/ of a program."""
    return program.rpartition("/")[0].rpartition("/")[0]


def _text(layer: tarfile.TarFile, entry: tarfile.TarInfo) -> str:
    content = layer.extractfile(entry)
    return content.read().decode(errors="replace") if content else ""


def _base(text: str) -> str:
    """Return the bin/ of the Python whose packages a virtual environment has too, as site.py reads.

    Empty where it has its own alone.
    """
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    said = {key.strip().lower(): value.strip() for key, _, value in pairs}
    own = said.get("include-system-site-packages", "true").lower() != "true"
    return "" if own else said.get("home", "")[:PATH_LENGTH]
