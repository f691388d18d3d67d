"""dnf in a root of its own: which packages a system without any would get, checked and fetched.

dnf itself reads the repositories' indexes, decides what depends on what and verifies signatures:
of each package, and of an index where its owner signs it. Nothing of this machine's own packages
or repositories is looked at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.mirror.errors import MirrorError
from bedplate.mirror.packages import pool, running
from bedplate.mirror.packages.pool import Package
from bedplate.portable import openpgp
from bedplate.portable.packages import dnf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bedplate.common import programs
    from bedplate.mirror.packages.wanted import System, Wanted

PLUGIN = Path(__file__).with_name("dnf_listing.py")
#: dnf verifies packages by this one, and goes without it as far as their signatures.
PROGRAMS = ("dnf", "rpmkeys")
SAID = re.compile(r"^(?:Error:|No match|missing |\s*- |\s*Problem(?!s in request))")
CONFIGURATION = """\
[main]
reposdir={root}/repositories
varsdir={root}/variables
pluginpath={root}/plugins
pluginconfpath={root}/plugins
cachedir=/var/cache/dnf
module_platform_id=platform:el{release}
metadata_expire=never
skip_if_unavailable=False
install_weak_deps=False
plugins=True
gpgcheck=True
keepcache=True
best=True
"""


@dataclass(frozen=True)
class DnfRoot:
    """A folder in which dnf keeps indexes and packages of one system.

    Attributes:
        root: the folder.
        ca: certificates of the authorities to trust instead of this machine's.
    """

    root: Path
    ca: Path | None = None

    @property
    def archives(self) -> Path:
        """Where dnf puts the packages."""
        return self.root / "packages"

    @property
    def _system(self) -> Path:
        return self.root / "system"

    def prepare(self, system: System, trusted: Mapping[str, bytes]) -> None:
        """Write repositories and keys, and fetch the indexes.

        Args:
            system: what to read.
            trusted: key files without armour, by fingerprint.

        Raises:
            MirrorError: dnf is missing, or an index doesn't come or isn't signed by its key.
        """
        # The keys that rpm and dnf have learnt are in there too.
        shutil.rmtree(self._system, ignore_errors=True)
        for name in ("repositories", "plugins", "keys", "tmp"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            (self.root / name).mkdir(parents=True)
        self._system.mkdir()
        self.archives.mkdir(exist_ok=True)
        shutil.copyfile(PLUGIN, self.root / "plugins" / PLUGIN.name)
        release = _release(system)
        text = CONFIGURATION.format(root=self.root, release=release)
        authorities = f"sslcacert={self.ca.absolute()}\n" if self.ca else ""
        (self.root / "dnf.conf").write_text(text + authorities)
        for number, source in enumerate(system.sources):
            one = source.repository
            key = self.root / f"keys/{one.fingerprint}"
            # rpm would trust any other key of the file as well.
            only = openpgp.only(trusted[one.fingerprint], one.fingerprint)
            key.write_text(openpgp.armoured(only))
            (self.root / f"repositories/{number}.repo").write_text(
                f"[source-{number}]\nname={one.index}\nbaseurl={one.index}\n"
                f"gpgkey=file://{key}\nrepo_gpgcheck={one.signed_index}\n"
            )
        done = self._dnf(system, "--assumeyes", "makecache", seconds=running.LOOK_SECONDS)
        if done.status:
            raise MirrorError(
                "repositories of packages cannot be read",
                system.name,
                _errors(done),
                "indexes that come, signed by their keys",
                "see that this machine reaches them; behind a proxy, set https_proxy",
            )

    def closure(self, system: System, wanted: Wanted) -> list[Package]:
        """Return what hosts that have nothing would get, with all that it depends on.

        Raises:
            MirrorError: a repository doesn't have it, or it can't be installed together.
        """
        self._enable(system, wanted)
        listed = self._system / "packages.json"
        listed.unlink(missing_ok=True)
        done = self._install(system, wanted, "--assumeno", seconds=running.LOOK_SECONDS)
        if dnf.NOTHING_DONE not in done.text + done.errors or not listed.is_file():
            raise _not_had(system, wanted, done)
        rows = json.loads(listed.read_text())
        if strange := [name for name, (kind, _), _ in rows if kind != "sha256"]:
            raise MirrorError(
                "packages have no digest that can be trusted",
                f"{system.name}, {wanted.name}",
                ", ".join(strange),
                "SHA-256 in the repository's index",
                "take them from another repository",
            )
        return [Package(name, digest, size) for name, (_, digest), size in rows]

    def fetch(self, system: System, wanted: Wanted, packages: Sequence[Package]) -> None:
        """Fetch packages, going on from what is there, and verify the signature of each.

        Raises:
            MirrorError: something doesn't come, isn't what the index says, or isn't signed.
        """
        pool.lacking(self.archives, packages)
        words = ("--assumeyes", "--downloadonly", f"--downloaddir={self.archives}")
        done = self._install(system, wanted, *words, seconds=running.FETCH_SECONDS, quiet=False)
        wrong = pool.lacking(self.archives, packages)
        if done.status or wrong:
            raise MirrorError(
                "packages did not come",
                f"{system.name}, {wanted.name}",
                _errors(done) or "another content of " + ", ".join(one.name for one in wrong),
                "what the index lists, signed by the repository's key",
                "run the same command again: it goes on where it stopped",
            )

    def modules(self) -> str:
        """Return what the repositories say of their modules, as one stream of YAML."""
        path = self._system / "modules.yaml"
        return path.read_text() if path.is_file() else ""

    def _enable(self, system: System, wanted: Wanted) -> None:
        shutil.rmtree(self._system / "etc/dnf/modules.d", ignore_errors=True)
        streams = [f"{module}:{stream}" for module, stream in wanted.streams.items()]
        if not streams:
            return
        words = ("--assumeyes", "module", "enable", *streams)
        done = self._dnf(system, *words, seconds=running.LOOK_SECONDS)
        if done.status:
            raise _not_had(system, wanted, done)

    def _install(
        self, system: System, wanted: Wanted, *words: str, seconds: int, quiet: bool = True
    ) -> programs.Ended:
        asked = [
            dnf.exact(name, version) if version else name
            for name, version in sorted(wanted.packages.items())
        ]
        return self._dnf(system, *words, "install", *asked, seconds=seconds, quiet=quiet)

    def _dnf(self, system: System, *words: str, seconds: int, quiet: bool = True) -> programs.Ended:
        for name in PROGRAMS:
            if shutil.which(name) is None:
                raise MirrorError(
                    f"packages of {system.name} cannot be looked up",
                    "PATH",
                    f"no {name}",
                    "dnf 4 and rpm",
                    "install the packages dnf, rpm and createrepo-c (Debian, Ubuntu) or "
                    "createrepo_c (Red Hat's family, which has the others)",
                )
        # It wants to be root, and changes nothing but what is in this folder.
        alone = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
        options = [f"--config={self.root / 'dnf.conf'}", f"--installroot={self._system}"]
        options += [f"--releasever={_release(system)}", "--color=never"]
        own = {"LC_ALL": "C.UTF-8", "DNF_DISABLE_ALIASES": "1", "TMPDIR": str(self.root / "tmp")}
        try:
            return running.run(
                [*alone, "dnf", *options, *words], own, system.name, seconds, quiet=quiet
            )
        finally:
            end_agents(self.root)


def end_agents(root: Path) -> None:
    """End the agents of GnuPG that dnf has started for folders below *root*: it leaves them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended by itself, or is another user's
            program, *words = path.read_bytes().decode(errors="replace").split("\0")
            if Path(program).name == "gpg-agent" and any(
                Path(word).is_relative_to(root) for word in words
            ):
                os.kill(int(path.parent.name), signal.SIGTERM)


def _release(system: System) -> str:
    return system.name.rpartition("-")[2]


def _not_had(system: System, wanted: Wanted, done: programs.Ended) -> MirrorError:
    return MirrorError(
        "packages cannot be had",
        f"{system.name}, {wanted.name}",
        _errors(done),
        "packages that the repositories offer, in versions that go together",
        "where a driver's version is gone, choose another one and plan again; "
        "bedplate mirror resolve names what is still offered",
    )


def _errors(done: programs.Ended) -> str:
    lines = [*done.text.splitlines(), *done.errors.splitlines()]
    said = [line for line in lines if SAID.match(line) and line.strip() != "Error:"]
    last = [line for line in lines if line.strip()][-3:]
    return "; ".join(line.strip().removeprefix("Error: ") for line in said[:6] or last)
