"""The apt transaction: what it asks for, what it refuses, and when it fetches the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.bedplate.gpu.plugins.modules import debian_packages

from bedplate.portable.host import Host, Result
from bedplate.portable.packages import apt, holds
from bedplate.portable.packages.apt import Wish
from bedplate.portable.packages.transaction import TransactionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def host(root: Path, answer: Callable[[Sequence[str]], Result]) -> Host:
    """A host whose commands are answered by *answer*."""
    return Host(str(root), lambda argv, _timeout, _environment=None: answer(argv))


class Apt:
    """Offers versions by package, from when its index was fetched, and remembers what was asked."""

    def __init__(self, *failures: str, known: bool = True, **offers: str) -> None:
        self.failures, self.known, self.offers = list(failures), known, offers
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str]) -> Result:
        if argv[0] == "apt-cache":
            rows = [f" {n} | {v} | http://m.example x\n" for n, v in self.offers.items()]
            return Result(0, "".join(rows) if self.known else "", "")
        if "update" in argv:
            self.known = True
            self.asked.append(["update"])
        elif "install" in argv:
            self.asked.append(list(argv[argv.index("install") :]))
            if self.failures:
                return Result(100, "", self.failures.pop(0))
        return Result(0, "", "")


def test_any_version_takes_what_there_is_and_moves_nothing(tmp_path: Path) -> None:
    asked = Apt(runc="1.1", socat="1.7", docker="20.10.24+dfsg1-1", nvidia="535")
    wish = Wish({"runc": "", "socat": "", "docker": "20.10*", "nvidia": "535"}, work="/work")
    apt.run(host(tmp_path, asked), wish, ["socat", "docker"])
    assert asked.asked == [["install", "docker=20.10*", "nvidia=535", "socat"]]
    pins = (tmp_path / "work/preferences").read_text()
    assert [line for line in pins.splitlines() if line.startswith("Pin: ")] == ["Pin: version 535"]


@pytest.mark.parametrize("wished", ["", "1*", "1"])
def test_what_the_index_does_not_know_fetches_it(tmp_path: Path, wished: str) -> None:
    asked = Apt(known=False, runc="1")
    apt.run(host(tmp_path, asked), Wish({"runc": wished}, work="/work"), ["runc"])
    assert [words[0] for words in asked.asked] == ["update", "install"]


def test_a_version_that_nobody_offers_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TransactionError) as refused:
        apt.run(
            host(tmp_path, Apt(runc="2")), Wish({"runc": "1*", "x": ""}, work="/w"), ["runc", "x"]
        )
    assert refused.value.got == "no runc=1*, x"


def test_a_file_that_is_gone_fetches_the_index_once(tmp_path: Path) -> None:
    gone = "E: Unable to fetch some archives, maybe run apt-get update\n"
    asked = Apt(gone, runc="1")
    apt.run(host(tmp_path, asked), Wish({"runc": ""}, work="/work"), ["runc"])
    assert [words[0] for words in asked.asked] == ["install", "update", "install"]
    asked = Apt(gone, gone, runc="1")
    with pytest.raises(TransactionError):
        apt.run(host(tmp_path, asked), Wish({"runc": ""}, work="/work"), ["runc"])


def test_a_failure_is_told_with_dpkgs_reason(tmp_path: Path) -> None:
    printed = (
        "dpkg: error processing package runc (--configure):\r\n"
        " package is in a very bad inconsistent state; you should\r\n"
        " reinstall it before attempting configuration\n"
        "Errors were encountered while processing:\n"
        " runc\n"
        "E: Sub-process /usr/bin/dpkg returned an error code (1)\n"
    )
    with pytest.raises(TransactionError) as failed:
        apt.run(host(tmp_path, Apt(printed, runc="1")), Wish({"runc": "1"}, work="/w"), ["runc"])
    assert failed.value.got == (
        "dpkg: error processing package runc (--configure): package is in a very bad inconsistent"
        " state; you should reinstall it before attempting configuration;"
        " E: Sub-process /usr/bin/dpkg returned an error code (1)"
    )


def test_a_new_source_is_asked_though_another_knows_the_name(tmp_path: Path) -> None:
    asked = Apt(runc="1")
    apt.run(host(tmp_path, asked), Wish({"runc": ""}, work="/work", refresh=True), ["runc"])
    assert [words[0] for words in asked.asked] == ["update", "install"]


def simulating(simulated: str, sources: str = "") -> Callable[[Sequence[str]], Result]:
    """Answer as an apt that offers new=535, and would do *simulated*."""

    def answer(argv: Sequence[str]) -> Result:
        if argv[0] == "apt-cache":
            return Result(0, " new | 535 | http://m.example x Packages\n", "")
        if "--simulate" in argv:
            return Result(0, simulated, "")
        if argv[0] == "dpkg-query":
            return Result(0, sources, "")
        return Result(0, "", "")

    return answer


def test_a_transaction_that_removes_more_is_refused(tmp_path: Path) -> None:
    wish = Wish({"new": "535"}, ["old"], work="/work")
    here = host(tmp_path, simulating("Remv old [470]\nRemv app [1]\n", "old\tnvidia\napp\tapp\n"))
    with pytest.raises(TransactionError) as refused:
        apt.run(here, wish, ["new"])
    assert (refused.value.got, refused.value.allowed) == ("app", "old")


def test_check_mode_refuses_by_what_the_index_knows(tmp_path: Path) -> None:
    here = host(tmp_path, simulating("Remv old [470]\nRemv app [1]\n", "old\tnvidia\napp\tapp\n"))
    with pytest.raises(TransactionError):
        apt.foresee(here, Wish({"new": "535"}, ["old"], work="/work"), ["new"])
    apt.foresee(here, Wish({"new": "550"}, ["old"], work="/work"), ["new"])  # not in the index


def test_where_nothing_is_to_go_apt_may_remove_nothing(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []
    others = simulating("Remv app [1]\n", "app\tapp\n")

    def answer(argv: Sequence[str]) -> Result:
        asked.append(argv)
        if "--no-remove" in argv:
            return Result(100, "", "E: Packages need to be removed but remove is disabled.\n")
        return others(argv)

    with pytest.raises(TransactionError) as refused:
        apt.run(host(tmp_path, answer), Wish({"new": "535"}, work="/work"), ["new"])
    assert (refused.value.got, refused.value.allowed) == ("app", "no removal")
    installing = [argv for argv in asked if "install" in argv]
    assert ["--simulate" in argv for argv in installing] == [False, True]


def test_the_rest_of_the_same_driver_may_go_with_it(tmp_path: Path) -> None:
    wish = Wish({"new": "535"}, ["old"], work="/work")
    here = host(
        tmp_path, simulating("Remv old [1]\nRemv rest [1]\n", "old\tnvidia\nrest\tnvidia\n")
    )
    apt.run(here, wish, ["new"])


def test_what_goes_is_not_configured_first(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []

    def answer(argv: Sequence[str]) -> Result:
        asked.append(argv)
        return Result(0, "iF \tbroken\t2\n", "") if argv[0] == "dpkg-query" else Result(0, "", "")

    here = host(tmp_path, answer)
    assert apt.mend(here, Wish({}, ["broken"])) == ""
    assert asked[-1] == ["dpkg", "--set-selections"]
    assert apt.mend(here, Wish({"broken": "1"})) == ""  # back to another version of it
    assert asked[-1] == ["dpkg", "--set-selections"]
    for stays in (Wish({"broken": "2"}), Wish({"broken": ""}), Wish({"another": "1"})):
        assert apt.mend(here, stays) == ""
        assert asked[-1][-2:] == ["--configure", "-a"]


def test_what_is_held_is_recorded_with_its_role(tmp_path: Path) -> None:
    on = Host(str(tmp_path), lambda *_: Result(1, "", "E: no such package"))
    with pytest.raises(debian_packages.TransactionError, match="packages could not be held"):
        debian_packages.hold(on, ["nvidia-smi"], "nvidia_driver", 0)
    # Before the call, so that a run which is killed has told of it.
    assert holds.load(on) == {"nvidia-smi": "nvidia_driver"}


KEPT = "/var/lib/bedplate/driver"


class Library(Apt):
    """Has a driver whose packages brought a library along that no driver names."""

    def __init__(self, root: Path, version: str, **offers: str) -> None:
        super().__init__(**offers)
        self.root, self.version = root, version

    def __call__(self, argv: Sequence[str]) -> Result:
        if argv[0] == "dpkg-query":
            out = ""
            form = argv[2].partition("=")[2].replace("\\t", "\t").replace("\\n", "\n")
            for name in ("libcuda1", "libnvidia-ml1", "bash"):
                fields = {"Package": name, "binary:Package": name, "Version": self.version}
                fields |= {"source:Package": "bash" if name == "bash" else "drivers"}
                fields |= {"db:Status-Status": "installed", "db:Status-Want": "install"}
                row = form
                for field, value in fields.items():
                    row = row.replace(f"${{{field}}}", value)
                out += row if len(argv) == 3 or name in argv else ""
            return Result(0, out, "")
        if "--download-only" in argv:
            for word in argv[argv.index("install") + 1 :]:
                self.keep(*word.split("="))
        return super().__call__(argv)

    def keep(self, name: str, version: str) -> None:
        """Lay a package's file into the archives."""
        file = self.root / f"{KEPT.lstrip('/')}/{name}_{version}_amd64.deb"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_what_came_along_with_a_driver_is_kept_with_it(tmp_path: Path) -> None:
    asked = Library(tmp_path, "580", **{"libcuda1": "580", "libnvidia-ml1": "580", "bash": "580"})
    wish = Wish({"libcuda1": "595"}, archives=KEPT, preserve={"libcuda1": "580"})
    assert apt.preserve(host(tmp_path, asked), wish) == []
    assert asked.asked == [["install", "libcuda1=580", "libnvidia-ml1=580"]]
    asked.asked.clear()
    assert apt.preserve(host(tmp_path, asked), wish) == []
    assert asked.asked == []


def test_the_way_back_takes_what_came_along_from_the_archives(tmp_path: Path) -> None:
    """No source has the driver any more, and one of its packages needs the library's version."""
    asked = Library(tmp_path, "595", **{"libcuda1": "595", "libnvidia-ml1": "595"})
    for version in ("580", "595"):
        asked.keep("libcuda1", version)
        asked.keep("libnvidia-ml1", version)
        asked.keep("once-there", version)
    wish = Wish({"libcuda1": "580"}, archives=KEPT, work="/work")
    apt.run(host(tmp_path, asked), wish, ["libcuda1"])
    folder = f"{tmp_path}{KEPT}"
    files = [f"{folder}/libcuda1_580_amd64.deb", f"{folder}/libnvidia-ml1_580_amd64.deb"]
    assert asked.asked[-1] == ["install", *files]
