"""What is supported, as tables: `python -m bedplate.catalogue.matrix` in a checkout writes them.

Every cell says how its fact is known: `vendor` (the maker says so), `tested` (run by this project),
`stand-in` (run with packages that only have the maker's names, versions and dependencies) or
`unproved` (a secondary source, or nobody).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.catalogue import sharing_table
from bedplate.catalogue.facts import NONE, grade
from bedplate.catalogue.load import load_catalogue
from bedplate.common.versions import last, minor, number, parts
from bedplate.portable.message import problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedplate.catalogue.facts import Fact
    from bedplate.catalogue.load import Catalogue

HEAD = """# The supported matrix

Written from the catalogue by `python -m bedplate.catalogue.matrix`; a test keeps it up to date.
Each cell says how it is known: *vendor* (its maker says so), *tested* (run for real by this
project's tests, on the hosts that the README names), *stand-in* (run with packages that have the
maker's names, versions and dependencies and nothing else of theirs) or *unproved* (a secondary
source, or none yet). The plan counts the facts that it relies on and that are no vendor's and not
tested; `bedplate explain` lists them. What the first table lacks is planned, and not installable.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _installable(catalogue: Catalogue, dimension: str) -> Sequence[str]:
    fact = catalogue.installable.get(dimension)
    return fact.value.values if fact else ()


def drivers(catalogue: Catalogue) -> str:
    """Return the branches that each source has for each system."""
    sources = ("distro", "vendor-repo", "precompiled", "runfile")
    rows = []
    for system in sorted(catalogue.systems):
        cells = []
        for source in sources:
            facts = [
                fact
                for fact in catalogue.driver_packages.values()
                if (fact.value.os, fact.value.source) == (system, source)
            ]
            branches = sorted({fact.value.branch for fact in facts})
            told = ", ".join(f"R{branch}" for branch in branches)
            ours = system in _installable(catalogue, "os") and source in _installable(
                catalogue, "source"
            )
            stand_in = catalogue.installable["driver"].value.stand_in
            # That a package was built once is not that our roles install it.
            how = grade(facts).replace("tested", "vendor")
            if ours or f"{system} {source}" in stand_in:
                how = "tested" if ours else "stand-in"
            cells.append(f"{told}: {how}" if facts else NONE)
        rows.append([system, *cells])
    return _table(["System", *sources], rows)


def architectures(catalogue: Catalogue) -> str:
    """Return what drives each architecture."""
    rows = []
    known = catalogue.architectures.values()
    for fact in sorted(known, key=lambda fact: number(fact.value.compute_capabilities[0])):
        one = fact.value
        boards = sum(
            gpu.value.architecture == one.architecture for gpu in catalogue.gpu_models.values()
        )
        rows.append(
            [
                one.architecture,
                str(boards),
                ", ".join(one.compute_capabilities),
                f"R{one.first_branch} to {f'R{one.last_branch}' if one.last_branch else 'now'}",
                ", ".join(one.flavours),
                f"{one.cuda_from} to {one.cuda_upto or 'now'}",
                grade([fact]),
            ]
        )
    head = [
        "Architecture",
        "GPUs",
        "Compute",
        "Driver branches",
        "Kernel module",
        "CUDA",
        "Known by",
    ]
    return _table(head, rows)


def kubernetes(catalogue: Catalogue) -> str:
    """Return Kubernetes releases by container runtimes."""
    releases = sorted(catalogue.kubernetes, key=parts, reverse=True)
    rows = []
    for fact in sorted(
        catalogue.container_runtimes.values(),
        key=lambda fact: (fact.value.runtime, parts(fact.value.version)),
    ):
        one = fact.value
        first = number(one.kubernetes_from) if one.kubernetes_from else 0
        end = last(one.kubernetes_upto) if one.kubernetes_upto else number("999")
        theirs = ", vendor's" if one.source == "vendor-repo" else ""
        name = f"{one.runtime} {one.version}" + (f" ({one.os}{theirs})" if one.os else "")
        cells = [
            grade([fact, catalogue.kubernetes[release]])
            if first <= number(release) <= end
            else NONE
            for release in releases
        ]
        rows.append([name, "yes" if one.cdi else "no", *cells])
    return _table(["Container runtime", "CDI", *releases], rows)


def frameworks(catalogue: Catalogue) -> str:
    """Return framework releases with their builds."""
    builds: dict[tuple[str, str], list[Fact[Any]]] = {}
    for fact in catalogue.frameworks.values():
        builds.setdefault((fact.value.framework, fact.value.version), []).append(fact)
    rows = []
    for (name, version), facts in sorted(
        builds.items(), key=lambda item: (item[0][0], parts(item[0][1])), reverse=True
    ):
        told = ", ".join(
            f"{fact.value.variant}{' (default)' if fact.value.default else ''}: {grade([fact])}"
            for fact in facts
        )
        majors = sorted({minor(fact.value.cuda) for fact in facts if fact.value.cuda}, key=parts)
        rows.append([name, version, ", ".join(majors) or NONE, told])
    return _table(["Framework", "Version", "CUDA", "Builds"], rows)


def addons(catalogue: Catalogue) -> str:
    """Return schedulers, operators and drivers with the Kubernetes that each goes with."""
    rows = []
    for fact in sorted(
        catalogue.addons.values(), key=lambda fact: (fact.value.addon, parts(fact.value.version))
    ):
        one = fact.value
        span = f"{one.kubernetes_from} to {one.kubernetes_upto or 'now'}"
        rows.append([one.addon, one.kind, one.version, span, grade([fact])])
    return _table(["Add-on", "Kind", "Version", "Kubernetes", "Known by"], rows)


def built(catalogue: Catalogue) -> str:
    """Return what this version's roles and stacks carry out, by who has seen it."""
    rows = [
        [
            fact.value.dimension,
            *(
                ", ".join(values) or NONE
                for values in (fact.value.values, fact.value.stand_in, fact.value.unproved)
            ),
        ]
        for fact in sorted(catalogue.installable.values(), key=lambda fact: fact.value.dimension)
    ]
    return _table(["What", "Tested", "Stand-in", "Unproved"], rows)


def document(catalogue: Catalogue) -> str:
    """Return the whole of docs/matrix.md."""
    parts_ = [
        ("What this version installs", built(catalogue)),
        ("Drivers by system and source", drivers(catalogue)),
        ("GPU architectures", architectures(catalogue)),
        ("Kubernetes and container runtimes", kubernetes(catalogue)),
        ("Frameworks", frameworks(catalogue)),
        ("Schedulers, operators and drivers of the cluster", addons(catalogue)),
    ]
    return HEAD + "".join(f"\n## {title}\n\n{table}\n" for title, table in parts_)


def main(root: Path | None = None) -> int:
    """Write docs/matrix.md, and the modes of docs/sharing.md, of the checkout it is run in."""
    page = (root or Path()) / "docs" / "matrix.md"
    try:
        page.write_text(document(load_catalogue()), encoding="utf-8")
        if page.with_name("sharing.md").exists():
            return sharing_table.main(root)
    except OSError as error:
        print(
            problem(
                "matrix cannot be written", str(page), str(error), None, "run it in a checkout"
            ),
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
