"""Stand-ins as rpm packages, in a signed repository with the vendor's module streams.

rpmbuild, createrepo_c and modifyrepo_c are the stand-in system's own, or else this machine's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.substrate.standin import system
from tests.substrate.standin.deb import fill
from tests.substrate.standin.packages import ORIGIN, StandIn
from tests.substrate.standin.signing import PUBLIC, Key

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEM = "rocky-9-standin"
#: Where packages are built on the stand-in system.
WORK = "/build"
#: Puts the simulated libraries in place of those that packages brought: dpkg runs it by itself.
AFTER = "/usr/lib/substrate/gpu/simulated-gpus"
VERSION = re.compile(r"^(?:(?P<epoch>\d+):)?(?P<version>[^-]+)-(?P<release>[^-]+)$")
MACROS = (
    f"-D '_gpg_name {ORIGIN}' -D '__gpg /usr/bin/gpg'"
    " -D '_topdir {work}/top' -D '_rpmdir {work}/repository' -D '_dbpath {work}/database'"
    " -D '_build_name_fmt %%{{NAME}}-%%{{VERSION}}-%%{{RELEASE}}.%%{{ARCH}}.rpm'"
    " -D '_binary_payload w0.gzdio' -D '__os_install_post %{{nil}}' -D 'debug_package %{{nil}}'"
)

SCRIPT = """set -e; export GNUPGHOME={work}/gnupg; cd {work}
# rpmbuild makes these too, and two at once get in each other's way.
for name in BUILD BUILDROOT RPMS SOURCES SPECS SRPMS; do mkdir -p top/$name; done
ls specs/*.spec | xargs -P 2 -n 4 rpmbuild --quiet --target x86_64 -bb {macros}
rpmsign {macros} --addsign repository/*.rpm >/dev/null
createrepo_c --quiet --no-database --compatibility repository
modifyrepo_c --mdtype=modules modules.yaml repository/repodata >/dev/null
gpgconf --kill all
"""


def spec(package: StandIn, work: str = WORK) -> str:
    """Return the specification of a package whose files lie below WORK/roots/NAME-VERSION."""
    parts = VERSION.match(package.version)
    assert parts is not None, package
    lines = [
        f"Name: {package.name}",
        f"Version: {parts['version']}",
        f"Release: {parts['release']}",
        *([f"Epoch: {parts['epoch']}"] if parts["epoch"] else []),
        f"Summary: stand-in without the vendor's content, for tests ({ORIGIN})",
        "License: none",
        f"Vendor: {ORIGIN}",
        "AutoReqProv: no",
        *(f"Requires: {name} {version}".rstrip() for name, version in package.relations()),
        *(f"Conflicts: {name}" for name in package.replaces),
    ]
    if package.one_of:
        lines += [f"Provides: {package.one_of}", f"Conflicts: {package.one_of}"]
    root = f"{work}/roots/{folder(package)}"
    return "\n".join(
        [
            *lines,
            "%description",
            f"A stand-in of {package.name} {package.version}: nothing of the vendor's is in it.",
            "%install",
            f"cp -a {root}/. %{{buildroot}}/",
            # In rpm's own Lua: a shell would have to be a package of the stand-in system.
            "%posttrans -p <lua>",
            f"if posix.access('{AFTER}', 'x') then os.execute('{AFTER} libraries') end",
            "%files",
            *_listed(package),
            "",
        ]
    )


def folder(package: StandIn) -> str:
    """Return the name of a package's own folder."""
    return f"{package.name}-{package.version.replace(':', '-')}"


def _listed(package: StandIn) -> Iterable[str]:
    yield f"/usr/share/doc/{package.name}/STAND-IN"
    yield from package.files
    yield from package.links
    for name in package.configuration:
        yield f"%config(noreplace) {name}"
    for name in package.programs:
        yield f"%attr(0755, root, root) {name}"


def streams(packages: Iterable[StandIn]) -> str:
    """Return the module metadata: a stream of each branch and flavour, as the vendor has them."""
    found: dict[str, list[str]] = {}
    every = list(packages)
    for package in every:
        parts = VERSION.match(package.version)
        assert parts is not None
        branch = parts["version"].split(".")[0]
        artifact = (
            f"{package.name}-{parts['epoch'] or 0}:{parts['version']}-{parts['release']}.x86_64"
        )
        for flavour in ("open", "dkms"):
            mine = {"kmod-nvidia-open-dkms": "open", "kmod-nvidia-latest-dkms": "dkms"}
            if branch.isdigit() and len(branch) == 3 and mine.get(package.name, flavour) == flavour:
                found.setdefault(f"{branch}-{flavour}", []).append(artifact)
    return "".join(
        "---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n"
        f'  stream: "{stream}"\n  version: 20261121000000\n  context: standin\n  arch: x86_64\n'
        f"  summary: stand-in\n  description: >-\n    stand-in\n  license:\n    module: [MIT]\n"
        "  artifacts:\n    rpms:\n" + "".join(f"    - {name}\n" for name in artifacts) + "...\n"
        for stream, artifacts in sorted(found.items())
    )


def repository(packages: Iterable[StandIn], target: Path, key: Key, *, here: bool = False) -> None:
    """Build packages into a folder with index, module streams and the public key beside it.

    On a stand-in system, which takes root; or *here*, by this machine's own programs.
    """
    every = list(packages)
    root = Path("/") if here else system.unpack(SYSTEM, key.home.parent / "system")
    place = str(key.home.parent / "build") if here else WORK
    work = root / place.removeprefix("/")
    for name in ("specs", "repository"):
        (work / name).mkdir(parents=True)
    for package in every:
        files = work / "roots" / folder(package)
        files.mkdir(parents=True)
        fill(package, files)
        (work / "specs" / f"{folder(package)}.spec").write_text(spec(package, place))
    (work / "modules.yaml").write_text(streams(every))
    shutil.copytree(key.home, work / "gnupg", ignore=shutil.ignore_patterns("S.*"))
    script = SCRIPT.format(macros=MACROS.format(work=place), work=place)
    code, said = _run(script, None if here else root)
    if code:
        told = [line for line in said.splitlines() if not line.startswith("warning:")]
        raise RuntimeError("the stand-ins could not be built\n" + "\n".join(told[-20:]))
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(work / "repository", target)
    (target / PUBLIC).write_bytes(key.public)
    shutil.rmtree(work if here else root)


def _run(script: str, root: Path | None) -> tuple[int, str]:
    argv = ["/bin/sh", "-c", script]
    if root is None:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        return done.returncode, done.stderr
    answer = system.host(root).run(argv, timeout=600)
    return answer.code, answer.err
