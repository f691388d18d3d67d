"""What a site declares of a host against what was found on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from bedplate.common.errors import Problem
from bedplate.evidence.discovery.identify import (
    counted,
    flow,
    gpu_wish,
    hardware,
    kind_of,
    system_of,
)
from bedplate.evidence.discovery.propose import passthrough
from bedplate.portable.quantities import GIB, mebibytes
from bedplate.site.hosts import Accelerator, Gpu, Host, Passthrough
from bedplate.site.places import Place, Places, spelt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bedplate.catalogue import Catalogue
    from bedplate.evidence.discovery.identify import Board, Hardware

#: The wishes that say what a host is; all others say what is wanted of it.
DECLARED = ("bedplate_gpu", "bedplate_accelerator", "bedplate_host", "bedplate_passthrough")


class Comparison:
    """One host's comparison; `problems` has what differs, each with place, found and declared."""

    def __init__(
        self,
        host: str,
        site: str,
        facts: Mapping[str, Any],
        groups: Iterable[str],
        catalogue: Catalogue,
        places: Places | None = None,
    ) -> None:
        self._host, self._site, self._facts = host, site, facts
        self._groups, self._catalogue = tuple(groups), catalogue
        self._places = places or Places({}, Place(site))
        self._found: Hardware = hardware(facts, catalogue)

    def problems(self, wishes: Mapping[str, Any]) -> list[Problem]:
        """Return what differs. Wishes that are not there are not compared."""
        found: list[Problem] = []
        for key in DECLARED:
            if wishes.get(key) is None:
                continue
            try:
                found += getattr(self, key.removeprefix("bedplate_"))(wishes[key])
            except ValidationError as error:
                detail = error.errors(include_url=False)[0]
                said = f"{spelt((key, *detail['loc']))}: {detail['msg']}"
                what, fix = "setting cannot be compared", f"run: bedplate plan {self._site}"
                found.append(self._problem(what, (key,), said, None, fix))
        return found

    def _problem(
        self, what: str, key: tuple[str, ...], got: str, allowed: str | None, fix: str
    ) -> Problem:
        place = self._places.of(key)
        return Problem(
            f"{self._host}: {what}",
            place.file,
            place.line,
            place.column,
            spelt(key),
            got,
            allowed,
            fix,
            rule="discovered",
        )

    def _rewrite(self, key: str, value: Any) -> str:
        return f"write {key}: {flow(value)}, or fix the host; then run: bedplate plan {self._site}"

    def gpu(self, value: Any) -> Iterator[Problem]:
        """Compare GPUs: each declared kind in its number, and no other."""
        several = [value] if isinstance(value, dict) else value
        wishes = TypeAdapter(list[Gpu]).validate_python(several)
        boards = self._found.boards
        models = self._catalogue.gpu_models
        for wish in wishes:
            if wish.model and wish.model not in models:
                what = "the catalogue does not know the declared GPU"
                instead = self._catalogue.instead_of_gpu(wish.model)
                yield self._problem(what, ("bedplate_gpu",), wish.model, *instead)
                return
        missing = [w for w in wishes if sum(_is(b, w) for b in boards) != w.count]
        extra = [b for b in boards if not any(_is(b, w) for w in wishes)]
        if missing or extra:
            allowed = ", ".join(f"{w.count} x {_label(w)}" for w in wishes) or "none"
            fix = f"remove it, or fix the host; then run: bedplate plan {self._site}"
            if boards:
                fix = self._rewrite("bedplate_gpu", gpu_wish(boards))
            what = "other GPUs than declared"
            got = counted(board.label for board in boards)
            yield self._problem(what, ("bedplate_gpu",), got, allowed, fix)

    def accelerator(self, value: Any) -> Iterator[Problem]:
        """Compare accelerators of another maker."""
        wish = Accelerator.model_validate(value)
        found = self._found.others
        if found != {(wish.vendor, wish.model): wish.count}:
            got = ", ".join(f"{n} x {v} {m}" for (v, m), n in sorted(found.items())) or "none"
            allowed = f"{wish.count} x {wish.vendor} {wish.model}"
            fix = f"correct it, or fix the host; then run: bedplate plan {self._site}"
            what = "other accelerators than declared"
            yield self._problem(what, ("bedplate_accelerator",), got, allowed, fix)

    def host(self, value: Any) -> Iterator[Problem]:
        """Compare system, kind and Secure Boot."""
        wish = Host.model_validate(value)
        name, _ = system_of(self._facts, self._catalogue)
        if wish.os not in (name, self._facts["system"]["os"]):
            what, key = "another operating system than declared", ("bedplate_host", "os")
            yield self._problem(what, key, name, wish.os, self._rewrite("os", name))
        if self._facts["system"]["container"]:
            return  # the rest is the machine's, which cannot be seen from inside
        yield from self._size(wish)
        kind = kind_of(self._facts, self._groups)
        if wish.kind != "hypervisor" and kind not in (wish.kind, "hypervisor"):
            what, key = "another kind of host than declared", ("bedplate_host", "kind")
            virtual = self._facts["system"]["virtual"]
            got = f"a virtual machine ({virtual})" if virtual else "no virtual machine"
            yield self._problem(what, key, got, wish.kind, self._rewrite("kind", kind))
        yield from self._secure_boot(wish)

    def _size(self, wish: Host) -> Iterator[Problem]:
        """Refuse more memory or CPUs than there are: shares of them would not fit."""
        system = self._facts["system"]
        memory, cpus = system.get("memory_mib"), system.get("cpus")
        if wish.memory and memory and mebibytes(wish.memory) > memory:
            what, key, has = "less memory than declared", "memory", f"{memory // GIB}Gi"
            fix = self._rewrite(key, has)
            yield self._problem(what, ("bedplate_host", key), has, wish.memory, fix)
        if wish.cpus and cpus and wish.cpus > cpus:
            what, key = "fewer CPUs than declared", "cpus"
            fix = self._rewrite(key, cpus)
            yield self._problem(what, ("bedplate_host", key), str(cpus), str(wish.cpus), fix)

    def _secure_boot(self, wish: Host) -> Iterator[Problem]:
        boot = self._facts["secure_boot"]
        enabled = {"enabled": True, "disabled": False, "unsupported": False}.get(boot["state"])
        key = ("bedplate_host", "secure_boot")
        if enabled is not None and enabled != wish.secure_boot:
            got = f"{boot['state']} ({boot['reason']})" if boot["reason"] else boot["state"]
            allowed = "enabled" if wish.secure_boot else "disabled, as nothing else is declared"
            what = "Secure Boot is not as declared"
            yield self._problem(what, key, got, allowed, self._rewrite("secure_boot", enabled))
        elif (
            enabled and wish.module_signing == "mok" and boot["key"] not in ("enrolled", "unknown")
        ):
            what, key = "the signing key is not enrolled", ("bedplate_host", "module_signing")
            fix = "enrol DKMS's key with `mokutil --import`, and reboot the host"
            yield self._problem(what, key, f"key {boot['key']}", "a key that is enrolled", fix)

    def passthrough(self, value: Any) -> Iterator[Problem]:
        """Compare the devices that guests are given with the host's, and with its IOMMU groups."""
        wish = Passthrough.model_validate(value)
        iommu = self._facts["iommu"]
        present = {device["address"] for device in self._facts["accelerators"]} | {
            address for group in iommu["groups"].values() for address in group
        }
        key = ("bedplate_passthrough", "devices")
        absent = sorted(set(wish.devices) - present)
        if absent:
            fix = self._rewrite(key[0], passthrough(self._facts, self._found))
            what = "devices that the host does not have"
            yield self._problem(what, key, ", ".join(absent), ", ".join(sorted(present)), fix)
        elif not iommu["active"]:
            fix = "switch the IOMMU on in firmware and on the kernel's command line, and reboot"
            got = " ".join(iommu["arguments"]) or "no groups, nothing on the command line"
            yield self._problem("the IOMMU is off", key, got, "IOMMU groups", fix)
        else:
            given = set(wish.devices)
            real = sorted(sorted(g) for g in iommu["groups"].values() if set(g) & given)
            if sorted(sorted(g) for g in wish.iommu_groups) != real:
                path = ("bedplate_passthrough", "iommu_groups")
                fix = self._rewrite("iommu_groups", real)
                what = "other IOMMU groups than declared"
                yield self._problem(what, path, flow(real), flow(wish.iommu_groups), fix)


def _is(board: Board, wish: Gpu) -> bool:
    if wish.model:
        return board.model == wish.model
    return board.pci == wish.pci and wish.subsystem in (None, board.subsystem)


def _label(wish: Gpu) -> str:
    return wish.model or " ".join(part for part in (wish.pci, wish.subsystem) if part)
