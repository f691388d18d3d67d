"""apt in a root of its own: which packages a system without any would get, checked and fetched.

apt itself reads the archives' indexes, verifies their signatures and decides what depends on what.
Nothing of this machine's own packages or sources is looked at, but for its way out (proxies).
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.common import programs, writing
from bedplate.mirror.errors import MirrorError
from bedplate.mirror.packages import pool, running
from bedplate.mirror.packages.pool import Package
from bedplate.portable.host import Host
from bedplate.portable.packages import debian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bedplate.mirror.packages.wanted import Source, System, Wanted

ARCHITECTURE = "amd64"
#: Only packages that are asked for at an exact version come from a vendor, as on hosts.
BEHIND = 1
#: How long apt may take to say how it is set up.
CONFIG_SECONDS = 60
#: What of this machine's apt holds here too: how it gets out.
WAY_OUT = re.compile(r'^(?:Acquire::https?::[^\n]*) ".*";$')
URI = re.compile(r"^'(?P<uri>[^']+)' (?P<name>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$")
CONFIGURATION = """\
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
APT::Get::Assume-Yes "true";
Acquire::Languages "none";
Acquire::ForceHash "SHA256";
Acquire::Retries "3";
Dir "{root}/";
Dir::Etc "etc/apt";
Dir::State "state";
Dir::State::status "{root}/status";
Dir::Cache "cache";
"""


@dataclass(frozen=True)
class AptRoot:
    """A folder in which apt keeps indexes and packages of one system.

    Attributes:
        root: the folder.
        ca: certificates of the authorities to trust instead of this machine's.
    """

    root: Path
    ca: Path | None = None

    @property
    def archives(self) -> Path:
        """Where apt puts the packages."""
        return self.root / "cache/archives"

    def prepare(self, system: System, keys: Mapping[str, bytes]) -> None:
        """Write sources, pins and keys, and fetch the indexes.

        Args:
            system: what to read.
            keys: key files without armour, by fingerprint.

        Raises:
            MirrorError: apt is missing, or an index doesn't come or isn't signed by its key.
        """
        etc = self.root / "etc/apt"
        for folder in ("apt.conf.d", "sources.list.d", "preferences.d", "trusted.gpg.d"):
            shutil.rmtree(etc / folder, ignore_errors=True)
            (etc / folder).mkdir(parents=True)
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "status").write_text("")
        text = CONFIGURATION.format(root=self.root, architecture=ARCHITECTURE)
        trusted = f'Acquire::https::CAInfo "{self.ca.absolute()}";\n' if self.ca else ""
        (self.root / "apt.conf").write_text(text + _way_out() + trusted)
        for number, source in enumerate(system.sources):
            one = source.repository
            (etc / f"trusted.gpg.d/{one.fingerprint}.gpg").write_bytes(keys[one.fingerprint])
            (etc / f"sources.list.d/{number}.sources").write_text(_stanza(source))
            if source.origin:
                pin = f"Package: *\nPin: release o={source.origin}\nPin-Priority: {BEHIND}\n"
                (etc / f"preferences.d/{number}").write_text(pin)
        done = self._apt(
            "update", seconds=running.LOOK_SECONDS, options=("APT::Update::Error-Mode=any",)
        )
        if done.status:
            raise MirrorError(
                "archives of packages cannot be read",
                system.name,
                _errors(done),
                "indexes that come, signed by their keys",
                "see that this machine reaches them; behind a proxy, set https_proxy",
            )

    def closure(self, system: System, wanted: Wanted) -> list[Package]:
        """Return what hosts that have nothing would get, with all that it depends on.

        Raises:
            MirrorError: an archive doesn't have it, or it can't be installed together.
        """
        # apt does not name what it has already, so that it looks where it never has anything.
        nothing = self.root / "cache/nothing"
        (nothing / "partial").mkdir(parents=True, exist_ok=True)
        where = f"Dir::Cache::archives={nothing}/"
        done = self._install(wanted, "--print-uris", running.LOOK_SECONDS, options=(where,))
        if done.status:
            raise MirrorError(
                "packages cannot be had",
                f"{system.name}, {wanted.name}",
                _errors(done),
                "packages that the archives offer, in versions that go together",
                "where a driver's version is gone, choose another one and plan again; "
                "bedplate mirror resolve names what is still offered",
            )
        found = [match for line in done.text.splitlines() if (match := URI.match(line))]
        return [Package(one["name"], one["sha256"], int(one["size"])) for one in found]

    def fetch(self, system: System, wanted: Wanted, debs: Sequence[Package]) -> None:
        """Fetch packages, going on from what is there; what isn't as its index says goes first.

        Raises:
            MirrorError: something doesn't come, or isn't what the signed index says.
        """
        if not pool.lacking(self.archives, debs):
            return
        done = self._install(wanted, "--download-only", running.FETCH_SECONDS, quiet=False)
        wrong = pool.lacking(self.archives, debs)
        if done.status or wrong:
            raise MirrorError(
                "packages did not come",
                f"{system.name}, {wanted.name}",
                _errors(done) or "another content of " + ", ".join(deb.name for deb in wrong),
                "what the signed index lists",
                "run the same command again: it goes on where it stopped",
            )

    def _install(
        self,
        wanted: Wanted,
        how: str,
        seconds: int,
        *,
        options: Sequence[str] = (),
        quiet: bool = True,
    ) -> programs.Ended:
        pins = debian.preferences(Host(str(self.root)), wanted.packages)
        writing.replace(self.root / "etc/apt/preferences.d/exact.pref", pins.encode())
        names = ["=".join(filter(None, item)) for item in sorted(wanted.packages.items())]
        return self._apt(how, "install", *names, seconds=seconds, options=options, quiet=quiet)

    def _apt(
        self, *words: str, seconds: int, options: Sequence[str] = (), quiet: bool = True
    ) -> programs.Ended:
        program = shutil.which("apt-get")
        if program is None:
            raise MirrorError(
                "packages of Debian and Ubuntu cannot be looked up",
                "PATH",
                "no apt-get",
                "apt",
                "fill the mirror on a machine with Debian or Ubuntu",
            )
        settings = [part for option in options for part in ("-o", option)]
        own = {"APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return running.run(
            [program, "-q", *settings, *words], own, self.root.name, seconds, quiet=quiet
        )


def _stanza(source: Source) -> str:
    one = source.repository
    components = f"Components: {' '.join(one.components)}\n" if one.suites else ""
    return (
        f"Types: deb\nURIs: {one.index}\nSuites: {' '.join(one.suites) or '/'}\n{components}"
        f"Signed-By: {one.fingerprint}\n"
    )


def _way_out() -> str:
    try:
        done = programs.run(["apt-config", "dump"], CONFIG_SECONDS)
    except programs.MissingError:
        return ""
    except programs.ProgramError as error:
        raise MirrorError(
            "apt's configuration cannot be read",
            "apt-config dump",
            error.got,
            "a list of its settings",
            "correct what it says in /etc/apt",
        ) from error
    return "".join(f"{line}\n" for line in done.text.splitlines() if WAY_OUT.match(line))


def _errors(done: programs.Ended) -> str:
    lines = [line.strip() for line in done.errors.splitlines()]
    said = [line for line in lines if line.startswith("E:")] or lines[-3:]
    # apt gives the reasons of what does not go together on its standard output.
    depends = [line.strip() for line in done.text.splitlines() if "Depends:" in line]
    return "; ".join([*depends[:5], *said])
