"""The files of a site: links are followed, as Ansible does, and the walk has an end."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bedplate.common.errors import Problem, SiteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Broken files of a folder outside the site, above which the link to it is what is wrong.
BROKEN: Final = 5
#: Files and folders of a site; one of 5,000 hosts with a file each has a quarter of them.
MOST: Final = 20_000


def files_of(site: Path, ignored: Callable[[str], object]) -> Iterator[Path]:
    """Yield the files of a site by name, without ignored names and what is in such folders.

    A folder that leads back to itself is entered once. Raises SiteError for a link to a folder that
    the site is in, such as /, and where there are more files than a site has.
    """
    home = site.resolve()
    entered = set()
    count = 0
    outside: Path | None = None
    for folder, names, files in os.walk(site, followlinks=True):
        names[:] = sorted(name for name in names if not ignored(name))
        here = Path(folder).stat()
        if (here.st_dev, here.st_ino) in entered:
            names.clear()
            continue
        entered.add((here.st_dev, here.st_ino))
        for link in (Path(folder, name) for name in names):
            if link.is_symlink():
                target = link.resolve()
                if home.is_relative_to(target) and target != home:
                    raise _refused("link leads to a folder that the site is in", link, str(target))
                if outside is None and not target.is_relative_to(home):
                    outside = link
        count += len(names) + len(files)
        if count > MOST:
            got = f"more than {MOST} files and folders"
            raise _refused("site has no end", outside or Path(folder), got)
        yield from (Path(folder, name) for name in sorted(files) if not ignored(name))


def folded(site: Path, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems with one for each link to a folder elsewhere that is no part of a site.

    A few broken files of a folder that sites share are named one by one.
    """
    home = site.resolve()
    links: dict[str, Path | None] = {}
    count: Counter[Path] = Counter()
    for problem in problems:
        name = problem.file or ""
        if name not in links:
            links[name] = _link_outside(site, home, Path(name))
        if (link := links[name]) is not None:
            count[link] += 1
    found: list[Problem] = []
    named: set[Path] = set()
    for problem in problems:
        link = links[problem.file or ""]
        if link is None or count[link] <= BROKEN:
            found.append(problem)
        elif link not in named:
            named.add(link)
            got = f"{link.resolve()}, where {count[link]} files cannot be read as inventory"
            found += _refused("link leads to a folder of other things", link, got).problems
    return found


def _link_outside(site: Path, home: Path, path: Path) -> Path | None:
    """Return the link to a folder outside the site that a file is reached through, if any."""
    if not path.is_relative_to(site):
        return None
    for folder in reversed(path.relative_to(site).parents[:-1]):
        if (link := site / folder).is_symlink() and not link.resolve().is_relative_to(home):
            return link
    return None


def _refused(what: str, path: Path, got: str) -> SiteError:
    allowed = "links to files, and to folders of variables"
    fix = "remove it from the site"
    return SiteError([Problem(what, str(path), got=got, allowed=allowed, fix=fix, rule="readable")])
