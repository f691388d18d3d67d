"""The command line: what neither ansible-playbook nor pulumi does already."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, NoReturn

from bedplate.accounting import options as accounting
from bedplate.accounting.share import options as share
from bedplate.cli import catalogue_options
from bedplate.cli.doctor import options as doctor
from bedplate.common import shipped, streams, terminal
from bedplate.common.arguments import add_output, named_path, path_of
from bedplate.common.errors import BedplateError
from bedplate.common.refusals import as_problems
from bedplate.components.credentials import options as credentials
from bedplate.components.preflight import options as preflight
from bedplate.components.rendering import options as rendering
from bedplate.planning.measure import options as measure
from bedplate.planning.starting import options as starting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bedplate.planning.changes import Installed
    from bedplate.resolver.plan import Planned

OK, REFUSED = 0, 3
EPILOG = (
    "Exit status: 0 planned, or up to date; 2 the lock is out of date (--check); 3 refused or "
    "misused; 4 planned, and not installable by this version, which bedplate.gpu.site and the "
    "stacks refuse; 1 internal error. JSON and YAML have ok, lock, refusals, "
    "not_installable, warnings."
)


def _today(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed YYYY-MM-DD") from error


class Parser(argparse.ArgumentParser):
    """A parser whose wrong usage is a refusal: argparse's own 2 would read as a stale lock."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and how it is used, and exit."""
        self.print_usage(sys.stderr)
        self.exit(REFUSED, f"{self.prog}: {message}\n")


class Top(Parser):
    """The parser of `bedplate` itself, whose help names the manual."""

    def format_help(self) -> str:
        """Add the path as it is: argparse would break it at its hyphens."""
        return f"{super().format_help()}\nManual: {shipped.manual()}\n"


class Version(argparse.Action):
    """Print the version: of the catalogue too, which is read for this alone."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print it and exit."""
        from bedplate.cli.about import version_line

        print(version_line())
        parser.exit(OK)


def parser(*, with_mirror: bool = False) -> argparse.ArgumentParser:
    """Return the parser of `bedplate`; the mirror brings its own part when it is asked for."""
    top = Top(
        prog="bedplate",
        description="Bare metal in, GPU cluster out: decide once what goes together.",
        epilog="Hosts are changed by ansible-playbook and clusters by pulumi; both read the lock. "
        'Completion: eval "$(bedplate completion bash)" in ~/.bashrc, or zsh in ~/.zshrc; in fish '
        "bedplate completion fish | source.",
    )
    top.add_argument(
        "--version", action=Version, nargs=0, help="print version and date of the catalogue"
    )
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    starting.add_parser(commands)
    doctor.add_parser(commands)
    plan = commands.add_parser(
        "plan",
        help="decide every version and write SITE/.bedplate.lock.yml",
        description="Decide every version of a site and write SITE/.bedplate.lock.yml, or refuse. "
        "No host is contacted.",
        epilog=EPILOG,
    )
    plan.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    add_output(plan)
    plan.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with 2 if the lock is out of date",
    )
    plan.add_argument(
        "--allow-planned",
        action="store_true",
        help="exit with 0 also where this version cannot install what is planned",
    )
    plan.add_argument(
        "--why", action="store_true", help="print the reasons, and every warning with its sources"
    )
    plan.add_argument(
        "--today",
        type=_today,
        metavar="DATE",
        help="the date that end-of-life warnings are about (default: the clock's)",
    )
    plan.add_argument(
        "--upgrade",
        action="store_true",
        help="resolve everything again, ignoring the current lock; the Kubernetes of a running "
        "cluster goes up by one minor version at most",
    )
    plan.add_argument(
        "--diff",
        action="store_true",
        help="write nothing; show what each host would get over what its last evidence found, "
        "what that disturbs, and what would change in the lock",
    )
    explain = commands.add_parser(
        "explain",
        help="why this version, and why not that one",
        description="Say why a component of a pool (or of `cluster`) has its version, and why not "
        "another one. Nothing is written.",
        epilog="Examples: bedplate explain SITE pool_a — bedplate explain SITE pool_a "
        "nvidia_driver — bedplate explain SITE pool_a nvidia_driver=595.91.07",
    )
    explain.add_argument(
        "site", type=path_of, metavar="SITE", help="an Ansible inventory directory"
    )
    explain.add_argument("subject", metavar="POOL", help="a pool, or `cluster`")
    explain.add_argument(
        "component",
        nargs="?",
        metavar="COMPONENT[=VERSION]",
        help="a component of the plan (default: all of them, briefly)",
    )
    add_output(explain)
    simulate = commands.add_parser(
        "simulate",
        help="what of a file of jobs would run, and what would wait and why",
        description="Simulate jobs on what the lock decided: how many run at once and over time, "
        "what waits and why, fragmentation, use, and what another sharing mode would do. No host "
        "and no cluster is contacted.",
        epilog="Example: bedplate simulate SITE jobs.csv --output page.html. Columns: name, one of "
        "gpus, share, memory; team, count, cpu, memory_host, duration, arrival, pool, priority. "
        "Exit status: 0 every job starts, 2 some never do, 3 refused, 1 internal error.",
    )
    simulate.add_argument(
        "site", type=path_of, metavar="SITE", help="an Ansible inventory directory"
    )
    simulate.add_argument(
        "jobs", type=path_of, metavar="JOBS.csv", help="a row for each kind of job"
    )
    add_output(simulate, option=())
    simulate.add_argument(
        "--output", type=path_of, metavar="PAGE.html", help="write a page with a picture too"
    )
    simulate.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="POOL=CPUS:MEMORY",
        help="CPUs and memory of each node of a pool, as pool_a=64:512Gi (may be repeated)",
    )
    frameworks = commands.add_parser(
        "frameworks",
        help="Containerfiles of the frameworks that the lock chose for each pool",
        description="List the builds of frameworks that the lock chose for each pool, or write a "
        "folder with a Containerfile for each of them. Nothing is built and no host is contacted.",
        epilog="Example: bedplate frameworks SITE --output images, then in each folder the two "
        "commands that its Containerfile begins with.",
    )
    frameworks.add_argument(
        "site", type=path_of, metavar="SITE", help="an Ansible inventory directory"
    )
    frameworks.add_argument("--output", type=path_of, metavar="DIR", help="write a folder for each")
    frameworks.add_argument(
        "--base",
        metavar="IMAGE@sha256:DIGEST",
        help="the image to build on, by its digest (default: the catalogue's, by its tag)",
    )
    frameworks.add_argument(
        "--requirements",
        type=named_path,
        metavar="NAME=FILE",
        help="write a folder for an own image of courses too: NAME is that of the image, FILE has "
        "what it adds to a notebook, as `pip freeze` prints it",
    )
    frameworks.add_argument(
        "--on",
        metavar="BUILD",
        help="the build whose notebook it is built on, as pytorch-2.14.0-cu126; needed where the "
        "lock has several",
    )
    add_output(frameworks, option=())
    frameworks.set_defaults(usage_error=frameworks.error)
    rendering.add_parser(commands)
    report = commands.add_parser(
        "report",
        help="evidence to SITE/.bedplate/report.html and junit.xml",
        description="Put the evidence of the verify steps into one HTML page and JUnit XML.",
        epilog="Exit status: 0 every check passed, 2 a check failed, or a host has no evidence; "
        "3 refused, 1 internal error.",
    )
    report.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    add_output(report)
    accounting.add_parser(commands)
    share.add_parser(commands)
    credentials.add_parser(commands)
    preflight.add_parser(commands)
    measure.add_parser(commands)
    drift = commands.add_parser(
        "drift",
        help="what has changed on the hosts since, and what to run",
        description="Show what bedplate.gpu.drift found last: what has changed on the hosts since "
        "they were set up, and what to run about it. No host is contacted.",
        epilog="Exit status: 0 no drift, 2 drift, 3 no drift seen but not every host is known "
        "(never looked at, not reached, or looked at under another lock), or refused, 1 internal "
        "error.",
    )
    drift.add_argument("site", type=path_of, metavar="SITE", help="an Ansible inventory directory")
    add_output(drift)
    gpus = commands.add_parser(
        "gpus",
        help="list the GPU models, as a site names them",
        description="List the GPU models of the catalogue with memory, architecture, compute "
        "capability and PCI identifiers.",
        epilog="Examples: bedplate gpus h100 — bedplate gpus ada — bedplate gpus 10de:2330. "
        "Exit status: 0 found, 3 none of that name, 1 a bug.",
    )
    gpus.add_argument("word", nargs="?", metavar="WORD", help="part of a name, or a PCI identifier")
    add_output(gpus)
    catalogue_options.add_parser(commands)
    completion = commands.add_parser(
        "completion",
        help="print what a shell reads to complete this command",
        description="Print what a shell reads to complete `bedplate`.",
        epilog='In ~/.bashrc: eval "$(bedplate completion bash)". In ~/.zshrc, after compinit: '
        'eval "$(bedplate completion zsh)". In ~/.config/fish/config.fish: '
        "bedplate completion fish | source. Pools and components are those of the site's lock.",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    if with_mirror:
        from bedplate.mirror import command

        command.add_parser(commands)
    else:
        commands.add_parser("mirror", help="look after a site's mirror", add_help=False)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:
        from bedplate.cli import completion

        completion.complete(parser(with_mirror=True))
    streams.open_closed()
    with streams.harmless():
        try:
            return _told(lambda: _flushed(given))
        except KeyboardInterrupt:
            print("\nbedplate: interrupted", file=sys.stderr)
            # As a program ends that knows nothing of it: a shell's loop then stops too.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
            raise


def _flushed(given: Sequence[str]) -> int:
    """Run the command line; an output that cannot be written is a refusal too."""
    try:
        if given[:1] == ["mirror"]:
            asked = parser(with_mirror=True).parse_args(given)
            return int(asked.run(asked))
        with _no_garbage_collection():
            return _run(parser().parse_args(given))
    finally:
        sys.stdout.flush()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Spare a command of a second the search for cycles among what it imports.

    It takes a tenth of that second, and finds 3 MB in a plan of 1,250 hosts.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _run(options: argparse.Namespace) -> int:
    if options.command == "report":
        from bedplate.evidence import command as report

        return report.run(options.site, options.form)
    if options.command == "simulate":
        from bedplate.planning.simulation import command as simulation

        return simulation.run(options)
    if options.command == "usage":
        from bedplate.accounting import command as usage

        return usage.run(options)
    if options.command == "frameworks":
        from bedplate.planning.containerfiles import command as containerfiles

        given = options.requirements
        if given is not None and options.output is None:
            options.usage_error("--requirements writes files: name their folder with --output")
        if options.on is not None and given is None:
            options.usage_error("--on names the build of --requirements, which is not there")
        return containerfiles.run(options)
    if options.command == "share":
        from bedplate.accounting.share import command as sharing

        return sharing.run(options)
    if options.command == "kubeconfig":
        from bedplate.components.credentials import command as signing

        return signing.run(options)
    if options.command == "preflight":
        from bedplate.components.preflight import command as measuring

        return measuring.run(options)
    if options.command == "render":
        from bedplate.components.rendering import command as shown

        return shown.run(options)
    if options.command == "measure":
        from bedplate.planning.measure import command as sizing

        return sizing.run(options)
    if options.command == "drift":
        from bedplate.evidence import drift_command

        return drift_command.run(options.site, options.form)
    if options.command == "init":
        from bedplate.planning.starting import command as init

        return init.run(options)
    if options.command == "doctor":
        from bedplate.cli.doctor import command as doctors

        return doctors.run(options)
    if options.command == "gpus":
        from bedplate.catalogue import gpus

        return gpus.run(options.word, options.form)
    if options.command == "catalogue":
        from bedplate.cli import catalogue_review

        return _told(lambda: catalogue_review.run(options, datetime.now(UTC).date()))
    if options.command == "completion":
        from bedplate.cli import completion

        return completion.run(options.shell)
    if options.command == "explain":
        from bedplate.planning import explain

        return explain.run(options.site, options.subject, options.component, options.form)
    from bedplate.planning import command

    return command.run(options, options.today or datetime.now(UTC).date(), _installed)


def _installed(site: Path, planned: Planned) -> Installed:
    """Return what hosts have; most plans are not compared with it, and start quickly."""
    from bedplate.evidence.installed import installed

    return installed(site, planned)


def _told(run: Callable[[], int]) -> int:
    try:
        with as_problems():
            return run()
    except BedplateError as error:
        terminal.refuse(error)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
