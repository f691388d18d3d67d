"""Links in /dev/char to NVIDIA's nodes, in a folder. Its nodes are links to devices of the machine.

So no root is needed: what is made of such a link is what is made of a node with those numbers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.portable import device_links

#: Devices that every Linux has, by name: their numbers are fixed (devices.txt of the kernel).
NULL, ZERO, FULL, RANDOM = "1:3", "1:5", "1:7", "1:8"
DEVICES = {NULL: "/dev/null", ZERO: "/dev/zero", FULL: "/dev/full", RANDOM: "/dev/random"}
NODES = {
    NULL: "/dev/nvidia0",
    ZERO: "/dev/nvidiactl",
    FULL: "/dev/nvidia-caps/nvidia-cap21",
    RANDOM: "/dev/nvidia-caps-imex-channels/channel0",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host's /dev, with a node of each kind and more that is not the driver's."""
    for number, node in NODES.items():
        place(tmp_path, node, DEVICES[number])
    place(tmp_path, "/dev/tty", "/dev/tty")
    (tmp_path / "dev/nvidia-notes").write_text("no device\n")
    return tmp_path


def place(root: Path, name: str, target: str) -> None:
    """Have a link, whatever was there."""
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def links(root: Path) -> dict[str, str]:
    """Return what lies in /dev/char, by name."""
    return {path.name: str(path.readlink()) for path in sorted((root / "dev/char").iterdir())}


def test_each_node_gets_a_link_as_udev_would_make_it(root: Path) -> None:
    assert device_links.nodes(str(root)) == NODES
    told = [f"/dev/char/{number} to {node} is missing" for number, node in sorted(NODES.items())]
    assert device_links.ensure(str(root), check=True) == told
    assert not (root / "dev/char").exists()
    assert device_links.ensure(str(root)) == told
    assert links(root) == {
        NULL: "../nvidia0",
        ZERO: "../nvidiactl",
        FULL: "../nvidia-caps/nvidia-cap21",
        RANDOM: "../nvidia-caps-imex-channels/channel0",
    }
    assert device_links.wrong(str(root)) == []
    assert device_links.ensure(str(root)) == []


def test_a_link_by_another_path_to_the_same_device_stays(root: Path) -> None:
    """NVIDIA's own command makes absolute ones."""
    for number in NODES:
        place(root, f"/dev/char/{number}", DEVICES[number])
    before = links(root)
    assert device_links.ensure(str(root)) == []
    assert links(root) == before


def test_a_link_that_leads_elsewhere_is_replaced(root: Path) -> None:
    device_links.ensure(str(root))
    place(root, f"/dev/char/{NULL}", "../nvidiactl")
    place(root, f"/dev/char/{ZERO}", "../nvidia9")
    assert device_links.ensure(str(root)) == [
        f"/dev/char/{NULL} does not lead to /dev/nvidia0",
        f"/dev/char/{ZERO} does not lead to /dev/nvidiactl",
    ]
    assert links(root)[NULL] == "../nvidia0"
    assert device_links.wrong(str(root)) == []


def test_a_node_whose_number_has_changed_loses_its_old_link(root: Path) -> None:
    """As of a module that was loaded again: the old number may be another driver's by then."""
    device_links.ensure(str(root))
    (root / NODES[RANDOM].lstrip("/")).unlink()
    place(root, NODES[FULL], DEVICES[RANDOM])
    place(root, "/dev/char/5:0", "../tty")
    place(root, "/dev/char/4:0", "../tty0")
    assert device_links.ensure(str(root)) == [
        f"/dev/char/{RANDOM} does not lead to {NODES[FULL]}",
        f"/dev/char/{FULL} leads to a node of another number",
    ]
    found = links(root)
    assert found[RANDOM] == "../nvidia-caps/nvidia-cap21"
    assert FULL not in found
    assert (found["5:0"], found["4:0"]) == ("../tty", "../tty0")


def test_a_link_for_a_device_that_is_yet_to_come_stays(root: Path) -> None:
    """NVIDIA's command makes links for every MIG device that could be."""
    place(root, "/dev/char/235:30", "/dev/nvidia-caps/nvidia-cap30")
    device_links.ensure(str(root))
    assert links(root)["235:30"] == "/dev/nvidia-caps/nvidia-cap30"


def test_a_run_that_was_ended_in_between_is_made_up_for(root: Path) -> None:
    place(root, f"/dev/char/{NULL}.bedplate", "../nvidia5")
    device_links.ensure(str(root))
    assert set(links(root)) == set(NODES)


def test_a_host_without_gpus_needs_none(tmp_path: Path) -> None:
    assert device_links.ensure(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_the_file_alone_is_a_program() -> None:
    """As the role lays it on a host: it says nothing where nothing is wrong, and imports nobody."""
    code = Path(device_links.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-c", code.replace("in ensure()", "in wrong('/nonexistent')")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
