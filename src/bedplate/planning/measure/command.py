"""`bedplate measure -- COMMAND`: run it at several sizes of share, and propose one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.common import terminal
from bedplate.courses.sizes import Gpus
from bedplate.planning.measure import proposal, runs
from bedplate.planning.measure.runs import problem
from bedplate.portable.quantities import GIB
from bedplate.resolver.course_shares import OF_GPU, OF_PROCESS, reserves
from bedplate.resolver.wishes import split_named

if TYPE_CHECKING:
    from argparse import Namespace

    from bedplate.catalogue import Catalogue
    from bedplate.planning.measure.proposal import Card, Run


def run(options: Namespace) -> int:
    """Measure and print the proposal.

    Returns:
        0.

    Raises:
        MeasureError: there is no GPU to measure on, or the program does not run on it.
    """
    gpu = runs.gpu(options.gpu)
    card = _card(gpu, options.framework, load_catalogue())
    print(f"GPU {options.gpu}: {card.name}, {card.usable} MiB for programs")
    found: list[Run] = []
    by_program = True
    for size in options.sizes:
        part = card.part(size)
        if part is None:
            print(
                f"{size:g}: left out, a share of {card.share(size)} MiB has no room for a program"
            )
            break
        print(f"Running at {size:g} of the GPU …", file=sys.stderr, flush=True)
        limit = (part, card.share(size))
        one, listed = runs.run(gpu, size, limit, options.program, options.seconds)
        found.append(one)
        if not one.failure:
            by_program &= listed
        # A smaller share has no more room than this one.
        if proposal.verdict(one, card):
            break
    best = _best(found, card, options)
    terminal.show(terminal.table(proposal.HEAD, proposal.rows(found, card), right=range(4)))
    count = proposal.students(best.size)
    print(f"\nProposed: {best.size:g} of a GPU, {count} student{'s' * (count > 1)} on each")
    for line in proposal.settings(best):
        print(f"  {line}")
    print()
    for line in proposal.notes(found, best, card, by_program=by_program):
        print(line)
    print("The plan decides whether the class fits: bedplate plan SITE")
    return 0


def _best(found: list[Run], card: Card, options: Namespace) -> Run:
    """Return the run at the smallest size that is enough. Raises MeasureError."""
    words = " ".join(options.program)
    if not found:
        smallest = f"more than {card.reserve} MiB, which the framework itself takes"
        got = f"{options.sizes[0]:g}: {card.share(options.sizes[0])} MiB"
        fix = "write a larger size"
        raise problem("no share of this size has room for a program", "--sizes", got, smallest, fix)
    first = found[0]
    if first.failure:
        fix = "run it by hand on this GPU and correct what it says"
        allowed = "exit status 0"
        raise problem(
            f"the program fails at {first.size:g} of the GPU", words, first.failure, allowed, fix
        )
    if not first.peak:
        fix = "see that its framework has a build for CUDA, and that it runs longer than a second"
        raise problem("no GPU memory was seen", words, "0 MiB", "a program that uses the GPU", fix)
    best = proposal.chosen(found, card)
    if best is None:
        got, allowed = proposal.verdict(first, card), f"{card.share(first.size)} MiB"
        other = "write a larger size" if first.size < 1 else "measure on a GPU with more memory"
        fix = f"{other}, or let the program take less"
        raise problem("the largest size is too small", "--sizes", got, allowed, fix)
    return best


def _card(gpu: runs.Gpu, framework: str, catalogue: Catalogue) -> Card:
    """Return a GPU as the plan counts it: by the catalogue where that knows its name."""
    names = catalogue.gpus_like(gpu.name)
    facts = [catalogue.gpu_models[name].value for name in names]
    sizes = [fact.memory_gib * GIB for fact in facts if fact.memory_gib]
    # Of several models of this name the least. What programs have is no more than the driver says.
    whole = min(sizes, default=gpu.memory)
    percent = catalogue.memory_reserves[OF_GPU].value.percent or 0
    usable = min(whole * (100 - percent) // 100, gpu.memory)
    built = tuple(sorted({fact.architecture for fact in facts}))
    alike = Gpus(1, 1, usable, whole, 0, None, "none", gpu.name, built)
    known = sorted(name for name in catalogue.memory_reserves if name not in (OF_GPU, OF_PROCESS))
    frameworks = [name for name in known if "-" not in name]
    name = split_named(framework)[0]
    if name and name not in frameworks:
        fix = "write one of these, or leave it out"
        raise problem("unknown framework", "--framework", framework, ", ".join(frameworks), fix)
    wanted = [OF_PROCESS, *([name] if name else [])]
    counted = [fact.value.mebibytes or 0 for fact in reserves(wanted, alike, catalogue)]
    return proposal.Card(gpu.name, usable, whole, max(counted, default=0))
