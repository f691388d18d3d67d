"""Files of the user's: every byte that is not ours is there again after a reset."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import adopted, owned, removal
from bedplate.portable.files import File, ensure_files, is_package_default
from bedplate.portable.host import Host, Result
from bedplate.portable.kernel import settings
from bedplate.portable.packages import debian, rpm
from bedplate.portable.passthrough import kernel
from bedplate.portable.runtime import containerd, docker

if TYPE_CHECKING:
    from collections.abc import Sequence

MINE = "# Managed by Bedplate (role nvidia_driver).\n"
PATH = "/etc/u.conf"
CONFIG = "/etc/containerd/config.toml"
IMPORTS = "/etc/containerd/conf.d/*.toml"
#: What editors and other systems write: no UTF-8, other ends of lines, none at all.
BYTES = {
    "Latin 1": b"version = 2\n# caf\xe9\n",
    "CRLF": b"version = 2\r\n# a\r\nroot = '/x'\r\n",
    "old Mac": b"version = 2\n# a\rb\n",
    "no end": b"version = 2\n# a",
    "form feed": b"version = 2\n# a\x0cb\x1cc\xc2\x85d\xe2\x80\xa8e\n",
    "NUL": b"version = 2\n# a\x00b\n",
    "BOM": b"\xef\xbb\xbf# a\nversion = 2\n",
    "surrogate": b"version = 2\n# \xed\xb2\xa9 \xf0\x9f\n",
}
CASES = pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)


def silent(argv: Sequence[str], *_: object) -> Result:
    return Result(1, "", f"{argv[0]}: nothing known")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path), silent)


def put(host: Host, path: str, content: bytes) -> None:
    real = Path(host.path(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    real.write_bytes(content)


def got(host: Host, path: str) -> bytes:
    return Path(host.path(path)).read_bytes()


@CASES
def test_a_replaced_file_comes_back(host: Host, content: bytes) -> None:
    put(host, PATH, content)
    (change,) = ensure_files(host, [File(PATH, MINE)]).changes
    (change.before or "").encode()  # a module's answer is UTF-8
    assert removal.files(host, [], check=False).kept == []
    assert got(host, PATH) == content


@CASES
def test_a_line_comes_into_a_file_and_goes_again(host: Host, content: bytes) -> None:
    put(host, CONFIG, content)
    change = containerd.ensure(host, CONFIG, MINE, IMPORTS).change
    assert change is not None
    (change.before or "").encode()
    with_ours = got(host, CONFIG)
    assert set(content.split(b"\n")) < set(with_ours.split(b"\n")), "every line as it was"
    assert got(host, CONFIG + adopted.KEPT) == content
    put(host, CONFIG, with_ours + b"# later\xff\r\n")
    assert removal.files(host, [], check=False).kept == []
    assert got(host, CONFIG) == content + b"# later\xff\r\n"


def test_a_line_of_ours_ends_as_the_others_do(host: Host) -> None:
    put(host, CONFIG, BYTES["CRLF"])
    containerd.ensure(host, CONFIG, MINE, IMPORTS)
    assert got(host, CONFIG).count(b"\n") == got(host, CONFIG).count(b"\r\n") == 4


@pytest.mark.parametrize(
    "content",
    [
        b'{\r\n  "log-level": "info"\r\n}\r\n',
        '{\n  "labels": ["Zürich"]\n}\n'.encode(),
        b'{\n  "labels": ["\\ud800", "\\u00fc"]\n}\n',
    ],
    ids=["CRLF", "UTF-8", "escaped"],
)
def test_docker_has_what_the_user_wrote_around_our_key(host: Host, content: bytes) -> None:
    put(host, docker.PATH, content)
    docker.ensure(host, {"default-runtime": "nvidia"})
    with_ours = got(host, docker.PATH)
    assert (b"\r\n" in with_ours) == (b"\r\n" in content)
    assert ("Zürich".encode() in with_ours) == ("Zürich".encode() in content)
    assert json.loads(with_ours) == {**json.loads(content), "default-runtime": "nvidia"}
    assert removal.files(host, [], check=False).kept == []
    assert got(host, docker.PATH) == content


def test_docker_keeps_the_ends_of_lines_of_a_file_that_was_edited_since(host: Host) -> None:
    put(host, docker.PATH, '{\r\n  "labels": [\r\n    "Zürich"\r\n  ]\r\n}\r\n'.encode())
    docker.ensure(host, {"default-runtime": "nvidia"})
    put(host, docker.PATH, got(host, docker.PATH).replace("Zürich".encode(), "Genève".encode()))
    removal.files(host, [], check=False)
    assert got(host, docker.PATH) == ('{\r\n  "labels": [\r\n    "Genève"\r\n  ]\r\n}\r\n'.encode())


@pytest.mark.parametrize("text", ["[]", '[["a", 1]]', "[" * 100_000, '"x"', "7", "null"])
def test_docker_of_another_form_is_refused_and_left(host: Host, text: str) -> None:
    put(host, docker.PATH, text.encode())
    outcome = docker.ensure(host, {"default-runtime": "nvidia"})
    assert [one.partition(" — ")[0] for one in outcome.problems] == [
        "Docker's configuration is not JSON"
    ]
    assert got(host, docker.PATH) == text.encode()


@CASES
def test_lines_for_the_initramfs_come_and_go(host: Host, content: bytes) -> None:
    put(host, kernel.INITRAMFS_MODULES, content)
    put(host, "/usr/sbin/update-initramfs", b"")
    early = kernel.initramfs(host)
    assert early is not None
    added = {"lines": list(kernel.MODULE_LINES)}
    ensure_files(host, [File(early[0], early[1], added=added)], watched=False)
    if not content.endswith(b"\n"):
        content += b"\n"
    put(host, kernel.INITRAMFS_MODULES, got(host, kernel.INITRAMFS_MODULES) + b"more\xff\r\n")
    removal.files(host, [], check=False)
    assert got(host, kernel.INITRAMFS_MODULES) == content + b"more\xff\r\n"


@CASES
def test_locks_of_the_user_stay_as_they_are(content: bytes) -> None:
    theirs = content.decode("utf-8", "surrogateescape")
    ours = rpm.with_locks(theirs, {"kernel": "0:6.1-1"})
    assert rpm.without_own(ours, ["kernel"]).removesuffix("\n") == theirs.removesuffix("\n")


def test_package_sources_keep_every_other_byte(host: Host) -> None:
    folder = "/etc/apt/sources.list.d/"
    put(host, folder + "a.list", b"# caf\xe9\r\ndeb http://x bookworm main\r\n")
    put(host, folder + "b.sources", b"# \xe9\r\nSuites: bookworm\r\nComponents: main\r\nX: 1\r\n")
    found = debian.extend_sources(host, "bookworm", ["contrib"])
    for path, (_, after) in found.items():
        host.write(path, after)
    assert got(host, folder + "a.list") == b"# caf\xe9\r\ndeb http://x bookworm main contrib\r\n"
    assert got(host, folder + "b.sources") == (
        b"# \xe9\r\nSuites: bookworm\r\nComponents: main contrib\r\nX: 1\r\n"
    )


def test_a_file_with_a_changed_byte_is_edited(host: Host) -> None:
    ensure_files(host, [File(PATH, MINE + "é\n")])
    put(host, PATH, (MINE + "é\n").replace("\n", "\r\n").encode())
    assert owned.differences(host) == {"nvidia_driver": [f"{PATH}: edited"]}
    assert removal.files(host, [], check=False).kept != []


def test_a_packages_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    content = b"# caf\xe9\r\n"
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()

    def dpkg(argv: Sequence[str], *_: object) -> Result:
        said = f"p: {PATH}\n" if "--search" in argv else f" {PATH} {digest}\n"
        return Result(0, said, "")

    on = Host(str(tmp_path), dpkg)
    put(on, PATH, content)
    assert is_package_default(on, PATH, on.content(PATH) or "")
    assert not is_package_default(on, PATH, "# café\n")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_folders_and_records_have_their_modes_under_any_umask(host: Host, umask: int) -> None:
    before = os.umask(umask)
    try:
        ensure_files(host, [File("/etc/n1/n2/x", MINE)])
        host.write("/etc/m1/m2/y", "y\n")
    finally:
        os.umask(before)
    modes = {
        name: oct(Path(host.path(name)).stat().st_mode & 0o777)
        for name in ("/etc/n1", "/etc/n1/n2", "/etc/m1", "/etc/m1/m2", "/var/lib/bedplate")
    }
    assert set(modes.values()) == {"0o755"}, modes
    assert Path(host.path(owned.RECORD + ".lock")).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_is_refused_and_left(host: Host, kind: str) -> None:
    folder = Path(host.path("/etc"))
    folder.mkdir()
    (os.mkfifo if kind == "fifo" else os.mkdir)(folder / "u.conf")
    outcome = ensure_files(host, [File(PATH, MINE)])
    assert [one.partition(" — ")[0] for one in outcome.problems] == [
        "something other than a file is in the way"
    ]
    assert [path.name for path in folder.iterdir()] == ["u.conf"]
    assert owned.load(host) == {}


def test_our_file_with_other_ends_of_lines_is_written_again(host: Host) -> None:
    wish = settings.Resolved(settings.Settings(["vfio"]), {}, {})
    (path, text), *_ = ((p, text) for p, text in settings.files("x", wish).items() if text)
    put(host, path, text.replace("\n", "\r\n").encode())
    assert list(settings.compare(host, "x", wish).files) == [path]
    put(host, path, text.encode())
    assert list(settings.compare(host, "x", wish).files) == []
