"""One pool as the checker sees it: its wishes, what the lock says, and the facts about both."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.properties.plain import model_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.properties.plain import Facts, Row

SHARED_BY_REPLICAS = {"time-slicing", "mps", "hami"}


@dataclass(frozen=True)
class View:
    """One pool: the facts, its hosts and their wishes, what the lock says of it and the cluster."""

    facts: Facts
    name: str
    hosts: Mapping[str, Row]
    wishes: Row
    pool: Row
    cluster: Row

    @property
    def driver(self) -> Row | None:
        """Return the decided driver."""
        return self.pool.get("nvidia_driver")

    @property
    def fact(self) -> Row | None:
        """Return the packaged driver that was decided on."""
        keys = ("source", "version", "flavour")
        wanted = {key: (self.driver or {}).get(key) for key in keys}
        return self.facts.one("driver-packages", os=self.pool["os"], **wanted)

    @property
    def branch(self) -> Row:
        """Return what is known of the driver's branch."""
        found = self.facts.one("driver-branches", branch=(self.driver or {}).get("branch"))
        return found or {"cuda": "0", "flavours": []}

    @property
    def gpus(self) -> list[tuple[Row, int]]:
        """Return each wished model with its count; those that nobody knows are left out."""
        if self.kind == "hypervisor":
            return []
        found = [(model_of(self.facts, gpu), gpu["count"]) for gpu in self.wishes["bedplate_gpu"]]
        return [(model, count) for model, count in found if model is not None]

    @property
    def architectures(self) -> list[Row]:
        """Return what is known of the architectures of the GPUs."""
        rows = (
            self.facts.one("architectures", architecture=m["architecture"]) for m, _ in self.gpus
        )
        return [row for row in rows if row is not None]

    @property
    def kind(self) -> str:
        """Return what the hosts are."""
        kind: str = self.wishes["bedplate_host"]["kind"]
        return kind

    @property
    def system(self) -> Row | None:
        """Return what is known of the operating system."""
        return self.facts.one("systems", os=self.wishes["bedplate_host"]["os"])

    @property
    def kernel(self) -> str:
        """Return the wished kernel, else the system's."""
        kernel: str = self.wishes["bedplate_host"]["kernel"] or (self.system or {}).get(
            "kernel", ""
        )
        return kernel

    @property
    def sharing(self) -> Row:
        """Return the wish for sharing."""
        row: Row = self.wishes["bedplate_sharing"]
        return row

    @property
    def mode(self) -> Row | None:
        """Return what is known of the sharing mode, on the driver's branch where it is decided."""
        branch = (self.driver or {}).get("branch")
        limits = self.sharing["mode"] == "dra" and self.sharing["isolation"] is not None
        rows = [
            row
            for row in self.facts.some("sharing-modes", mode=self.sharing["mode"])
            if branch is None
            or (row.get("branch_from") or "") <= branch <= (row.get("branch_upto") or "999")
        ]
        return next((row for row in rows if bool(row.get("limits")) == limits), None)

    @property
    def slurm(self) -> bool:
        """Tell whether the hosts are Slurm's."""
        return any("slurm" in host["groups"] for host in self.hosts.values())

    @property
    def outside(self) -> bool:
        """Tell whether the hosts are no nodes of the cluster: Slurm's, or hypervisors."""
        return self.slurm or any("hypervisors" in host["groups"] for host in self.hosts.values())

    @property
    def addons(self) -> list[Row]:
        """Return the decided add-ons of the cluster."""
        rows: list[Row] = self.cluster.get("addons", [])
        return rows

    @property
    def builds(self) -> list[Row]:
        """Return what is known of each decided build of a framework."""
        found = []
        for chosen in self.pool.get("frameworks", []):
            wanted = {"framework": chosen["name"], "version": chosen["version"]}
            row = self.facts.one("frameworks", variant=chosen["variant"], **wanted)
            found.append(row or {**wanted, "cuda": "0", "compute_capabilities": []})
        return found

    @property
    def shares(self) -> list[tuple[int, int]]:
        """Return shares of a card and number of cards in a host, by model."""
        found = []
        for model, count in self.gpus:
            if self.sharing["mode"] == "mig" and self.sharing["profiles"]:
                found.append((sum(self.sharing["profiles"].values()), count))
            elif self.sharing["mode"] == "mig":
                row = geometry(self, model)
                found.append((row["instances"] if row else 0, count))
            else:
                found.append((replicas_of(self.sharing) or 1, count))
        return found


def replicas_of(sharing: Row) -> int | None:
    """Return the shares of a card: as wished, or as many as a share of that size goes into it."""
    if sharing["mode"] not in SHARED_BY_REPLICAS:
        return None
    if sharing["replicas"] is not None:
        replicas: int = sharing["replicas"]
        return replicas
    if isinstance(sharing["share"], float):
        return int(1 / Fraction(str(sharing["share"])))
    return None


def rows_of(view: View, model: Row) -> dict[str, Row]:
    """Return the profiles that a board has, by name."""
    rows = view.facts["mig-geometries"]
    return {row["profile"]: row for row in rows if model["model"] in row["models"]}


def instances(view: View, model: Row, entry: Row) -> dict[str, int]:
    """Return the instances that a board of an entry has, by profile."""
    if entry["profiles"]:
        return dict(entry["profiles"])
    row = rows_of(view, model).get(entry["profile"])
    return {entry["profile"]: row["instances"] if row else 0}


def geometry(view: View, model: Row) -> Row | None:
    """Return how the board is cut into the wished profile, if it can be."""
    profile = view.sharing["profile"]
    rows = view.facts.some("mig-geometries", profile=profile)
    return next((row for row in rows if model["model"] in row["models"]), None)
