"""How old each page of docs/proof is: what it proves, the digest of that, and if it has changed.

The head of a page has a comment with the day of the run, the paths that it proves, and the digest
of their files on that day. `python -m tests.proofs` compares, and writes a line below the comment
where they have changed since; `make prove AREA=…` makes a page again. A digest, and no commit's
number: a checkout may have no history.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "proof"
HEAD = re.compile(
    r"<!-- proved on (?P<day>\d{4}-\d\d-\d\d): (?P<paths>[^:]+): "
    r"(?P<digest>sha256:[0-9a-f]{64}) -->"
    r"\n(?:\n(?P<told>\*\*Outdated [^\n]*)\n)?"
)
#: What an area proves in addition to its own tests; what no page of an area has is all of it.
PROVED = {
    "bad-sites": ("src/bedplate/site", "src/bedplate/resolver"),
    "browser": ("src/bedplate/evidence", "templates/report"),
    "completeness": ("src/bedplate/resolver",),
    "hosts": (
        "roles/nvidia_driver",
        "src/bedplate/portable/driver",
        "src/bedplate/portable/kernel",
    ),
    "mirror": ("roles/package_mirror", "src/bedplate/bill", "src/bedplate/mirror"),
    "mixes": ("playbooks", "roles", "src/bedplate/portable", "src/bedplate/provider"),
    "mutants": ("src/bedplate/catalogue/facts", "src/bedplate/resolver"),
    "resolver": ("src/bedplate/resolver",),
    "roles": ("extensions", "roles", "src/bedplate/portable"),
    "silicon": ("src/bedplate/portable",),
    "site": ("playbooks", "roles", "src/bedplate/portable", "stacks"),
    "standin": ("roles/nvidia_driver", "src/bedplate/portable"),
}


class Proof(NamedTuple):
    """The head of a page; `told` is its line that says that it is outdated, or empty."""

    day: date
    paths: tuple[str, ...]
    digest: str
    told: str


def digest(paths: tuple[str, ...], root: Path = ROOT) -> str:
    """Return the digest of the files that Git knows below some paths, by name and content."""
    command = ["git", "ls-files", "-z", "--", *paths]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    found = hashlib.sha256()
    for name in sorted(filter(None, done.stdout.split("\0"))):
        if (root / name).is_file():
            content = hashlib.sha256((root / name).read_bytes()).hexdigest()
            found.update(f"{name} {content}\n".encode())
    return f"sha256:{found.hexdigest()}"


def head(paths: tuple[str, ...], day: date) -> str:
    """Return the comment of a page that was made now."""
    return f"<!-- proved on {day}: {' '.join(paths)}: {digest(paths)} -->\n"


def head_of(area: str, tests: str, day: date) -> str:
    """Return the comment of the page that an area's run writes."""
    return head((tests.partition("::")[0], *PROVED.get(area, ("src/bedplate",))), day)


def read(text: str) -> Proof | None:
    """Return what the head of a page says; None if it has no such comment below its title."""
    found = HEAD.search(text)
    if found is None or text[: found.start()].count("\n") > 2:
        return None
    day, paths = date.fromisoformat(found["day"]), tuple(found["paths"].split())
    return Proof(day, paths, found["digest"], found["told"] or "")


def is_outdated(proof: Proof) -> bool:
    """Tell whether what a page proves has changed since."""
    return digest(proof.paths) != proof.digest


def line(proof: Proof, today: date) -> str:
    """Return the line that a page has where what it proves has changed."""
    names = ", ".join(f"`{path}`" for path in proof.paths)
    return (
        f"**Outdated since {today} or before.** It was proved on {proof.day}, and something has "
        f"changed since below {names}."
    )


def written(text: str, proof: Proof, today: date) -> str:
    """Return a page whose head says whether it is outdated; a line that is right stays."""
    if is_outdated(proof) == bool(proof.told):
        return text
    found = HEAD.search(text)
    assert found is not None
    comment = found[0].partition("\n")[0]
    told = "" if proof.told else f"\n{line(proof, today)}\n"
    return f"{text[: found.start()]}{comment}\n{told}{text[found.end() :]}"


def main() -> int:
    """Write the lines of all pages, and print which pages changed."""
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (proof := read(text)) is None:
            print(f"{path.relative_to(ROOT)}: no line `<!-- proved on …` below its title")
            return 1
        if (new := written(text, proof, datetime.now(UTC).date())) != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: {'up to date' if proof.told else 'outdated'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
