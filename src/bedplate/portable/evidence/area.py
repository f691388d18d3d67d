"""What every area of a host's evidence has in common: the wishes, and where checks are put."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

from .. import certificates, mig
from ..host import VERSION, Host
from .checks import AGAIN, Checks, check, skipped

PENDING = (
    "A node keeps its driver while it is in a cluster: run bedplate.gpu.upgrade, which drains it."
)
NO_VERSION = "the lock names no version for this host"


class Wishes(NamedTuple):
    """What the host was to have: the options of module gpu_evidence, by the same names.

    Empty values are not wished, and their checks are skipped.
    """

    gpus: List[Mapping[str, Any]] = []  # noqa: RUF012 never changed
    gpu_memory_gib: Mapping[str, int] = {}
    driver_version: str = ""
    driver_flavour: str = "proprietary"
    driver_packages: Mapping[str, str] = {}
    driver_options: Mapping[str, Mapping[str, Any]] = {}
    containerd_version: str = ""
    toolkit_version: str = ""
    kubelet_version: str = ""
    certificate_days: int = certificates.DAYS
    plugin_image: str = ""
    sharing: Mapping[str, Any] = {}
    fabric: Mapping[str, Any] = {}
    cuda: Mapping[str, Any] = {}
    slurm: Mapping[str, Any] = {}
    passthrough: Mapping[str, Any] = {}
    licence: Mapping[str, Any] = {}
    rdma: Mapping[str, Any] = {}
    hpc: Mapping[str, Any] = {}
    baseline: Mapping[str, Any] = {}
    containers: Mapping[str, Any] = {}

    @property
    def gpu_count(self) -> int:
        """How many GPUs the site declares for the host."""
        return sum(int(wish["count"]) for wish in self.gpus)

    @property
    def layout(self) -> mig.Wish:
        """What the GPUs are divided into."""
        given = self.sharing
        profiles, parts = given.get("mig_profiles", ()), given.get("mig_layout", ())
        return mig.wish(profiles, str(given.get("compute_mode", "")), parts)

    @property
    def divides(self) -> bool:
        """Whether MIG is to divide any GPU."""
        return bool(self.layout.profiles) or any(self.layout.cards.values())

    @property
    def strategy(self) -> str:
        """NVIDIA's word for how MIG devices are offered: each as a GPU, or by their profiles."""
        if self.sharing.get("mode") != "mig":
            return "none"
        return "mixed" if self.sharing.get("mig_layout") else "single"

    @property
    def device_count(self) -> int:
        """How many devices containers can be given: MIG devices where the GPUs are divided."""
        return sum(max(1, len(self.layout.of(number))) for number in range(self.gpu_count))


class Collected(NamedTuple):
    """What the areas add to."""

    checks: Checks
    facts: Dict[str, Any]
    labels: Dict[str, str]


Area = Callable[[Host, Wishes, Collected], None]


def version_of(host: Host, argv: List[str]) -> Tuple[str, str]:
    """The version that a program prints of itself, and the reason where it does not."""
    answer = host.run(argv)
    found = VERSION.search(answer.out) if answer.code == 0 else None
    return (found.group(1), "") if found else ("", answer.said)


def version_check(
    host: Host,
    to: Collected,
    name: str,
    what: str,
    wished: str,
    argv: List[str],
    fix: str = AGAIN,
) -> None:
    if not wished:
        to.checks.append(skipped(name, what, "the lock names no version for this host"))
        return
    found, reason = version_of(host, argv)
    to.checks.append(check(name, what, wished, found or None, fix, reason))
