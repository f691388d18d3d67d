"""A newcomer's first hour: from the built wheel, with the pages' own commands, up to the hosts.

The commands and settings are read from README.md and from the page of the first servers, which is
the wheel's. Each word that they print is English, of the glossary, or a name that a page has.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bedplate.bill.needs import needs_of
from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock
from tests.environments import python
from tests.install.newcomer import Shell, Step, steps
from tests.install.tunnel import tunnel
from tests.substrate.internet.fixtures import serving
from tests.substrate.internet.tree import Tree
from tests.substrate.standin.signing import Key
from tests.unit.bill.vendors import put, put_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.lock import Lock
    from tests.substrate.internet.fixtures import Served

ROOT = Path(__file__).parents[2]
WORDS = Path(__file__).with_name("words.txt")
#: Who commits to the site: whoever has used git before has an identity.
GIT = tuple(f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL"))
#: Hosts of NVIDIA's repositories, whose keys are not at hand to sign with.
SIGNED = ("nvidia.github.io", "developer.download.nvidia.com")
NO_BYTES = {"Size": "0", "SHA256": "0" * 64}
#: Known words of English, one a line, of those on standard input.
KNOWN = "import sys, spellchecker as s; print(*s.SpellChecker().known(sys.stdin.read().split()))"
#: A word: no part of a path, an option, a version, an address, a setting or a quoted command.
WORD = re.compile(r"(?<![\w./:=@~\[{-])[A-Za-z]+(?:[-'][A-Za-z]+)*(?![\w/:=@}\[-]|\.\w)")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Key]:
    """A key that signs the stand-in's index of packages."""
    signing = Key(tmp_path_factory.mktemp("gpg") / "home")
    yield signing
    signing.close()


@pytest.fixture
def vendors(tmp_path: Path) -> Iterator[Served]:
    """The stand-in for the internet, with the names of all vendors' repositories of packages."""
    tree = Tree(tmp_path / "internet/tree")
    for fact in load_catalogue().repositories.values():
        tree.put(f"{fact.value.url}nothing", b"")
    with serving(tmp_path / "internet") as served:
        yield served


def publish(tree: Tree, lock: Lock, key: Key) -> None:
    """Put what a lock needs, with the packages of vendors' repositories."""
    put(tree, lock, key)
    for needed in needs_of(lock, load_catalogue()).packages.values():
        for one in needed.repositories if needed.needed else ():
            tree.put(one.key, key.public)
            rows = [
                {"Package": name, "Version": version, "Filename": f"./{name}.deb", **NO_BYTES}
                for name, version in needed.packages.items()
            ]
            put_repository(tree, one.index, key, rows)


def named(texts: str) -> set[str]:
    """Return the words of a text, in small letters, and the parts of those with hyphens."""
    found = {word.lower().removesuffix("'s") for word in WORD.findall(texts)}
    return found | {part for word in found for part in word.split("-")}


def unknown(printed: str, glossary: str) -> set[str]:
    """Return the words that are neither English nor of the glossary."""
    names = set(re.findall(r"[a-z]+", glossary.lower()))
    asked = {part for word in named(printed) - names for part in word.split("-")} - names
    done = subprocess.run(
        [python(WORDS), "-c", KNOWN], input=" ".join(asked), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return asked - set(done.stdout.split())


def carried_out(step: Step, shell: Shell, site: Path) -> None:
    """Write what a page says into a file of the site."""
    path = site / step.file
    if step.replaced:
        text = path.read_text()
        assert step.replaced in text, f"{step.replaced} is not in {step.file}"
        path.write_text(text.replace(step.replaced, step.text))
    else:
        with path.open("a") as file:
            file.write(step.text)


@pytest.mark.parametrize("name", ["README.md", "docs/first-servers.md"])
def test_every_command_of_a_page(
    name: str, installed: Path, key: Key, vendors: Served, tmp_path: Path
) -> None:
    """The vendors are a stand-in behind a proxy, with their own names and TLS."""
    (packages,) = installed.parent.glob("lib/python3*/site-packages")
    page = ROOT / name if name == "README.md" else packages / "bedplate" / name
    home = tmp_path / "home"
    home.mkdir()
    own = {"HOME": str(home), "PATH": f"{installed}:/usr/bin:/bin", "NO_COLOR": "1"}
    shell = Shell(home, own | dict.fromkeys(GIT, "me@example.com"))
    ran, printed = [], []
    with tunnel(int(vendors.url.rpartition(":")[2])) as proxy:
        reach = {"https_proxy": proxy, "SSL_CERT_FILE": str(vendors.authority)}
        for step in steps(page.read_text(encoding="utf-8")):
            site = Path(shell.here)
            if step.file:
                carried_out(step, shell, site)
                continue
            if "mirror resolve" in step.command:
                publish(vendors.tree, load_lock(site / "inventory"), key)
            printed.append(shell.run(step.command, **reach))
            ran.append(step.command)
            if step.command.startswith("bedplate init"):
                trust(home, step.command, key)
    verbs = {" ".join(command.split()[:2]) for command in ran}
    wanted = {"bedplate gpus", "bedplate init", "bedplate plan", "bedplate mirror"}
    assert wanted <= verbs, verbs
    assert any(command.endswith("bedplate.gpu.site --syntax-check") for command in ran)
    manual = packages / "bedplate/docs"
    glossary = "".join((manual / one).read_text() for one in ("concepts.md", "cli.md"))
    glossary += " ".join(fact.value.name for fact in load_catalogue().gpu_models.values())
    found = unknown("\n".join(printed), glossary)
    assert not found, " ".join(sorted(found))


def trust(home: Path, command: str, key: Key) -> None:
    """Have the new site trust the stand-in's key for NVIDIA's repositories."""
    site = next(home.rglob(f"{command.split()[2]}/inventory/group_vars/all/bedplate.yml"))
    content = yaml.safe_load(site.read_text())
    content["bedplate_sources"]["keys"] = dict.fromkeys(SIGNED, key.fingerprint)
    site.write_text(yaml.safe_dump(content))


def test_a_word_of_nobody_is_found() -> None:
    text = "the frobnicator of gpu01.example is drained: --diff, pool_gpu, R580, mps-on, kubelet's"
    assert unknown(text, "kubelet, pool, MPS") == {"frobnicator"}
    assert unknown("mps-on ubuntu", "ubuntu") == {"mps"}
