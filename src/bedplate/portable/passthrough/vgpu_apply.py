"""Brings a hypervisor's shares of cards to what its guests wish for: record, unit, functions."""

from typing import Dict, List, Mapping, NamedTuple, Sequence

from .. import owned, pci
from ..files import Change, File, ensure_files
from ..host import Host
from ..message import command_problem, problem
from . import libvirt_domain, vgpu

SLOW = 300.0
DISABLE = [["systemctl", "disable", vgpu.UNIT]]
FILES = (vgpu.UNIT_FILE, vgpu.MAKER, vgpu.RECORD)
ENABLE = [["systemctl", "daemon-reload"], ["systemctl", "enable", vgpu.UNIT]]


class Outcome(NamedTuple):
    """What was changed (or would be), what failed, and the shares that are recorded now."""

    diff: List[Dict[str, str]]
    problems: List[str]
    shares: List[vgpu.Share]


class Work:
    """One run on one host."""

    def __init__(
        self, host: Host, cards: Sequence[str], where: str, check: bool, connection: str = ""
    ) -> None:
        self.host, self.where, self.check = host, where, check
        self.virsh = ["virsh", "--quiet", "-c", connection or "qemu:///system"]
        self.cards = sorted(str(card).lower() for card in cards)
        self.diff: List[Dict[str, str]] = []
        self.problems: List[str] = []

    def _shown(self, before: str, after: str) -> None:
        self.diff.append({"before": before, "after": after})

    def _ran(self, argv: Sequence[str], what: str) -> None:
        answer = self.host.run(argv, timeout=SLOW)
        if answer.code != 0:
            self.problems.append(command_problem(what, self.where, argv, answer.said))

    def _keep(self, shares: Sequence[vgpu.Share], shown: bool = True) -> None:
        """Have record, program and unit as they are to be, before anything is made by them."""
        files = [
            File(vgpu.RECORD, vgpu.text(self.cards, shares)),
            File(vgpu.MAKER, vgpu.SCRIPT, 0o755),
            File(vgpu.UNIT_FILE, vgpu.UNIT_TEXT),
        ]
        outcome = ensure_files(self.host, files, self.check)
        self.diff += [change.diff for change in outcome.changes if shown]
        enabled = self.host.run(["systemctl", "is-enabled", vgpu.UNIT]).out.strip() == "enabled"
        changed = vgpu.UNIT_FILE in {change.path for change in outcome.changes}
        if enabled and not changed:
            return
        if not enabled:
            self._shown(f"{vgpu.UNIT} not enabled\n", f"{vgpu.UNIT} enabled\n")
        for argv in [] if self.check else ENABLE:
            self._ran(argv, "the unit that makes shares at boot is not enabled")

    def _split(self) -> None:
        """Give cards their virtual functions."""
        for card in self.cards:
            if not vgpu.without_functions(self.host, card):
                continue
            self._shown(f"{card}: no virtual functions\n", f"{card}: virtual functions\n")
            if not self.check:
                self._ran([vgpu.SRIOV, "-e", card], f"GPU {card} gets no virtual functions")

    def _take(self, going: Sequence[vgpu.Share]) -> List[vgpu.Share]:
        """Take shares away that nobody wishes for; those that a guest still has."""
        left = []
        used = self._used() if going else {}
        for share in going:
            self._shown(f"share {share.name} on {share.function}\n", "")
            user = used.get(share.identity or share.function)
            reason = f"domain {user} runs with it" if user else None
            if reason is None and not self.check:
                reason = vgpu.unmake(self.host, share)
            if reason is not None:
                left.append(share)
                fix = f"Shut guest {share.guest} down when its work allows, and run the play again."
                what = f"share {share.name} cannot be taken away"
                self.problems.append(
                    problem(what, self.where, reason, "a share that no guest has", fix)
                )
        return left

    def _used(self) -> Dict[str, str]:
        """The running domain of each function and mediated device that one has.

        The kernel may wait for the guest instead of refusing: it is not asked then.
        """
        found = {}
        names = self.host.run([*self.virsh, "list", "--name"]).out.split()
        for name in names:
            text = self.host.run([*self.virsh, "dumpxml", name]).out
            if text.strip():
                devices = libvirt_domain.host_devices(text) + libvirt_domain.mediated_devices(text)
                found.update(dict.fromkeys(devices, name))
        return found

    def _give_up(self) -> Outcome:
        """No card is shared any more: nothing of what made shares at boot stays."""
        left = self._take(vgpu.recorded(self.host))
        if self.problems:
            return Outcome(self.diff, self.problems, left)
        for card in vgpu.cards(self.host):
            if (
                not vgpu.without_functions(self.host, card)
                and len(vgpu.functions(self.host, card)) > 1
            ):
                self._shown(f"{card}: virtual functions\n", f"{card}: no virtual functions\n")
                if not self.check:
                    self._ran([vgpu.SRIOV, "-d", card], f"GPU {card} keeps its virtual functions")
        files = [path for path in FILES if self.host.exists(path)]
        self.diff += [Change(path, self.host.read(path), "").diff for path in files]
        if files and not self.check and not self.problems:
            for argv in DISABLE:
                self._ran(argv, "the unit that makes shares at boot is not disabled")
            for path in files:
                self.host.remove(path)
            owned.forget(self.host, files)
            self._ran(["systemctl", "daemon-reload"], "systemd does not forget the unit")
        return Outcome(self.diff, self.problems, [])

    def _make(self, share: vgpu.Share) -> None:
        self._shown("", f"share {share.name} on {share.function}\n")
        if self.check:
            return
        self._ran(["systemctl", "restart", vgpu.UNIT], "shares are not made")
        if not self.problems and not vgpu.there(self.host, share):
            got, allowed = f"none on {share.function}", f"type {share.kind}"
            fix = "See 'journalctl -u nvidia-vgpu-mgr.service' and the kernel's log on the host."
            what = f"share {share.name} was not made"
            self.problems.append(problem(what, self.where, got, allowed, fix))

    def _unknown(self) -> List[str]:
        return [
            problem(
                "no such GPU",
                self.where,
                card,
                "a PCI function of the host",
                "Correct bedplate_vgpu, or the hardware, and run 'bedplate plan' again.",
            )
            for card in self.cards
            if not self.host.exists(f"{pci.DEVICES}/{card}")
        ]

    def run(self, guests: Mapping[str, Mapping[str, object]]) -> Outcome:
        """Do what is to be done, or in check mode say so."""
        self.problems += self._unknown()
        if self.problems:
            return Outcome([], self.problems, [])
        if not self.cards:
            return self._give_up()
        wished = vgpu.wishes(guests)
        self._split()
        shares, going = vgpu.kept(self.host, self.cards, wished)
        if not self.problems:
            # What goes is forgotten only once it is gone.
            shares += self._take(going)
        if not self.problems:
            self._keep(shares)
            for share in shares:
                if not self.problems and not vgpu.there(self.host, share):
                    self._make(share)
        done = {(share.guest, share.number) for share in shares}
        for wish in wished:
            if self.problems or wish[:2] in done:
                continue
            self._one(wish, shares)
        return Outcome(self.diff, self.problems, shares)

    def _one(self, wish: vgpu.Wish, shares: List[vgpu.Share]) -> None:
        guest, number, profile = wish
        share = vgpu.place(self.host, self.cards, wish, shares, self.where)
        if share is None and self.check:
            # Before the manager is installed and functions are made, nothing is offered yet.
            self._shown("", f"share {guest}/{number} {profile}\n")
            return
        if share is None:
            got, allowed = profile, vgpu.room(self.host, self.cards)
            fix = "Write one of these, give the guest fewer shares, or more GPUs in bedplate_vgpu."
            what = f"no GPU has room for share {number} of guest {guest}"
            self.problems.append(problem(what, self.where, got, allowed, fix))
            return
        shares.append(share)
        # Before it is made: a run that ends between the two leaves none that nobody knows of.
        self._keep(shares, shown=False)
        self._make(share)
