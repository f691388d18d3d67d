"""`bedplate init DIR`: check what is asked, write the folder, say what comes next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bedplate.catalogue import load_catalogue
from bedplate.common.errors import BedplateError
from bedplate.planning.starting import proved
from bedplate.planning.starting.start import asked
from bedplate.planning.starting.write import POOL, check_folder, rendered, write

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

UNKNOWN = "the GPUs of its hosts were not named (--gpu)"
DISCOVER = "or reads them from the hosts, into inventory/.bedplate/discovered/pools"


def run(options: Namespace) -> int:
    """Write the folder. Raises BedplateError with every problem of what is asked."""
    folder: Path = options.folder
    catalogue = load_catalogue()
    problems = check_folder(folder)
    try:
        start = asked(options, catalogue)
    except BedplateError as error:
        problems += error.problems
    if problems:
        raise BedplateError(problems)
    texts = rendered(start, folder.absolute().name)
    write(folder, texts)
    machines = {host for entry in start.control_plane for host in entry.hosts}
    for pool in start.pools:
        machines |= {host for entry in pool.entries for host in entry.hosts}
        gpus = f"{pool.count} x {pool.model} in each host" if pool.model else UNKNOWN
        print(f"pool_{pool.name}: {gpus}")
    print(f"all: {start.system}, endpoint {start.endpoint}, hosts: {len(machines)}")
    if start.is_bound:
        print(
            "The endpoint of a cluster never changes, and an address stays with its host. If more\n"
            "control planes may come, begin again with --endpoint NAME:6443, a name that all\n"
            "hosts and this machine resolve, by DNS or /etc/hosts."
        )
    for line in proved.lines(start, catalogue):
        print(line)
    print(f"Wrote {len(texts)} files to {folder}. Next:")
    print(f"  cd {shlex.quote(str(folder))}")
    for pool in start.pools:
        if not pool.model:
            print(f"  name the GPUs in {POOL.format(name=pool.name)}")
    if not all(pool.model for pool in start.pools):
        print(f"  ansible-playbook -i inventory bedplate.gpu.discover    # {DISCOVER}")
    print("  bedplate plan inventory    # the other commands are in README.md")
    return 0
