"""A repository for dnf below the mirror's files: packages, their index, and its signature."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.bill.repository import parts_of_index
from bedplate.common import writing
from bedplate.mirror.packages import running
from bedplate.mirror.packages.pool import INDEXING, POOL, bring, drop_others, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedplate.mirror.packages.keys import SigningKey
    from bedplate.mirror.packages.pool import Package

INDEX = "repodata"
#: The file that names all others by digest, and its signature.
TOP, SIGNATURE = f"{INDEX}/repomd.xml", f"{INDEX}/repomd.xml.asc"


def publish(
    folder: Path, archives: Path, packages: Iterable[Package], key: SigningKey, modules: str
) -> bool:
    """Have a repository hold just these packages, and return whether anything changed.

    The files of an index have its digests in their names. What hosts read changes with the file
    that names them, and its signature right after it: a host that reads in between is refused, and
    tries again. Packages that are no longer listed go last; the index before stays, for hosts that
    are reading it.

    Args:
        folder: the repository.
        archives: where the packages lie.
        packages: what it is to hold.
        key: signs the index.
        modules: what the packages' own repositories say of their modules, as YAML.

    Raises:
        MirrorError: createrepo_c is missing or fails.
    """
    chosen = {one.name: archives / one.name for one in packages}
    bring(chosen, folder / POOL)
    with tempfile.TemporaryDirectory(dir=folder, prefix=INDEXING) as name:
        fresh = Path(name)
        _index(folder, fresh, sorted(chosen), modules)
        unchanged = _same_index(folder, fresh) and _signed_by(folder, key)
        if not unchanged:
            _exchange(folder, fresh, key)
    gone = drop_others(chosen, folder / POOL)
    return not unchanged or bool(gone)


def _index(folder: Path, fresh: Path, names: Sequence[str], modules: str) -> None:
    """Write an index of these packages alone: others of the pool go only afterwards."""
    listed = fresh / "list"
    listed.write_text("".join(f"{POOL}/{name}\n" for name in names))
    words = ["--no-database", f"--pkglist={listed}", f"--outputdir={fresh}", str(folder)]
    _run("createrepo_c", "--quiet", *words)
    if modules:
        text = fresh / "modules.yaml"
        text.write_text(modules)
        _run("modifyrepo_c", "--mdtype=modules", str(text), str(fresh / INDEX))


def _same_index(folder: Path, fresh: Path) -> bool:
    """Say whether there is an index of the same content, with all of its files."""
    now, before = (parts_of_index(read(one / TOP)) for one in (fresh, folder))
    there = (folder / name for name in before)
    return now == before and all(
        path.is_file() and path.stat().st_size == before[str(path.relative_to(folder))].size
        for path in there
    )


def _exchange(folder: Path, fresh: Path, key: SigningKey) -> None:
    index = folder / INDEX
    index.mkdir(exist_ok=True)
    older = {path.name for path in index.iterdir()}
    current = {Path(name).name for name in parts_of_index(read(folder / TOP))}
    top = read(fresh / TOP)
    signature = key.detached(top)
    now = {Path(name).name for name in parts_of_index(top)}
    for name in now:
        writing.replace(index / name, read(fresh / INDEX / name))
    writing.replace(folder / TOP, top)
    writing.replace(folder / SIGNATURE, signature)
    for name in older - current - now - {Path(TOP).name, Path(SIGNATURE).name}:
        (index / name).unlink()


def _signed_by(folder: Path, key: SigningKey) -> bool:
    return key.has_signed(read(folder / TOP), read(folder / SIGNATURE))


def _run(program: str, *words: str) -> None:
    fix = "install the package createrepo-c (Debian, Ubuntu) or createrepo_c (Red Hat's family)"
    running.index([program, *words], ("the programs of createrepo_c", fix), where=words[-1])
