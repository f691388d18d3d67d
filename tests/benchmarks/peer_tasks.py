"""The nearest peer's tasks as data (`peer/`), and a plain playbook that has just their kinds.

The playbook costs what Ansible's own mechanics cost the peer on a host where nothing is left to do.
README.md says what that measures and what it does not.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PEER = HERE / "peer"
#: Kinds that Ansible does by itself, without asking the host.
CONTROL_SIDE = {"assert", "debug", "fail", "include_vars", "meta", "set_fact"}
#: How `ours` begins where nothing of ours does the same.
NOTHING = "none"
INCLUDES = {"include_tasks", "import_tasks"}
#: The scratch folder on the host, and what its file has in it.
FOLDER = "/var/lib/bedplate-benchmark"
SOURCE = "nothing\n"
PREPARE = f"""set -e
mkdir -p {FOLDER}; cd {FOLDER}
printf '{SOURCE.encode("unicode_escape").decode()}' > source
touch authorized_keys lines
tar -cf source.tar source
"""


@dataclass(frozen=True)
class Task:
    """One task of the peer's: its kind, what it does in our words, and how it comes to run.

    Attributes:
        kind: the module, or a finer word of `no_ops.yml`.
        does: our description.
        runs: whether it is carried out on a Debian host where nothing is left to do.
        items: over how many items it loops.
        part: the list that an include leads to.
        where: empty for each host; `control` on the control side; `once` for one host of the play.
    """

    kind: str
    does: str
    runs: bool = True
    items: int = 1
    part: str = ""
    where: str = ""


@dataclass(frozen=True)
class Part:
    """The tasks of one file of the peer's, at one revision.

    Attributes:
        repository: owner and name.
        role: the role or playbook that the file belongs to.
        file: its path.
        revision: the commit at which it was read.
        ours: what of ours does the same.
        count: the number of tasks, as counted when it was read.
        tasks: the tasks in their order.
    """

    repository: str
    role: str
    file: str
    revision: str
    ours: str
    count: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Play:
    """One play: whether it gathers facts first, and the names of its parts."""

    name: str
    gathers: bool
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Peer:
    """Everything that the peer runs on a worker's host."""

    parts: dict[str, Part]
    plays: tuple[Play, ...]

    def equivalent(self) -> Peer:
        """Leave out what does nothing that ours does: whole roles, and single playbooks."""
        kept = {
            (p.repository, p.role) for p in self.parts.values() if not p.ours.startswith(NOTHING)
        }

        def keeps(name: str) -> bool:
            part = self.parts[name]
            if part.role.startswith("playbook "):
                return not part.ours.startswith(NOTHING)
            return (part.repository, part.role) in kept

        plays = [
            Play(play.name, play.gathers, tuple(name for name in play.parts if keeps(name)))
            for play in self.plays
        ]
        return Peer(self.parts, tuple(play for play in plays if play.parts))

    def counted(self) -> Counter[str]:
        """Count what a run on one host carries out: modules there, control-side tasks, skipped."""
        found: Counter[str] = Counter()
        for play in self.plays:
            found["on the host"] += play.gathers
            for part in play.parts:
                self._count(part, 1, found)
        return found

    def _count(self, part: str, times: int, found: Counter[str]) -> None:
        for task in self.parts[part].tasks:
            if not task.runs:
                found["skipped"] += times
            elif task.part:
                found["includes"] += times
                self._count(task.part, times * task.items, found)
            elif task.kind in CONTROL_SIDE or task.where == "control":
                found["on the control side"] += times * task.items
            else:
                found["on the host"] += times * task.items


def load() -> Peer:
    """Read `peer/`.

    Raises:
        TypeError: a field that is unknown, or one that lacks.
    """
    parts: dict[str, Part] = {}
    plays: tuple[Play, ...] = ()
    for path in sorted(PEER.glob("*.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, list):
            plays = tuple(Play(p["play"], p["gathers"], tuple(p["parts"])) for p in content)
            continue
        for name, fields in content["parts"].items():
            tasks = tuple(Task(**task) for task in fields.pop("tasks"))
            parts[name] = Part(repository=content["repository"], tasks=tasks, **fields)
    return Peer(parts, plays)


def no_ops() -> dict[str, dict[str, Any]]:
    """Return the module and parameters that stand for each kind."""
    text = (HERE / "no_ops.yml").read_text(encoding="utf-8")
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()
    filled = text.replace("F/", f"{FOLDER}/").replace("path: F,", f"path: {FOLDER},")
    filled = filled.replace("dest: F,", f"dest: {FOLDER},").replace("DIGEST", digest)
    kinds: dict[str, dict[str, Any]] = yaml.safe_load(filled)
    return kinds


def _written(task: Task, name: str, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    written: dict[str, Any] = {"name": name}
    if task.kind in INCLUDES:
        written[f"ansible.builtin.{task.kind}"] = f"{task.part or 'empty'}.yml"
    else:
        written |= kinds[task.kind]
    if task.items > 1:
        written["loop"] = list(range(task.items))
    if task.kind in {"command", "shell", "raw", "apt_key", "timezone"}:
        written["changed_when"] = False
    if task.where:
        written["run_once"] = True
    if task.where == "control":
        written |= {"delegate_to": "localhost", "connection": "local"}
    if not task.runs:
        written["when"] = False
    return written


def write_playbook(peer: Peer, folder: Path) -> Path:
    """Write the playbook and what it includes into *folder*; return the playbook's path."""
    kinds = no_ops()

    def write(name: str, content: object) -> Path:
        path = folder / name
        path.write_text(yaml.safe_dump(content, sort_keys=False, width=1000), encoding="utf-8")
        return path

    write("vars.yml", {"benchmark_loaded": True})
    write("empty.yml", [])
    (folder / "template.j2").write_text("{{ 'nothing' }}\n", encoding="utf-8")
    for name, part in peer.parts.items():
        write(
            f"{name}.yml",
            [
                _written(task, f"{name} {number}", kinds)
                for number, task in enumerate(part.tasks, 1)
            ],
        )
    plays = [
        {
            "name": play.name,
            "hosts": "all",
            "gather_facts": play.gathers,
            "tasks": [{"ansible.builtin.import_tasks": f"{part}.yml"} for part in play.parts],
        }
        for play in peer.plays
    ]
    return write("site.yml", plays)
