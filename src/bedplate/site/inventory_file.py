"""The groups as YAML inventory files write them: Ansible only warns of what it leaves out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from ansible.errors import AnsibleError
from ansible.plugins.inventory import detect_range, expand_hostname_range

from bedplate.common.errors import Problem
from bedplate.common.nearest import nearest
from bedplate.site.places import Place
from bedplate.site.site import GROUPS

if TYPE_CHECKING:
    from bedplate.site.positions import Positions

SECTIONS = ("children", "hosts", "vars")


@dataclass
class Written:
    """Where each group is written, and which groups are children of which."""

    positions: Positions
    groups: dict[str, Place] = field(default_factory=dict)
    edges: dict[str, dict[str, Place]] = field(default_factory=dict)
    ranged: dict[str, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, content: object, file: str) -> None:
        """Read one inventory file."""
        if isinstance(content, dict) and "plugin" not in content:
            for name, group in content.items():
                self._group(name, group, Place(file))

    def _group(self, name: object, content: object, around: Place) -> None:
        place = self.positions.place(name) or around
        self.groups.setdefault(str(name), place)
        if content is None:
            return
        if not isinstance(content, dict):
            self._wrong(
                "group is not a mapping", place, str(name), content, "children, hosts, vars"
            )
            return
        for key, section in content.items():
            at = self.positions.place(key) or place
            path = f"{name}.{key}"
            if key not in SECTIONS:
                close = nearest(str(key), SECTIONS)
                fix = f"write {close}" if close else f"put {key} under children, if it is a group"
                fix = f"write it as far left as {name}" if key in GROUPS else fix
                self.problems.append(
                    Problem(
                        "unknown key of a group",
                        at.file,
                        at.line,
                        at.column,
                        path,
                        str(key),
                        ", ".join(SECTIONS),
                        fix,
                        rule="readable",
                    )
                )
            elif isinstance(section, str):
                continue  # one name, without the mapping around it
            elif section is not None and not isinstance(section, dict):
                self._wrong(f"{key} are not a mapping", at, path, section, "{name: {}}")
            elif key == "children":
                for child, inner in (section or {}).items():
                    where = self.positions.place(child) or at
                    self.edges.setdefault(str(name), {}).setdefault(str(child), where)
                    self._group(child, inner, at)
            elif key == "hosts":
                for host, variables in (section or {}).items():
                    self._ranged(str(host), self.positions.place(host))
                    if variables is not None and not isinstance(variables, dict):
                        where = self.positions.place(host) or at
                        self._wrong(
                            "host's variables are not a mapping",
                            where,
                            f"{path}.{host}",
                            variables,
                            "{variable: value}",
                        )

    def _ranged(self, host: str, place: Place | None) -> None:
        """Keep where the hosts of a range are written: Ansible forgets it."""
        if place is not None and detect_range(host):
            with suppress(AnsibleError):  # which Ansible's plugin reports
                self.ranged |= dict.fromkeys(expand_hostname_range(host), place)

    def _wrong(self, what: str, at: Place, key: str, got: object, allowed: str) -> None:
        shown = "a list" if isinstance(got, list) else f'"{got}"' if isinstance(got, str) else got
        fix = "add a colon after each name" if isinstance(got, list | str) else "correct it"
        self.problems.append(
            Problem(
                what, at.file, at.line, at.column, key, str(shown), allowed, fix, rule="readable"
            )
        )

    def circle(self) -> list[Problem]:
        """Return where groups lead back to themselves: the place that closes the circle."""
        try:
            TopologicalSorter(self.edges).prepare()
        except CycleError as error:
            ring = [str(name) for name in reversed(error.args[1])][1:]
        else:
            return []
        order = list(self.groups)
        first = ring.index(min(ring, key=order.index))
        way = [*ring[first:], *ring[:first], ring[first]]
        place = self.edges[way[-2]][way[-1]]
        return [
            Problem(
                "groups contain each other",
                place.file,
                place.line,
                place.column,
                way[-1],
                " > ".join(way),
                "groups that end",
                f"remove {way[-1]} from the children of {way[-2]}",
                rule="readable",
            )
        ]
