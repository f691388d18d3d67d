"""dnf and rpm, real ones, carry out what module dnf_packages asks: exactly that, or nothing.

The packages are stand-ins with the vendor's names, versions and dependencies for Rocky Linux 9, the
system is one too. So this proves order, locks, refusals and repair, not that the vendor's install.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.bill.needs import Repository
from bedplate.mirror.packages.dnf_root import DnfRoot
from bedplate.mirror.packages.keys import SigningKey
from bedplate.mirror.packages.rpm import publish
from bedplate.mirror.packages.wanted import Source, System, Wanted
from bedplate.portable import mirror_sources as mirror
from bedplate.portable import openpgp, repositories
from bedplate.portable.host import Host, Result, run_command
from bedplate.portable.packages import dnf, rpm
from bedplate.portable.packages.dnf import Change, Wish
from bedplate.portable.packages.transaction import TransactionError
from tests.standin import playing
from tests.standin.exchange import exchange
from tests.substrate import proxy
from tests.substrate.standin import StandIn, driver_packages, system
from tests.substrate.standin import rpm as building
from tests.substrate.standin.packages import pins
from tests.substrate.standin.signing import PUBLIC, Key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SYSTEM = "rocky-9"
OLD, NEW, NEXT = "580.126.20", "580.178.04", "595.91.07"
OPEN, PROPRIETARY = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"
#: What is wished for in any version, the first in two, with what it needs.
TOOLS = [
    StandIn("tool-one", "1.0-1"),
    StandIn("tool-one", "2.0-1"),
    StandIn("tool-two", "1.0-1", needs={"tool-library": ""}, one_of="second-tool"),
    StandIn("tool-library", "1.0-1"),
    StandIn("tool-three", "1.0-1"),
    StandIn("tool-four", "1.0-1", needs={"tool-library": ""}),
    StandIn("tool-five", "1.0-1"),
]
TOOL = StandIn("somebodys-tool", "1.0-1", needs={OPEN: pins(SYSTEM, OLD, "open")[OPEN]})
DEADLINE_S = 600
MOMENT_S = 0.01

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


@pytest.fixture(scope="module")
def rocky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stand-in system with the vendor's repository, its key and no package yet."""
    work = tmp_path_factory.mktemp("standin")
    folder = work / "rocky"
    key = Key(work / "gnupg")
    try:
        # EPEL has dkms on a real one.
        others = [TOOL, *TOOLS, StandIn("dkms", "3.2.1-1")]
        packages = [*driver_packages(SYSTEM, [OLD, NEW, NEXT]), *others]
        building.repository(packages, work / "repository", key)
        system.unpack(building.SYSTEM, folder)
        (work / "repository").rename(folder / "srv/standin")
        on = system.host(folder)
        one = repositories.Repository(
            "nvidia", "stand-ins", "file:///srv/standin", key.fingerprint, "bedplate-standin"
        )
        for name, text in repositories.rpm_files(one).items():
            on.write(name, text)
        public = (folder / "srv/standin" / PUBLIC).read_bytes()
        on.write(repositories.key_path(one, apt=False), openpgp.armoured(openpgp.binary(public)))
        yield folder
    finally:
        key.close()


def stream(on: Host, name: str) -> None:
    """Enable a stream of the driver's module in place of another."""
    for argv in (["reset", "nvidia-driver"], ["enable", f"nvidia-driver:{name}"]):
        answer = on.run(["dnf", "--assumeyes", "--quiet", "module", *argv], 300)
        assert answer.code == 0, answer.said


def installed(on: Host) -> dict[str, list[str]]:
    """All packages of the vendor's, and what stands on them, with their versions.

    What they are built with is another's, and stays when they go.
    """
    answer = on.run(["rpm", "--query", "--all", "--queryformat", rpm.QUERY])
    rows = [line.split("\t") for line in answer.out.splitlines()]
    packages = [rpm.Package(*row) for row in rows if row[0] not in ("gpg-pubkey", "dkms")]
    return rpm.versions(packages)


def wished(version: str, flavour: str = "open") -> dict[str, list[str]]:
    """What is installed when a driver is, and nothing else."""
    return {name: [evr] for name, evr in pins(SYSTEM, version, flavour).items()}


def tools(on: Host) -> dict[str, list[str]]:
    """The versions of what is wished for in any version."""
    return rpm.versions(rpm.query(on, sorted({tool.name for tool in TOOLS})))


def state(on: Host) -> dict[str, object]:
    """Everything that a transaction leaves: packages, their files, rpm's own check, locks."""
    files = on.run(["find", "/usr/src", "/usr/lib/x86_64-linux-gnu", "-name", "*nvidia*"]).out
    return {
        "packages": installed(on),
        "files": sorted(files.split()),
        "verified": on.run(["rpm", "--verify", "--all", "--nodeps"], 120).out,
        "locks": on.read(rpm.lock_list(on)),
        "journal": rpm.journal(on),
    }


def test_only_the_streams_versions_are_offered(rocky: Path) -> None:
    on = system.host(rocky)
    with pytest.raises(TransactionError) as caught:
        exchange(on, Wish({OPEN: pins(SYSTEM, OLD, "open")[OPEN]}))
    assert caught.value.parts[0] == ("packages are not offered by the host's repositories")
    stream(on, "580-open")
    assert repositories.stream(on, "nvidia-driver") == "580-open"


def test_exact_versions_in_one_transaction_and_nothing_after_it(rocky: Path) -> None:
    on, wish = system.host(rocky), Wish(pins(SYSTEM, OLD, "open"))
    assert exchange(on, wish) == (False, Change(sorted(wish.packages), []))
    assert installed(on) == wished(OLD)
    assert exchange(on, wish) == (False, Change([], []))


def test_an_upgrade_of_the_host_leaves_it_alone(rocky: Path) -> None:
    on = system.host(rocky)
    assert on.run(["dnf", "--assumeyes", "upgrade"], 300).code == 0
    assert installed(on) == wished(OLD)
    # The locks did that: without them the newer version of the branch comes.
    plan = on.run(["dnf", "--assumeno", "--disableplugin=versionlock", "upgrade"], 300)
    assert re.search(rf"{OPEN} +x86_64 +3:{re.escape(NEW)}", plan.out)


def test_forth_and_back_within_a_branch(rocky: Path) -> None:
    on = system.host(rocky)
    for version in (NEW, OLD):
        exchange(on, Wish(pins(SYSTEM, version, "open")))
        assert installed(on) == wished(version)


def test_what_somebody_else_needs_is_not_removed(rocky: Path) -> None:
    on = system.host(rocky)
    answer = on.run(["dnf", "--assumeyes", "install", TOOL.name], 300)
    assert answer.code == 0, answer.said
    before = state(on)
    stream(on, "580-dkms")
    with pytest.raises(TransactionError) as caught:
        exchange(on, Wish(pins(SYSTEM, OLD, "proprietary"), [OPEN]))
    assert caught.value.parts == (
        "the change would remove packages that are not allowed to go",
        TOOL.name,
        OPEN,
        "Remove them yourself, or allow their removal.",
    )
    assert state(on) == before
    assert on.run(["dnf", "--assumeyes", "remove", TOOL.name], 300).code == 0


def test_the_flavour_changes_only_where_the_other_may_go(rocky: Path) -> None:
    on = system.host(rocky)
    with pytest.raises(TransactionError, match="packages could not be installed"):
        exchange(on, Wish(pins(SYSTEM, OLD, "proprietary")))
    assert installed(on) == wished(OLD)
    assert exchange(on, Wish(pins(SYSTEM, OLD, "proprietary"), [OPEN])) == (
        False,
        Change([PROPRIETARY], [OPEN]),
    )
    assert installed(on) == wished(OLD, "proprietary")
    stream(on, "580-open")
    exchange(on, Wish(pins(SYSTEM, NEW, "open"), [PROPRIETARY]))
    assert installed(on) == wished(NEW)


def send(leader: int, number: signal.Signals) -> None:
    """Signal a process and the commands that it has started, each of which has its own session.

    The process stops first, so that it starts no other in the meantime.
    """
    os.kill(leader, signal.SIGSTOP)
    children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(int(child), number)
    os.kill(leader, number)


def cut_off(folder: Path, version: str, packages: int) -> bool:
    """Change the branch and kill all of it once so many packages are there; whether it was cut.

    Once the transaction has begun it only goes on for moments, and is stopped while it is looked
    at: a busy machine would be past the point else.
    """
    argv = [sys.executable, "-m", "tests.standin.exchange", str(folder), SYSTEM, version, "open"]
    running = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    on, deadline = system.host(folder), time.monotonic() + DEADLINE_S
    while running.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(MOMENT_S)
        if rpm.journal(on) is None:
            continue
        send(running.pid, signal.SIGSTOP)
        there = installed(on)
        done = sum(evr[0] in there.get(name, []) for name, evr in wished(version).items())
        send(running.pid, signal.SIGKILL if done >= packages else signal.SIGCONT)
        if done >= packages:
            break
    return running.wait() == -signal.SIGKILL


def sweep(rocky: Path, points: list[int], figures: dict[str, dict[str, float]]) -> None:
    """Cut a branch change off at each point; the next run comes to the undisturbed state."""
    on = system.host(rocky)
    # From where each round comes: rpm leaves folders behind that no package owns.
    for name, version in (("580-open", NEW), ("595-open", NEXT)):
        stream(on, name)
        exchange(on, Wish(pins(SYSTEM, version, "open")))
    undisturbed, cut, twice = state(on), 0, 0
    assert undisturbed["packages"] == wished(NEXT)
    for point in points:
        stream(on, "580-open")
        exchange(on, Wish(pins(SYSTEM, NEW, "open")))
        stream(on, "595-open")
        if not cut_off(rocky, NEXT, point):
            continue
        cut += 1
        assert rpm.journal(on) is not None
        twice += any(len(versions) > 1 for versions in installed(on).values())
        repaired, _ = exchange(on, Wish(pins(SYSTEM, NEXT, "open")))
        assert repaired
        assert state(on) == undisturbed, point
    figures["a branch change by dnf, cut off"] = {"points": cut, "with packages there twice": twice}
    assert cut >= len(points) // 2
    assert twice
    stream(on, "580-open")
    exchange(on, Wish(pins(SYSTEM, NEW, "open")))


def test_a_transaction_cut_off_is_finished(
    rocky: Path, figures: dict[str, dict[str, float]]
) -> None:
    sweep(rocky, [1, 6], figures)


@pytest.mark.prove
def test_a_transaction_cut_off_anywhere_is_finished(
    rocky: Path, figures: dict[str, dict[str, float]]
) -> None:
    sweep(rocky, list(range(1, len(pins(SYSTEM, NEXT, "open")) + 1)), figures)


def test_repair_does_nothing_to_a_sound_system(rocky: Path) -> None:
    assert not dnf.repair(system.host(rocky))


def test_what_is_wished_in_any_version_comes_where_it_is_missing(rocky: Path) -> None:
    on = system.host(rocky)
    older = playing.module(rocky, "dnf_packages", packages={"tool-one": "1.0-1"}, hold=False)
    assert older["installed"] == ["tool-one"], older
    locks = on.read(rpm.lock_list(on))
    # The second by what it provides, as iptables is what iptables-nft provides.
    wish = {"present": ["tool-one", "second-tool"]}
    told = playing.module(rocky, "dnf_packages", "--check", **wish)
    assert (told["changed"], told["installed"]) == (True, ["second-tool"]), told
    assert tools(on) == {"tool-one": ["0:1.0-1"]}
    done = playing.module(rocky, "dnf_packages", **wish)
    assert (done["changed"], done["installed"]) == (True, ["second-tool"]), done
    there = {"tool-one": ["0:1.0-1"], "tool-two": ["0:1.0-1"], "tool-library": ["0:1.0-1"]}
    assert tools(on) == there
    assert on.read(rpm.lock_list(on)) == locks
    again = playing.module(rocky, "dnf_packages", **wish)
    assert (again["changed"], again["installed"]) == (False, []), again
    assert tools(on) == there


def test_a_package_that_nobody_offers_is_named(rocky: Path) -> None:
    failed = playing.module(rocky, "dnf_packages", present=["tool-one", "nobodys-tool"])
    assert failed["msg"] == (
        f"packages are not offered by the host's repositories — {os.uname().nodename} — "
        "got no nobodys-tool / allowed every package, at the version that is named with it — "
        "Point the repositories at a mirror that has them; where a driver's version is gone, "
        "choose another one and run 'bedplate plan'."
    )


def test_a_package_file_needs_no_signature_and_may_be_older(rocky: Path) -> None:
    on, file = system.host(rocky), "/srv/tool-one.rpm"
    (found,) = (rocky / "srv/standin").glob("tool-one-1.0*.rpm")
    shutil.copy(found, on.path(file))
    assert on.run(["rpmsign", "--delsign", file]).code == 0
    conf = on.read("/etc/dnf/dnf.conf") or "[main]\n"
    on.write("/etc/dnf/dnf.conf", f"{conf}\ngpgcheck=1\nlocalpkg_gpgcheck=1\n")
    newer = playing.module(rocky, "dnf_packages", packages={"tool-one": "2.0-1"}, hold=False)
    assert newer["changed"], newer
    wish = {"files": [file], "hold": False}
    assert playing.module(rocky, "dnf_packages", "--check", **wish)["installed"] == ["tool-one"]
    done = playing.module(rocky, "dnf_packages", **wish)
    assert (done["changed"], done["installed"]) == (True, ["tool-one"]), done
    assert tools(on)["tool-one"] == ["0:1.0-1"]
    assert not playing.module(rocky, "dnf_packages", **wish)["changed"]
    # As a run that was killed leaves it: put in again from the file, which no repository has.
    on.write(rpm.JOURNAL, '{"tool-one": "1.0-1"}')
    shutil.rmtree(on.path("/usr/share/doc/tool-one"))
    assert playing.module(rocky, "dnf_packages", **wish)["repaired"]
    assert on.run(["rpm", "--verify", "tool-one"]).code == 0
    on.write("/etc/dnf/dnf.conf", conf)


def test_what_is_no_package_file_is_told(rocky: Path) -> None:
    failed = playing.module(rocky, "dnf_packages", files=["/etc/os-release"])
    assert failed["msg"].startswith(
        f"a package file cannot be read — {os.uname().nodename} — got /etc/os-release: "
    )
    assert failed["msg"].endswith(" / allowed an rpm package — Bring the right file to the host.")


def test_packages_come_through_the_hosts_proxy(rocky: Path) -> None:
    on, repository = system.host(rocky), "/etc/yum.repos.d/bedplate-nvidia.repo"
    text = on.read(repository) or ""
    on.write(repository, text.replace("file:///srv/standin", proxy.BEHIND))
    # One that was not there before: Debian's dnf keeps the others in a repository of its own, and
    # goes on without one that does not answer.
    wish = {"present": ["tool-three"]}
    failed = playing.module(rocky, "dnf_packages", **wish)
    assert "got no tool-three / " in failed["msg"]
    with proxy.proxy(rocky / "srv/standin") as variables:
        on.write("/etc/bedplate/proxy.env", proxy.written(variables), 0o600)
        done = playing.module(rocky, "dnf_packages", **wish)
    assert done["installed"] == ["tool-three"], done
    assert "tool-three" in tools(on)
    on.remove("/etc/bedplate/proxy.env")
    on.write(repository, text)


def test_packages_come_from_the_sites_mirror_and_nowhere_else(rocky: Path, tmp_path: Path) -> None:
    work = rocky.parent
    key = SigningKey.made(tmp_path / "home", "site")
    (vendor,) = openpgp.fingerprints((rocky / "srv/standin" / PUBLIC).read_bytes())
    index = f"file://{rocky}/srv/standin/"
    # Its packages are signed, its index is not.
    repository = Repository(index, index + PUBLIC, vendor, "rpm", signed_index=False)
    wanted = Wanted("pool", {"tool-four": "1.0-1"})
    filled = System("rocky-9", "rpm", (Source(repository),), (wanted,))
    root = DnfRoot(work / "root")
    root.root.mkdir()
    public = openpgp.binary((rocky / "srv/standin" / PUBLIC).read_bytes())
    root.prepare(filled, {vendor: public})
    packages = root.closure(filled, wanted)
    root.fetch(filled, wanted, packages)
    publish(rocky / "srv/mirror", root.archives, packages, key, root.modules())
    names = [one.name for one in packages]
    assert names == ["tool-four-1.0-1.x86_64.rpm", "tool-library-1.0-1.x86_64.rpm"]

    def alone(
        argv: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None
    ) -> Result:
        words = ["unshare", "--net", "chroot", str(rocky), *argv]
        return run_command(words, timeout, dict(environment or {}))

    on = Host(str(rocky), alone)
    assert mirror.use(on, "RedHat", mirror.Mirror("file:///srv/mirror", key.public())).changes
    key.close()
    exchange(on, Wish({"tool-four": "1.0-1"}))
    assert tools(on)["tool-four"] == ["0:1.0-1"]
    with pytest.raises(TransactionError, match="not offered"):
        exchange(on, Wish({"tool-five": "1.0-1"}))
