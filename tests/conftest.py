"""What holds for every layer: long sweeps are left out of the default run, and the summary says so.

Under pytest-xdist tests run in workers while the summary is printed by the controller: what the
summary needs travels in the workers' output.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible.plugins.loader import init_plugin_loader
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Callable

# Each has one set of hosts, or of environments, and a life of its own.
# The boards' sources, and daemons from packages: what is fetched once serves all tests of the file.
ONE_WORKER = (
    "tests/site/",
    "tests/hosts/",
    "tests/mirror/",
    "tests/standin/",
    "tests/install/",
    "tests/sharing/",
    "tests/catalogue/test_gpu_sources.py",
)
ON_HOSTS = ("tests/site/", "tests/hosts/", "hosts of ")
# The site's own control plane and its nodes ask for both cores: with another control plane beside
# it, its API answers later than a leader's lease lasts. What is started anew then, asks for more.
SITE = "tests/site/"
WITH_CONTROL_PLANE = ("tests/schedulers/", "tests/frameworks/", "hosts of ")
# Each file has nodes of its own on a control plane that its worker starts once, and an order.
FILE = re.compile(r"^tests/(schedulers|frameworks)/[^:]+")
SCENARIO = re.compile(r"^tests/roles/test_scenarios\.py::test_molecule\[(?P<folder>[^\]]+)\]")
HOSTS = re.compile(r"BEDPLATE_TESTS_HOSTS: *(?P<name>[\w-]+)")
# As many workers as may have hosts at a time: the kernel's inotify instances last for no more.
WITH_HOSTS = 2
ROOT = Path(__file__).parents[1]
# Before any test imports a plugin of the collection: only what its finder imports is known.
init_plugin_loader()
pytest_plugins = ["tests.substrate.internet.fixtures"]
LEFT_OUT = pytest.StashKey[set[str]]()
FIGURES = pytest.StashKey[dict[str, dict[str, float | str]]]()
BEGAN = pytest.StashKey[list[int]]()
TICKS = Path("/proc/stat")


class FolderScheduling(LoadScopeScheduling):
    """Keep tests that share hosts or sources on one worker, in order; spread all else.

    While one worker has the site, others have what starts no control plane, as long as there is
    some of it. Of more than two workers (`-n 3`) two run what has hosts, likewise, and the others
    all else.
    """

    def _assign_work_unit(self, node: Any) -> None:
        others = [work for one, work in self.assigned_work.items() if one is not node]
        rules: list[Callable[[str], bool]] = []
        if self.numnodes > WITH_HOSTS:
            may = sum(_has(ON_HOSTS, work) for work in others) < WITH_HOSTS
            rules.append(lambda scope: scope.startswith(ON_HOSTS) == may)
        if any(_has(SITE, work) for work in others):
            rules.append(lambda scope: not scope.startswith(WITH_CONTROL_PLANE))
        # What keeps all rules comes first, else what keeps the first of them.
        for kept in (rules, rules[:1], []):
            fits = (scope for scope in self.workqueue if all(rule(scope) for rule in kept))
            if (scope := next(fits, None)) is not None:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """Give what a worker had left to others; not, as the base does, the test that ended it."""
        left = {
            scope: dict.fromkeys((one for one, done in tests.items() if not done), False)
            for scope, tests in self.assigned_work.pop(node).items()
        }
        ended = next((one for tests in left.values() for one in tests), None)
        for tests in left.values():
            tests.pop(ended or "", None)
        self.workqueue.update({scope: tests for scope, tests in left.items() if tests})
        for one in self.assigned_work:
            self._reschedule(one)
        return ended

    def _split_scope(self, nodeid: str) -> str:
        if scenario := SCENARIO.match(nodeid):
            return f"hosts of {scenario_hosts(scenario['folder'])}"
        if file := FILE.match(nodeid):
            return file[0]
        return next((folder for folder in ONE_WORKER if nodeid.startswith(folder)), nodeid)


def _has(of: str | tuple[str, ...], work: dict[str, dict[str, bool]]) -> bool:
    """Tell whether a worker has tests to run whose scope begins so."""
    return any(scope.startswith(of) and not all(tests.values()) for scope, tests in work.items())


def _ticks() -> list[int]:
    """Return the ticks of all cores since boot: user, nice, system, idle, waiting for a disk, …"""
    return [int(tick) for tick in TICKS.read_text().split("\n", 1)[0].split()[1:9]]


def scenario_hosts(folder: str) -> str:
    """Name the set of hosts that a molecule scenario runs on (tests/roles/README.md)."""
    named = HOSTS.search((ROOT / folder / "molecule.yml").read_text(encoding="utf-8"))
    return named["name"] if named else "molecule"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FolderScheduling:
    """Schedule by folder. The group marks of pytest-xdist 3.8 have no effect under pytest 9."""
    return FolderScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Start with nothing left out and no figures; hosts wait for those of other tests to go.

    The default layer draws the same examples in each run, so that a change is what it fails for.
    """
    if not config.getoption("markexpr"):
        settings.load_profile("ci")
    os.environ.setdefault("BEDPLATE_SUBSTRATE_PATIENCE", "2400")
    config.stash[BEGAN] = _ticks()
    config.stash[LEFT_OUT] = set()
    config.stash[FIGURES] = {}


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> dict[str, dict[str, float | str]]:
    """Collect figures, and names beside them, for the summary: {title: {label: value}}."""
    return pytestconfig.stash[FIGURES]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked `prove`, unless the user selects by marker."""
    if config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("prove")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        config.stash[LEFT_OUT] |= {item.nodeid for item in left_out}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: hand the summary's parts to the controller."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = sorted(session.config.stash[LEFT_OUT])
        output["figures"] = session.config.stash[FIGURES]


def pytest_testnodedown(node: Any) -> None:
    """In the controller: take what a worker handed over (a crashed one hands over nothing)."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] |= set(output.get("left_out", []))
    for title, values in output.get("figures", {}).items():
        node.config.stash[FIGURES].setdefault(title, {}).update(values)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the figures, what the default layer left out, and how to run that."""
    used = [now - before for now, before in zip(_ticks(), config.stash[BEGAN], strict=True)]
    if sum(used):  # with hosts and all: whether one more worker would have had a core
        busy = 100 * (1 - (used[3] + used[4]) / sum(used))
        config.stash[FIGURES]["this machine"] = {f"busy, percent of {os.cpu_count()} cores": busy}
    for title, values in sorted(config.stash[FIGURES].items()):
        terminalreporter.section(title)
        for label, value in values.items():
            told = value if isinstance(value, str) else f"{value:10.2f}"
            terminalreporter.line(f"{label:40} {told}")
    if names := sorted(config.stash[LEFT_OUT]):
        terminalreporter.section("left out of the default layer")
        for name in names:
            terminalreporter.line(name)
        terminalreporter.line("run them with: make prove AREA=<folder of tests>")
