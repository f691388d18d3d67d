"""The pure parts of the substrate's hosts: descriptions, sources, commands, known hosts."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.substrate.hosts import (
    apt_sources,
    containers,
    description,
    image,
    machine,
    network,
    ssh,
)
from tests.substrate.hosts.errors import SubstrateError

HOSTS = Path(description.__file__).parent
FILE = Path("some/hosts.yml")
GOOD = """\
network: {name: net, subnet: 10.0.0.0/24}
hosts:
  one: {address: 10.0.0.11, os: debian-12}
  two: {address: 10.0.0.12, os: debian-12, gpus: {model: t4-16gb, count: 4}}
"""


def test_description_is_read() -> None:
    read = description.parse(GOOD, FILE)
    assert (read.network, read.subnet, read.gateway) == ("net", "10.0.0.0/24", "10.0.0.1")
    assert read.hosts == (
        description.Host("one", "10.0.0.11", "debian-12", None),
        description.Host("two", "10.0.0.12", "debian-12", description.Gpus("t4-16gb", 4)),
    )
    assert read.container(read.host("two")) == "net-two"


@pytest.mark.parametrize("name", ["demo", "molecule"])
def test_own_descriptions_are_good(name: str) -> None:
    assert description.load(HOSTS / f"{name}.yml").hosts


@pytest.mark.parametrize(
    ("old", "new", "what", "place", "got", "allowed"),
    [
        (
            *("12}", "7}", "unknown value", "3: hosts.one.os", "debian-7"),
            ", ".join(description.known_systems()),
        ),
        ("t: 4", "t: 99", "not a number in range", "4: hosts.two.gpus.count", "99", "1 to 16"),
        ("count", "cuont", "unknown key", "4: hosts.two.gpus.cuont", "cuont", "count, model"),
        ("address: 10.0.0.11, ", "", "a key is missing", "3: hosts.one", "os", "address"),
        ("  two:", "  one:", "given twice", "4: hosts.one", "one", "each key once"),
        (
            *("  two:", "  Two:", "not a host name", "4: hosts.Two", "Two"),
            "lower-case letters, digits and dashes",
        ),
        (
            *("0.12", "0.11", "two hosts have one address", "3: hosts"),
            *("10.0.0.11 for one and two", "a different address for each"),
        ),
        (
            *("0.12", "1.12", "not an address for a host", "4: hosts.two.address", "10.0.1.12"),
            "one of 10.0.0.0/24 other than 10.0.0.1",
        ),
        (
            *("0.12", "0.1", "not an address for a host", "4: hosts.two.address", "10.0.0.1"),
            "one of 10.0.0.0/24 other than 10.0.0.1",
        ),
        (
            *("10.0.0.0/24", "8.8.8.0/24", "not a usable subnet", "1: network.subnet"),
            *("8.8.8.0/24", "a private IPv4 network, /28 or larger"),
        ),
    ],
)
def test_bad_description_is_refused_with_its_place(
    old: str, new: str, what: str, place: str, got: str, allowed: str
) -> None:
    assert old in GOOD
    with pytest.raises(SubstrateError) as caught:
        description.parse(GOOD.replace(old, new, 1), FILE)
    assert str(caught.value) == (
        f"{what} — some/hosts.yml:{place} — got {got} / allowed {allowed} — mend the description"
    )


def test_broken_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(SubstrateError, match=r"^not YAML — some/hosts.yml:2 — "):
        description.parse("network: {\nhosts", FILE)


def test_unknown_host_names_the_known_ones() -> None:
    with pytest.raises(SubstrateError) as caught:
        description.parse(GOOD, FILE).host("three")
    assert str(caught.value) == (
        "no such host — some/hosts.yml — got three / allowed one, two — name one of these hosts"
    )


@pytest.mark.parametrize(("cgroup", "told"), [(1, True), (2, False)])
def test_create_command(cgroup: int, told: bool) -> None:
    read = description.parse(GOOD, FILE)
    machine = containers.Machine(cgroup=cgroup, nofile=20000, nproc=32768)
    command = containers.create_command(
        read, read.hosts[0], "image:tag", machine, {"SYSTEMD_PROC_CMDLINE": "legacy"}
    )
    line = " ".join(command)
    assert line.startswith("podman create --name net-one --hostname one ")
    assert command[-2:] == ["image:tag", "/usr/lib/substrate/init"]
    for part in (
        "--network net --ip 10.0.0.11 ",
        "--privileged --cgroupns=private --systemd=false ",
        "--restart=always ",
        "--volume net-one-var:/var ",
        "--ulimit nofile=20000:20000 --ulimit nproc=32768:32768 ",
        "--label io.bedplate.substrate=net ",
    ):
        assert part in line
    assert ("--env SYSTEMD_PROC_CMDLINE=legacy " in line) is told


@pytest.mark.parametrize(("name", "shares"), [("one", 4096), ("two", 1024)])
def test_a_control_plane_has_more_of_the_processors(name: str, shares: int) -> None:
    """Where hosts can lie beside other programs: in podman's own group all count as one program."""
    read = description.parse(GOOD, FILE)

    def line(*, flat: bool) -> str:
        machine = containers.Machine(cgroup=1, nofile=20000, nproc=32768, flat=flat)
        return " ".join(containers.create_command(read, read.host(name), "i:1", machine, {}))

    assert f"--cgroup-parent /bedplate-net-{name} --cpu-shares {shares} " in line(flat=True)
    assert "--cgroup-parent" not in line(flat=False)


@pytest.mark.parametrize(
    ("place", "weighed"), [("/bedplate-net-one 4096\n", ["4096"]), (" 0\n", []), ("/other 5\n", [])]
)
def test_a_hosts_group_has_its_weight_and_goes_with_it(
    place: str, weighed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").mkdir()
    monkeypatch.setattr(containers, "CGROUPS", tmp_path)
    monkeypatch.setattr(containers, "run", lambda command, **_: place * ("inspect" in command))
    monkeypatch.setattr(containers, "succeeds", lambda _: False)

    containers.start("net-one")
    assert [f.read_text() for f in tmp_path.glob("cpu/*/cpu.shares")] == weighed

    for held in tmp_path.glob("cpu/*/cpu.shares"):
        held.unlink()  # in a tree of cgroups such files go with their folder
        (held.parent / "conmon").mkdir()
    (tmp_path / "cpu/other").mkdir()
    containers.remove("net-one")
    assert [f.name for f in (tmp_path / "cpu").iterdir()] == ["other"]


def test_spec_digest_follows_the_description_alone() -> None:
    def digest(text: str) -> str:
        read = description.parse(text, FILE)
        return containers.spec_digest(read, read.hosts[1])

    assert digest(GOOD) == digest(GOOD + "\n# a comment\n")
    assert digest(GOOD) != digest(GOOD.replace("count: 4", "count: 3"))
    assert digest(GOOD) != digest(GOOD.replace("t4-16gb", "h100-pcie-80gb"))
    assert digest(GOOD) != digest(GOOD.replace("10.0.0.12", "10.0.0.13"))


def test_archive_keeps_root_private() -> None:
    packed = containers.archive({"root/.ssh/authorized_keys": b"key", "etc/hosts": b"names"})
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        modes = {entry.name: oct(entry.mode) for entry in tar}
        content = tar.extractfile("etc/hosts")
        assert content
        assert content.read() == b"names"
    assert modes == {
        "etc": "0o755",
        "root": "0o700",
        "root/.ssh": "0o700",
        "etc/hosts": "0o644",
        "root/.ssh/authorized_keys": "0o600",
    }


def test_known_hosts_leave_comments_out() -> None:
    keys = {
        "10.0.0.12": ["ssh-ed25519 BBB root@two\n"],
        "10.0.0.11": ["ssh-ed25519 AAA root@one\n"],
    }
    assert ssh.render_known_hosts(keys) == "10.0.0.11 ssh-ed25519 AAA\n10.0.0.12 ssh-ed25519 BBB\n"


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ({"dst": "default", "dev": "eth0"}, ""),
        ({"dst": "10.0.1.0/24", "dev": "eth0"}, ""),
        ({"dst": "10.0.0.0/16", "dev": "vpn0"}, "10.0.0.0/16 on vpn0"),
        ({"dst": "10.0.0.7", "dev": "eth1"}, "10.0.0.7 on eth1"),
    ],
)
def test_subnet_clash(route: dict[str, object], expected: str) -> None:
    assert network.clash("10.0.0.0/24", [route]) == expected


DEB822 = """\
# the distribution
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/own.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [signed-by=/k.gpg arch=amd64] http://list.example/debian bookworm main contrib
deb-src http://source.example/debian bookworm main
deb https://vendor.example/apt stable main
"""


def _stanza(uri: str, suite: str) -> str:
    return (
        f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main non-free\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )


def test_sources_keep_the_distribution_only() -> None:
    files = [("debian.sources", DEB822), ("more.list", ONE_LINE)]
    assert apt_sources.derive(files, "bookworm", "bookworm", ["main", "non-free"]).split(
        "\n\n"
    ) == [
        _stanza("http://mirror.example/debian", "bookworm").rstrip("\n"),
        _stanza("http://mirror.example/debian", "bookworm-updates").rstrip("\n"),
        _stanza("http://mirror.example/security", "bookworm-security").rstrip("\n"),
        _stanza("http://list.example/debian", "bookworm"),
    ]


def test_sources_of_another_release_take_its_suites() -> None:
    text = apt_sources.derive([("a.list", ONE_LINE)], "bookworm", "trixie", ["main", "non-free"])
    assert text == _stanza("http://list.example/debian", "trixie")


def test_machine_without_debian_sources_is_refused() -> None:
    with pytest.raises(SubstrateError) as caught:
        apt_sources.derive([("a.list", ONE_LINE)], "noble", "bookworm", ["main"])
    assert str(caught.value) == (
        "no Debian package source to build hosts from — /etc/apt — got none for the suite noble"
        " / allowed a Debian machine with its distribution's sources"
        " — run this on Debian 12 or newer"
    )


@pytest.mark.parametrize("system", description.known_systems())
def test_recipes_are_whole(system: str) -> None:
    read = image.recipe(system)
    assert {"systemd", "openssh-server", "python3"} <= set(read.packages)
    assert read.packages == sorted(set(read.packages))
    assert read.mask == sorted(set(read.mask))


def test_hosts_wait_for_inotify_instances_as_long_as_they_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(machine.PATIENCE, "15")
    limit = int(machine.INOTIFY_LIMIT.read_text())
    readings, pauses = [limit, limit, 0], []
    machine.await_watchers(1, lambda: readings.pop(0), pauses.append)
    assert pauses == [10, 10]
    with pytest.raises(SubstrateError):
        machine.await_watchers(1, lambda: limit, pauses.append)
    assert len(pauses) == 4


def test_hosts_beyond_the_kernels_inotify_instances_are_refused(tmp_path: Path) -> None:
    for pid, target in {"1": "anon_inode:inotify", "2": "/dev/null"}.items():
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "fd" / "7").symlink_to(target)
    assert machine.watchers_in_use(tmp_path) == 1
    machine.check_watchers(3, limit=128, used=68)
    with pytest.raises(SubstrateError) as refused:
        machine.check_watchers(4, limit=128, used=68)
    assert "got 60 of 128 left" in str(refused.value)
    assert "80 for 4 hosts" in str(refused.value)
    assert "make clean" in str(refused.value)


@pytest.mark.parametrize(("found", "then"), [(128, machine.WATCHERS), (4096, 4096)])
def test_a_limit_of_inotify_instances_is_raised_and_never_lowered(
    found: int, then: int, tmp_path: Path
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(f"{found}\n")
    machine.allow_watchers(limit)
    assert int(limit.read_text()) == then
