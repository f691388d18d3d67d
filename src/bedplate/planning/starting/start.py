"""What `bedplate init` is to write, checked against the catalogue: every problem at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.catalogue.gpus import cpus, not_installed
from bedplate.common import shipped
from bedplate.common.errors import BedplateError, Problem
from bedplate.planning.starting import hosts
from bedplate.site.kubernetes import ENDPOINT

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from bedplate.catalogue import Catalogue
    from bedplate.planning.starting.hosts import Entry

CONTROL_PLANE = ("cp", "control_plane")
POOL = re.compile(r"[a-z][a-z0-9_]{0,30}")
MOST_GPUS = 64
USER = re.compile(r"[a-z_][a-z0-9_-]*")


@dataclass(frozen=True)
class Pool:
    """A pool of GPU hosts: its name without `pool_`, its hosts, and the GPUs of each of them.

    `model` is empty where the user did not name it: nothing else knows it before discovery.
    """

    name: str
    entries: tuple[Entry, ...]
    model: str
    count: int


@dataclass(frozen=True)
class Start:
    """What is written."""

    control_plane: tuple[Entry, ...]
    pools: tuple[Pool, ...]
    system: str
    endpoint: str
    user: str
    one_machine: bool
    sources: str

    @property
    def is_bound(self) -> bool:
        """Tell whether the endpoint is an address of the one control plane, which no other takes.

        A name can move to other control planes; a cluster's endpoint itself never changes.
        """
        machines = [host for entry in self.control_plane for host in entry.hosts]
        name = self.endpoint.rpartition(":")[0]
        return len(machines) == 1 and bool(re.fullmatch(r"[0-9.]+", name))


def defaults() -> dict[str, Any]:
    """Return what is written where the user says nothing."""
    path = shipped.templates("site") / "defaults.yml"
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def asked(options: Namespace, catalogue: Catalogue) -> Start:
    """Return what the command line asks for. Raises BedplateError with everything wrong in it."""
    return _Reading(options, catalogue).start()


def _problem(what: str, option: str, got: str, allowed: str, fix: str) -> Problem:
    return Problem(what, key=option, got=got, allowed=allowed, fix=fix, rule="init")


class _Reading:
    """Reads the options one after the other, and collects what is wrong."""

    def __init__(self, options: Namespace, catalogue: Catalogue) -> None:
        self._options = options
        self._catalogue = catalogue
        self._defaults = defaults()
        self._problems: list[Problem] = []

    def start(self) -> Start:
        one = self._options.one_machine
        if one is not None:
            option = "--one-machine"
            found, wrong = hosts.entries(one, "gpu", option)
            self._problems += wrong
            if len(found) > 1 or any(len(entry.hosts) > 1 for entry in found):
                self._add("wrong hosts", option, one, "one host", "name the others with --hosts")
            groups = {CONTROL_PLANE[0]: found, "gpu": found}
        else:
            groups = self._groups()
        control_plane = tuple(groups.pop(CONTROL_PLANE[0], ()))
        gpus = self._gpus(list(groups))
        start = Start(
            control_plane,
            tuple(Pool(name, tuple(its), *gpus[name]) for name, its in groups.items()),
            self._system(),
            self._endpoint(control_plane),
            self._user(),
            one is not None,
            self._defaults["sources"],
        )
        if self._problems:
            raise BedplateError(self._problems)
        return start

    def _add(self, *said: str) -> None:
        self._problems.append(_problem(*said))

    def _groups(self) -> dict[str, list[Entry]]:
        """Return the hosts of the control plane, as `cp`, and of each pool."""
        option = "--hosts"
        groups: dict[str, list[Entry]] = {}
        for text in self._options.hosts or self._defaults["hosts"]:
            name, sign, its = text.partition("=")
            name = CONTROL_PLANE[0] if name in CONTROL_PLANE else name.removeprefix("pool_")
            if not sign or not POOL.fullmatch(name):
                allowed = "NAME=HOSTS, NAME of small letters, digits and underscores"
                self._add("wrong hosts", option, text, allowed, "write cp=HOSTS or gpu=HOSTS")
                continue
            if name in groups:
                fix = f"join them with a comma: {name}=HOSTS,HOSTS"
                self._add("group is named twice", option, text, "each group once", fix)
            groups[name], wrong = hosts.entries(its, name, option)
            self._problems += wrong
        pools = [pair for pair in groups.items() if pair[0] != CONTROL_PLANE[0]]
        self._problems += hosts.twice(pools, option)
        count = sum(len(entry.hosts) for entry in groups.get(CONTROL_PLANE[0], ()))
        if CONTROL_PLANE[0] not in groups:
            self._add("no control plane", option, "no cp", "cp=HOSTS", "add --hosts cp=HOST")
        elif count and count % 2 == 0:
            got, allowed = f"{count} control planes", "an odd number of them"
            self._add("control plane cannot keep a quorum", option, got, allowed, "name one more")
        if not pools:
            self._add("no pool of GPU hosts", option, "none", "gpu=HOSTS", "add --hosts gpu=HOSTS")
        return groups

    def _gpus(self, pools: list[str]) -> dict[str, tuple[str, int]]:
        """Return model and number of the GPUs of each pool's hosts."""
        option = "--gpu"
        found = dict.fromkeys(pools, ("", 0))
        seen: set[str] = set()
        for text in self._options.gpu:
            name, sign, its = text.rpartition("=")
            name = name.removeprefix("pool_")
            if sign and name not in pools:
                allowed = ", ".join(pools) or "a pool of --hosts"
                self._add("no such pool", option, text, allowed, "name a pool of --hosts")
            if name in seen:
                self._add("GPUs are given twice", option, text, "once for each pool", "remove one")
            seen.add(name)
            for problem in self._wrong_gpu(its):
                self._problems.append(problem)
                break
            else:
                model, _, count = its.rpartition(":")
                mine = [name] if sign else [pool for pool in pools if pool not in seen]
                found.update(dict.fromkeys(mine, (model, int(count))))
        return found

    def _wrong_gpu(self, text: str) -> Iterator[Problem]:
        option, models = "--gpu", self._catalogue.gpu_models
        model, _, count = text.rpartition(":")
        if not model or not re.fullmatch(r"[0-9]+", count) or not 1 <= int(count) <= MOST_GPUS:
            allowed = f"MODEL:COUNT, COUNT from 1 to {MOST_GPUS}"
            yield _problem("wrong GPUs", option, text, allowed, "write it like l40s:4")
        elif model not in models:
            yield _problem("unknown GPU", option, model, *self._catalogue.instead_of_gpu(model))
        elif (cpu := not_installed(models[model].value, self._catalogue)) is not None:
            got = f"{model}, whose hosts are {cpu}"
            allowed = f"a GPU of {', '.join(cpus(self._catalogue))} hosts"
            fix = "name another GPU: this version can only plan these"
            yield _problem("hosts are not installed by this version", option, got, allowed, fix)

    def _system(self) -> str:
        system = self._options.os or self._defaults["os"]
        if system not in self._catalogue.systems:
            instead = self._catalogue.instead_of_system(system)
            self._add("unknown operating system", "--os", system, *instead)
        return str(system)

    def _endpoint(self, control_plane: tuple[Entry, ...]) -> str:
        given, option = self._options.endpoint, "--endpoint"
        if given is not None:
            if not re.fullmatch(ENDPOINT, given):
                self._add("wrong endpoint", option, given, "HOST:PORT", "write HOST:PORT")
            elif given.startswith("["):
                allowed = "a name or an IPv4 address: the cluster's networks are of IPv4"
                self._add("endpoint of IPv6", option, given, allowed, "write one of these")
            return str(given)
        if sum(len(entry.hosts) for entry in control_plane) <= 1:
            reached = control_plane[0].reached if control_plane else ""
            return f"{reached}:{self._defaults['port']}"
        if not self._options.hosts:
            return str(self._defaults["endpoint"])
        allowed = "HOST:PORT of a load balancer or of a virtual address"
        fix = "add --endpoint: it must reach all control planes"
        self._add("no endpoint for several control planes", option, "nothing", allowed, fix)
        return ""

    def _user(self) -> str:
        user = self._options.user or self._defaults["user"]
        if not USER.fullmatch(user):
            self._add("wrong user", "--user", user, "a user's name", "correct it")
        return str(user)
