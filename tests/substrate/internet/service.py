"""The stand-in as a process on a network's gateway, which outlives the command that starts it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import getproxies

from bedplate.mirror import processes
from bedplate.mirror.service import run_directory
from bedplate.mirror.store import Store, cache
from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.internet.authority import Authority
from tests.substrate.internet.faults import Records
from tests.substrate.internet.tree import Tree
from tests.substrate.internet.vendors import Internet

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
PORT = 443
HEALTHY_SECONDS = 120.0
IN_ITS_OWN_NAMES = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


@dataclass(frozen=True)
class Service:
    """The stand-in of one network.

    Attributes:
        network: the network's name; the folder of the process is named so.
        address: where it listens: the network's gateway.
    """

    network: str
    address: str

    @property
    def folder(self) -> Path:
        """The folder of the process: its record, log, access log and faults."""
        return run_directory(self.network) / "internet"

    @property
    def records(self) -> Records:
        """The access log and the faults."""
        return Records(self.folder)

    @property
    def authority(self) -> Authority:
        """What hosts are to trust; it stays, as the hosts of an earlier start trust it too."""
        return Authority(cache() / "internet")

    @property
    def internet(self) -> Internet:
        """What is served: the mirror's own store, under the vendors' names."""
        return Internet(Tree(Store(cache() / "mirror").root))

    def hosts_lines(self) -> str:
        """Return lines for a hosts file that lead every vendor's name here."""
        return "".join(f"{self.address} {name}\n" for name in sorted(self.internet.names()))

    def start(self) -> bool:
        """Start it if it does not run; return whether it had to.

        Raises:
            SubstrateError: it does not come up; its log is quoted.
        """
        if processes.running(self.folder / "internet.json"):
            return False
        if getproxies().keys() & {"http", "https"}:
            raise SubstrateError(
                "hosts behind a proxy can't have a stand-in for the internet",
                "the environment",
                "http_proxy or https_proxy",
                "none: the proxy would be a way past it",
                "use a mirror ('up' without --internet)",
            )
        self.authority.ensure()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "ready").unlink(missing_ok=True)
        processes.start(
            self.folder / "internet.json",
            [sys.executable, "-m", "tests.substrate.internet", self.network, self.address],
            self.folder / "internet.log",
            {"PYTHONPATH": str(ROOT)},
        )
        deadline = time.monotonic() + HEALTHY_SECONDS
        while not (self.folder / "ready").exists():
            if time.monotonic() > deadline or not processes.running(self.folder / "internet.json"):
                said = (self.folder / "internet.log").read_text().strip().splitlines()[-4:]
                self.stop()
                raise SubstrateError(
                    "the stand-in for the internet does not serve",
                    f"{self.address}:{PORT}",
                    " | ".join(said) or "nothing in its log",
                    "a server on the network's gateway",
                    "see that nothing else listens there",
                )
            time.sleep(0.1)
        return True

    def stop(self) -> bool:
        """End the process; return whether it ran."""
        return processes.stop(self.folder / "internet.json")

    def command(self, command: list[str]) -> list[str]:
        """Return a command that sees the vendors' names here, and nothing else of this changed.

        It runs in a mount name space of its own, with another hosts file: the machine keeps its.
        """
        names = self.folder / "hosts"
        names.parent.mkdir(parents=True, exist_ok=True)
        names.write_text(Path("/etc/hosts").read_text() + "\n" + self.hosts_lines())
        apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_ITS_OWN_NAMES]
        return [*apart, "sh", str(names), *command]

    def trust(self) -> Mapping[str, str]:
        """Return the variables with which a command trusts the stand-in too."""
        self.authority.ensure()
        bundle = self.folder / "bundle.crt"
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_text(TRUSTED.read_text() + self.authority.certificate.read_text())
        return dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(bundle))
