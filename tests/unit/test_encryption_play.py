"""The play that replaces the key of Secrets, over three hosts.

No cut, no host that is absent and no other run has a Secret that some control plane cannot read.

Its module is a stand-in here that keeps each host's file in a folder, and what etcd has of one
Secret next to them. What is in the files is by the product's own code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.portable import encryption_keys as keys

ROOT = Path(__file__).parents[2]
MODULE = "bedplate.gpu.control_plane_encryption"
HOSTS = ("cp1", "cp2", "cp3")
STAND_IN = """
import json
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import encryption_keys as keys

STEPS = ["check", "read", "known", "first", "secrets", "alone"]
module = AnsibleModule(
    argument_spec={
        "step": {"choices": STEPS, "default": "check"},
        "files": {"type": "list", "elements": "str", "default": [], "no_log": True},
        "secret": {"default": "", "no_log": True},
        "control_planes": {"type": "list", "elements": "str", "required": True},
        "folder": {}, "name": {},
    }
)
step, given = module.params["step"], module.params
folder = Path(given["folder"])
calls = folder / "calls"
number = len(calls.read_text().split()) + 1 if calls.exists() else 1
with calls.open("a") as file:
    file.write(step + "\\n")
cut = folder / "cut"
if cut.exists() and number > int(cut.read_text()):
    module.fail_json(msg="cut off")
mine = folder / "files" / given["name"]
if not mine.exists():
    module.exit_json(there=False, keys=[])
there = sorted(one.name for one in (folder / "files").iterdir())
missed = sorted(set(there) - set(given["control_planes"]))
if missed:
    module.fail_json(msg="not asked: " + ", ".join(missed))
text = mine.read_text()
secret = folder / "secret"
names = [key.name for key in keys.read(text)]
if step in ("check", "read"):
    more = {"file": text, "secret": keys.fresh()} if step == "read" else {}
    module.exit_json(there=True, keys=names, **more)
known = keys.all_of(given["files"], given["secret"])
found = {"there": True, "keys": [known[0].name]}
if step == "secrets":
    written, before = known[0].name, secret.read_text()
    secret.write_text(written)
    module.exit_json(rewritten=int(before != written), **found)
try:
    mine.write_text(keys.after(step, text, known))
except ValueError as error:
    module.fail_json(msg=str(error))
# What any of them writes now, and what is there, all have to read.
for one in there:
    can = keys.read((folder / "files" / one).read_text()) or [keys.PLAIN]
    for other in there:
        first = (keys.read((folder / "files" / other).read_text()) or [keys.PLAIN])[0]
        if step != "alone" and first not in can:
            module.fail_json(msg=one + " cannot read what " + other + " writes")
    if secret.read_text() not in {key.name for key in can}:
        module.fail_json(msg=one + " cannot read the Secret")
module.exit_json(**found)
"""


class Play:
    """Three hosts, of which some are in the cluster, and the play over them."""

    def __init__(self, folder: Path, text: str, *there: str) -> None:
        self.folder = folder
        (folder / "library").mkdir()
        (folder / "library/stand_in.py").write_text(STAND_IN)
        book = (ROOT / "playbooks/encryption.yml").read_text()
        more = f"        folder: {folder}\n        name: '{{{{ inventory_hostname }}}}'\n"
        (folder / "play.yml").write_text(book.replace(f"{MODULE}:\n", f"stand_in:\n{more}"))
        for name in HOSTS:
            (folder / "files").mkdir(exist_ok=True)
            if name in there:
                (folder / "files" / name).write_text(text)
        first = (keys.read(text) or [keys.PLAIN])[0].name
        (folder / "secret").write_text(first)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        group = {"hosts": {name: {} for name in HOSTS}, "vars": local}
        inventory = {"all": {"children": {"control_plane": group}}}
        (folder / "hosts.json").write_text(json.dumps(inventory))

    def run(self, *arguments: str, cut: int = 0) -> str:
        """Play it, and return what it said; with *cut* the module fails after so many calls."""
        (self.folder / "calls").unlink(missing_ok=True)
        (self.folder / "cut").unlink(missing_ok=True)
        if cut:
            (self.folder / "cut").write_text(str(cut))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                *("-i", "hosts.json", "play.yml", "-vvv", *arguments),
            ],
            cwd=self.folder,
            env={**os.environ, "ANSIBLE_LIBRARY": str(self.folder / "library"), "COLUMNS": "9999"},
            text=True,
            capture_output=True,
            check=False,
        )
        text = done.stdout + done.stderr
        for secret in self.secrets:
            assert secret not in text
        assert "cannot read" not in text
        return text

    def texts(self) -> list[str]:
        """Return the files."""
        return [path.read_text() for path in sorted((self.folder / "files").iterdir())]

    @property
    def secrets(self) -> set[str]:
        """The keys themselves."""
        return {key.secret for text in self.texts() for key in keys.read(text) if key.secret}

    def key(self) -> int:
        """Return the number of the one key that all have and the Secret is written with."""
        (text,) = set(self.texts())
        (one,) = keys.read(text)
        assert (self.folder / "secret").read_text() == one.name
        return one.number


OLD = keys.written([keys.named(1, keys.fresh())])


def test_all_get_another_key_and_keep_it(tmp_path: Path) -> None:
    play = Play(tmp_path, OLD, *HOSTS)
    assert "1 were written again" in play.run("-e", "encryption_rotate=true")
    assert play.key() == 2
    assert "0 were written again" in play.run()
    assert play.key() == 2


def test_clusters_without_a_key_get_one(tmp_path: Path) -> None:
    play = Play(tmp_path, "", *HOSTS)
    play.run()
    assert play.key() == 1


def test_a_first_host_that_is_in_no_cluster_has_no_part_in_it(tmp_path: Path) -> None:
    play = Play(tmp_path, OLD, "cp2", "cp3")
    assert "no cluster" in play.run("-e", "encryption_rotate=true")
    assert play.key() == 2
    assert len(play.texts()) == 2


def test_some_of_them_alone_are_refused(tmp_path: Path) -> None:
    play = Play(tmp_path, OLD, *HOSTS)
    assert "not asked: cp3" in play.run("-e", "encryption_rotate=true", "--limit", "cp1,cp2")
    assert play.key() == 1


@pytest.mark.parametrize(
    ("text", "cut"),
    [(OLD, 7), ("", 10), (OLD, 12), (OLD, 15)],
    ids=["while all learn it", "after that", "before Secrets are written", "before all forget"],
)
def test_a_run_that_was_cut_off_is_finished(tmp_path: Path, text: str, cut: int) -> None:
    play = Play(tmp_path, text, *HOSTS)
    assert "cut off" in play.run("-e", "encryption_rotate=true", cut=cut)
    half = play.secrets
    play.run("-e", "encryption_rotate=true")
    assert play.key() == len(keys.read(text)) + 1
    assert play.secrets <= half, "with the key that it had begun with"


def test_a_key_that_another_run_has_brought_is_not_lost(tmp_path: Path) -> None:
    known = keys.all_of([OLD], keys.fresh())
    late = keys.all_of([OLD], keys.fresh())
    text = keys.after(keys.KNOWN, OLD, known)
    for step in (keys.KNOWN, keys.FIRST, keys.ALONE):
        with pytest.raises(ValueError, match="after this run had read them"):
            keys.after(step, text, late)
