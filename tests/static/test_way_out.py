"""What a task does on a host goes out through the host's proxy, if it goes out at all.

Our modules read the proxy's file, and apt has one of its own (docs/adr/0008). Nothing else knows of
it: a task that fetches by other means works until somebody's hosts have a proxy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
#: Modules that fetch by themselves. apt's would find its proxy, but packages are for our modules.
MODULES = {
    *("apt", "apt_key", "apt_repository", "dnf", "dnf5", "get_url", "git", "package", "pip"),
    *("rpm_key", "subversion", "uri", "yum"),
}
PROGRAMS = {"curl", "dnf", "dnf5", "git", "pip", "pip3", "wget", "yum"}
WORD = re.compile(r"[\w./-]+")


def mappings(node: object) -> Iterator[dict[str, object]]:
    """Yield every mapping of a document, the outer ones first."""
    if isinstance(node, dict):
        yield node
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    for part in parts:
        yield from mappings(part)


def words(name: str, arguments: object) -> list[str]:
    """Name the programs that a command may start: the first word, of a shell's text any."""
    given = arguments if isinstance(arguments, dict) else {"cmd": arguments}
    if "argv" in given:
        return [str(word) for word in list(given["argv"])[:1]]
    found = WORD.findall(str(given.get("cmd", "")))
    return found if name == "shell" else found[:1]


def past_the_proxy(text: str) -> list[str]:
    """Name the modules and programs of a task file that would go out past the proxy.

    Who writes that a module uses none, asks the site's own hosts.
    """
    found = []
    for task in mappings(yaml.safe_load(text)):
        for key, arguments in task.items():
            # Names are whole in this repository: ansible-lint refuses others.
            space, _, name = str(key).rpartition(".")
            if space not in ("ansible.builtin", "ansible.legacy"):
                continue
            remote = isinstance(arguments, dict) and "://" in str(arguments.get("src", ""))
            near = isinstance(arguments, dict) and arguments.get("use_proxy") is False
            if (name in MODULES and not near) or (name == "unarchive" and remote):
                found.append(name)
            if name in ("command", "shell"):
                found += sorted({Path(w).name for w in words(name, arguments)} & PROGRAMS)
    return found


def task_files() -> list[Path]:
    """Return what a user's run reads: tests of roles are played on hosts without a proxy."""
    files = [*(ROOT / "roles").rglob("*.yml"), *(ROOT / "playbooks").rglob("*.yml")]
    return [ROOT / "site.yml", *(path for path in files if "molecule" not in path.parts)]


def test_no_task_goes_out_past_the_proxy() -> None:
    files = task_files()
    assert len(files) > 100
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in files}
    assert {path: found for path, text in texts.items() if (found := past_the_proxy(text))} == {}


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("ansible.builtin.get_url: {url: 'https://x.example/y', dest: /y}", ["get_url"]),
        ("ansible.builtin.uri: {url: 'https://x.example/y'}", ["uri"]),
        ("ansible.builtin.uri: {url: 'https://x.example/y', use_proxy: false}", []),
        ("ansible.builtin.dnf: {name: rdma-core}", ["dnf"]),
        (
            "ansible.builtin.unarchive: {src: 'https://x/y', dest: /, remote_src: true}",
            ["unarchive"],
        ),
        ("ansible.builtin.unarchive: {src: /tmp/y, dest: /, remote_src: true}", []),
        ("ansible.builtin.command: {argv: [dnf, install, /tmp/y.rpm]}", ["dnf"]),
        ("ansible.builtin.command: /usr/bin/curl -o /y https://x/y", ["curl"]),
        ("ansible.builtin.command: {argv: [apt-get, install, curl]}", []),
        ("ansible.builtin.shell: {cmd: 'cd /tmp && wget -q https://x/y'}", ["wget"]),
        ("bedplate.gpu.probe: {commands: {versions: [dnf, --version]}}", []),
    ],
)
def test_it_is_found(task: str, found: list[str]) -> None:
    book = f"- hosts: all\n  tasks:\n    - block:\n        - name: Planted\n          {task}\n"
    assert past_the_proxy(book) == found
