"""Brings a hypervisor to what it is to be: files, boot loader, initramfs, unit, binding."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..files import File, ensure_files, is_ours
from ..host import Host, Result
from ..message import command_problem, problem
from . import functions as passthrough
from . import kernel, pages

#: Steps that a run which was killed left undone, a word each: they are made up for by the next.
UNFINISHED = "/var/lib/bedplate/passthrough-unfinished"
INITRAMFS, BOOT_LOADER, UNIT = "initramfs", "boot-loader", "binding-unit"
SLOW = 900.0


class Outcome(NamedTuple):
    """What was changed (or would be), what failed, and what waits for a reboot."""

    diff: List[Dict[str, str]]
    problems: List[str]
    reasons: List[str]


def _on(node: Optional[int]) -> str:
    return "" if node is None else f" on node {node}"


class Work:
    """One run on one host."""

    def __init__(self, host: Host, wish: kernel.Wish, where: str, check: bool) -> None:
        self.host, self.wish, self.where, self.check = host, wish, where, check
        self.arguments = kernel.arguments(host, wish.page_size, wish.pages)
        self.diff: List[Dict[str, str]] = []
        self.problems: List[str] = []

    def _ran(self, argv: Sequence[str], what: str) -> Result:
        answer = self.host.run(argv, timeout=SLOW)
        if answer.code != 0:
            self.problems.append(command_problem(what, self.where, argv, answer.said))
        return answer

    def _files(self, boot_loader: kernel.BootLoader) -> List[Tuple[List[File], bool]]:
        """Every file to have, in two lists: ours alone, and those that others write too."""
        texts = {**kernel.files(self.wish.binding), **pages.files(self.host, self.wish)}
        ours = [File(path, text, mode) for path, (text, mode) in texts.items()]
        ours += [File(path, text) for path, text in boot_loader.files.items()]
        early = kernel.initramfs(self.host)
        if early is None:
            return [(ours, True)]
        if is_ours(early[1]):
            return [([*ours, File(early[0], early[1])], True)]
        theirs = File(early[0], early[1], added={"lines": list(kernel.MODULE_LINES)})
        return [(ours, True), ([theirs], False)]

    def _due(self, changed: Set[str], boot_loader: kernel.BootLoader) -> Set[str]:
        """The steps that changed files call for, and those that a killed run left."""
        steps = set((self.host.read(UNFINISHED) or "").split())
        early = kernel.initramfs(self.host)
        if early is not None and {kernel.MODPROBE, early[0]} & changed:
            steps.add(INITRAMFS)
        # GRUB's drop-in is made known by one command; grubby is asked what is missing.
        by_file = kernel.GRUB_DROP_IN in boot_loader.files
        if set(boot_loader.files) & changed if by_file else boot_loader.commands:
            steps.add(BOOT_LOADER)
        if by_file and self._menu_lacks():
            steps.add(BOOT_LOADER)
        for unit, path in self._units().items():
            state = self.host.run(["systemctl", "is-enabled", unit]).out.strip()
            if path in changed or state != "enabled":
                steps.add(UNIT)
        return steps

    def _units(self) -> Dict[str, str]:
        """The units that do their work at boot, with their files."""
        found = {kernel.UNIT: kernel.UNIT_FILE}
        if pages.files(self.host, self.wish):
            found[pages.UNIT] = pages.UNIT_FILE
        return found

    def _menu_lacks(self) -> bool:
        """Whether GRUB's menu was written without our drop-in, as by hand."""
        kept, _ = kernel.next_boot(self.host, self.arguments)
        return kept is not None and kept != self.arguments

    def _steps(self, steps: Set[str], boot_loader: kernel.BootLoader) -> None:
        early = kernel.initramfs(self.host)
        commands: Dict[str, Tuple[List[List[str]], str]] = {
            BOOT_LOADER: (boot_loader.commands, "the boot loader's configuration is not written"),
            INITRAMFS: ([early[2]] if early else [], "the initramfs could not be refreshed"),
            UNIT: (
                [["systemctl", "daemon-reload"], ["systemctl", "enable", *self._units()]],
                "the unit that binds at boot is not enabled",
            ),
        }
        for step in sorted(steps & set(commands)):
            self.diff.append({"before": f"{step} of old\n", "after": f"{step} refreshed\n"})
            for argv in [] if self.check else commands[step][0]:
                self._ran(argv, commands[step][1])

    def _bind(self) -> None:
        """Give functions that are free to vfio-pci now, through the unit that does it at boot."""
        free = kernel.unbound(self.host, self.wish)
        # The unit takes every function that is listed from whatever has it: right at boot, not now.
        if not free or self.problems or kernel.held(self.host, self.wish):
            return
        names = "".join(f"{address}: %s\n" for address in free)
        shown = (names % (("no driver",) * len(free)), names % (("vfio-pci",) * len(free)))
        self.diff.append({"before": shown[0], "after": shown[1]})
        if self.check:
            return
        self._ran(["systemctl", "restart", kernel.UNIT], "functions are not given to vfio-pci")
        left = kernel.unbound(self.host, self.wish)
        if left and not self.problems:
            self.problems.append(
                problem(
                    "vfio-pci does not take what it is given",
                    self.where,
                    ", ".join(left) + " without a driver",
                    passthrough.DRIVER,
                    "See the kernel's log for vfio-pci messages.",
                )
            )

    def _reserve(self) -> None:
        """Take huge pages back that were given up since boot: what is short needs a reboot.

        A node that has more than it is to have keeps them until the next boot: guests may run on
        them, and others have asked for some.
        """
        size, wished = self.wish.page_size, pages.wished(self.wish)
        # What the running kernel was not told yet comes with the reboot that waits for it.
        if not size or not self.wish.pages or kernel.missing_arguments(self.host, self.arguments):
            return
        before = pages.counted(self.host, self.wish)
        if before == {None: None}:
            return
        short = {node: count for node, count in wished.items() if (before[node] or 0) < count}
        now = {**before, **short}
        if short and not self.check:
            for node, count in short.items():
                kernel.reserve(self.host, size, count, node)
            now = pages.counted(self.host, self.wish)
        if now != before:
            shown = [
                "".join(f"{have[node] or 0} huge pages of {size}{_on(node)}\n" for node in short)
                for have in (before, now)
            ]
            self.diff.append({"before": shown[0], "after": shown[1]})
        left = [node for node, count in short.items() if (now[node] or 0) < count]
        if left:
            got = ", ".join(f"{now[node] or 0} of {size}{_on(node)}" for node in left)
            allowed = ", ".join(f"{wished[node]}{_on(node)}" for node in left)
            fix = "Reboot the host; if it has no more then, give the guests less memory."
            self.problems.append(
                problem("memory for huge pages is short", self.where, got, allowed, fix)
            )

    def run(self, keep_boot_loader: bool) -> Outcome:
        """Do what is to be done, or in check mode say so."""
        self.problems += kernel.dead_iommu(self.host, self.arguments, self.where)
        boot_loader = kernel.BootLoader({}, [])
        if not keep_boot_loader:
            boot_loader, unknown = kernel.boot_loader(self.host, self.arguments, self.where)
            self.problems += unknown
        if self.problems:
            return Outcome([], self.problems, [])
        files = self._files(boot_loader)
        changes = [c for group, _ in files for c in ensure_files(self.host, group, True).changes]
        steps = self._due({change.path for change in changes}, boot_loader)
        if steps and not self.check:
            self.host.write(UNFINISHED, "\n".join(sorted(steps)) + "\n")
        if not self.check:
            kernel.release(self.host, self.wish.binding)
        self.diff += [change.diff for change in changes]
        for group, watched in files:
            ensure_files(self.host, group, self.check, watched=watched)
        self._steps(steps, boot_loader)
        if steps and not self.check and not self.problems:
            self.host.remove(UNFINISHED)
        if not self.problems:
            self._bind()
            self._reserve()
        return Outcome(
            self.diff, self.problems, kernel.waiting(self.host, self.wish, self.arguments)
        )
