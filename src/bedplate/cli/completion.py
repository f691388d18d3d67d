"""Completion of the shell: by argcomplete, which ansible-playbook's own completion uses too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from bedplate.common.errors import BedplateError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from bedplate.lock import Lock

PROGRAM = "bedplate"


def run(shell: str) -> int:
    """Print what a shell has to read to complete `bedplate`."""
    print(shellcode([PROGRAM], shell=shell))
    return 0


def complete(parser: ArgumentParser) -> None:
    """Answer the shell and end, if it is the shell that asks."""
    by_name = {"POOL": _pools, "COMPONENT[=VERSION]": _components, "WORD": _gpus}
    for command in _commands(parser):
        for action in command._actions:
            if completer := by_name.get(str(action.metavar)):
                action.completer = completer  # type: ignore[attr-defined] # argcomplete's own way
    CompletionFinder()(parser)


def _commands(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:
        for one in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from _commands(one)


def _lock(options: Namespace) -> Lock | None:
    from bedplate.lock import load_lock

    try:
        return load_lock(options.site)
    except BedplateError:
        return None  # there is nothing to complete with before the first plan


def _pools(*, parsed_args: Namespace, **_: Any) -> list[str]:
    lock = _lock(parsed_args)
    return [] if lock is None else [*(["cluster"] if lock.cluster else []), *lock.pools]


def _components(*, parsed_args: Namespace, **_: Any) -> list[str]:
    """Return what the plan lists of a pool: what `explain` knows of it."""
    from bedplate.catalogue import catalogue_of
    from bedplate.planning.screen import rows

    if (lock := _lock(parsed_args)) is None:
        return []
    listed = rows(lock, catalogue_of(parsed_args.site))
    return [component for where, component, _ in listed if where == parsed_args.subject]


def _gpus(**_: Any) -> list[str]:
    from bedplate.catalogue import load_catalogue

    return sorted(load_catalogue().gpu_models)
