"""The site's mirror as a host's one source of packages: files, records, and the way back."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import mirror_sources as mirror
from bedplate.portable import owned, removal, repositories
from bedplate.portable.host import Host, Result

if TYPE_CHECKING:
    from pathlib import Path

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nbWFkZSB1cA==\n-----END PGP PUBLIC KEY BLOCK-----\n"
MIRROR = mirror.Mirror("http://mirror.example/packages/debian-12/", KEY)
DNF = "[main]\n# mine\ngpgcheck=1\n"
VENDOR = repositories.Repository("nvidia", "n", "https://vendor.example/", "A" * 40, "NVIDIA")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path), lambda *_, **__: Result(0, "", ""))


def test_apt_reads_the_mirror_alone_and_its_own_sources_again_afterwards(
    host: Host, tmp_path: Path
) -> None:
    own = "deb http://debian.example/debian bookworm main\n"
    host.write("/etc/apt/sources.list", own)
    assert mirror.in_force(host) is None
    planned = mirror.use(host, "Debian", MIRROR, check=True)
    assert not host.exists(mirror.APT)
    done = mirror.use(host, "Debian", MIRROR)
    assert [change.path for change in done.changes] == [change.path for change in planned.changes]
    assert mirror.use(host, "Debian", MIRROR).changes == []
    assert host.read("/etc/apt/sources.list") == own
    said = _apt(tmp_path)
    assert said == ["http://mirror.example/packages/debian-12/"]
    assert owned.differences(host)["package_mirror"] == []
    host.write(mirror.APT, "// nothing\n")
    assert owned.differences(host)["package_mirror"] == [f"{mirror.APT}: edited"]
    mirror.use(host, "Debian", MIRROR)
    gone = removal.files(host, [mirror.ROLE], check=False)
    assert gone.kept == []
    assert not host.exists(mirror.APT_SOURCES)
    assert _apt(tmp_path) == ["http://debian.example/debian/dists/bookworm/"]


@pytest.mark.parametrize("family", ["Debian", "RedHat"])
def test_a_login_is_shown_by_no_difference_and_goes_when_the_site_has_none(
    host: Host, family: str
) -> None:
    host.write(mirror.DNF, DNF)
    with_login = MIRROR._replace(url="https://mirror.example/p/", login="reader:right-password-7")
    changes = mirror.use(host, family, with_login).changes
    changes += mirror.use(host, family, with_login._replace(login="reader:another-7")).changes
    changes += mirror.use(host, family, MIRROR, check=True).changes
    changes += mirror.use(host, family, MIRROR).changes
    assert "-7" not in str(changes)
    assert str(changes).count("only its owner may read it") >= len(["first", "second", "third"])
    assert not host.exists(mirror.APT_LOGIN)
    assert mirror.use(host, family, MIRROR).changes == []


def _apt(root: Path) -> list[str]:
    """Ask the real apt where a host's packages would come from."""
    (root / "apt.conf").write_text(f'RootDir "{root}";\n')
    for folder in ("var/lib/apt/lists/partial", "var/lib/dpkg", "usr/lib", "usr/share"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    for name in ("usr/lib/apt", "usr/share/dpkg"):
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(f"/{name}")
    done = subprocess.run(
        ["apt-get", "--print-uris", "update"],
        env={"APT_CONFIG": str(root / "apt.conf"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(set(re.findall(r"'(\S+/)InRelease'", done.stdout)))


def test_a_vendors_repository_is_not_offered_beside_it(host: Host) -> None:
    assert repositories.offered_by(host, VENDOR) is None
    mirror.use(host, "Debian", MIRROR)
    assert repositories.offered_by(host, VENDOR) == mirror.APT


def test_dnf_gets_one_line_which_goes_again_from_what_was_edited_since(host: Host) -> None:
    host.write(mirror.DNF, DNF, 0o640)
    mirror.use(host, "RedHat", MIRROR)
    assert host.read(mirror.DNF) == f"[main]\n{mirror.DNF_LINE}\n# mine\ngpgcheck=1\n"
    assert mirror.in_force(host) == mirror.DNF
    assert mirror.use(host, "RedHat", MIRROR).changes == []
    permissions = host.permissions(mirror.DNF)
    assert permissions is not None
    assert permissions.mode == 0o640
    host.write(mirror.DNF, (host.read(mirror.DNF) or "") + "best=False\n", 0o640)
    assert owned.differences(host)["package_mirror"] == []
    removal.files(host, [mirror.ROLE], check=False)
    assert host.read(mirror.DNF) == DNF + "best=False\n"
    assert mirror.in_force(host) is None
    assert not host.exists(mirror.DNF_REPOSITORIES)
    assert not host.exists(mirror.RPM_KEY)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("[main]\nreposdir=/srv/mine\n", "reposdir=/srv/mine"),
        ("no section\n", "File contains no section headers"),
    ],
)
def test_a_folder_of_the_users_is_refused_and_nothing_is_written(
    host: Host, text: str, got: str
) -> None:
    host.write(mirror.DNF, text)
    done = mirror.use(host, "RedHat", MIRROR)
    assert got in done.problems[0]
    assert done.changes == []
    assert not host.exists(mirror.RPM_KEY)


def test_where_dnf_has_no_configuration_it_gets_one(host: Host) -> None:
    mirror.use(host, "RedHat", MIRROR)
    assert host.read(mirror.DNF) == f"[main]\n{mirror.DNF_LINE}\n"
