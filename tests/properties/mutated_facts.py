"""Mistakes that only the catalogue knows: names that nobody has, and what does not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.mutations import BadSite, with_text, with_wish

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

ALL, TRAIN, CLASS = "all/bedplate.yml", "pool_train.yml", "pool_class.yml"
MODELS = ("h100-pcie-80gb", "v100-sxm2-32gb", "t4-16gb", "a100-sxm4-80gb", "a30", "l40s", "b200")
NO_MIG = ("t4-16gb", "v100-sxm2-32gb", "a10", "a40", "l4", "l40s", "a2", "p100-pcie-16gb")
LEGACY = ("v100-sxm2-32gb", "v100-sxm2-16gb", "p100-pcie-16gb", "p40", "p4", "m60")
#: Wishes that the catalogue does not know: the wish, what is written, the key that is named.
UNKNOWN = (
    ("bedplate_cuda", '["9.9"]', "bedplate_cuda[0]"),
    ("bedplate_cuda", '["12.9", "14.7"]', "bedplate_cuda[1]"),
    ("bedplate_cuda", '["12.99.99"]', "bedplate_cuda[0]"),
    ("bedplate_frameworks", "[pytorsh]", "bedplate_frameworks[0]"),
    ("bedplate_frameworks", "[pytorch-0.1]", "bedplate_frameworks[0]"),
    ("bedplate_frameworks", "[pytorch, mxnet]", "bedplate_frameworks[1]"),
    ("bedplate_frameworks", "[jax-99.0]", "bedplate_frameworks[0]"),
    ("bedplate_driver", '{branch: "999"}', "bedplate_driver.branch"),
    ("bedplate_driver", '{branch: "100"}', "bedplate_driver.branch"),
    ("bedplate_driver", '{branch: "581"}', "bedplate_driver.branch"),
    ("bedplate_pins", "{nvidia_drivr: 535.309.01}", "bedplate_pins.nvidia_drivr"),
    ("bedplate_pins", "{nvidia_driver: 535.0.0}", "bedplate_pins.nvidia_driver"),
    ("bedplate_pins", "{nvidia_driver: 999.1.1}", "bedplate_pins.nvidia_driver"),
    ("bedplate_rdma", "{stack: inbox, operator: netwrk-operator}", "bedplate_rdma.operator"),
    ("bedplate_host", "{os: debian-12, kernel: 6.8.0-151-generic}", "bedplate_host.kernel"),
    ("bedplate_host", "{os: debian-11}", "bedplate_host.os"),
    ("bedplate_host", "{os: ubuntu-18.04}", "bedplate_host.os"),
    ("bedplate_host", "{os: centos-7}", "bedplate_host.os"),
)
#: Parameters that a sharing mode has no use for, or does not do without.
SHARING = (
    ("{mode: mps}", "bedplate_sharing.mode"),
    ("{mode: time-slicing}", "bedplate_sharing.mode"),
    ("{mode: mig}", "bedplate_sharing.mode"),
    ("{mode: none, replicas: 4}", "bedplate_sharing.replicas"),
    ("{replicas: 4}", "bedplate_sharing.replicas"),
    ("{mode: none, share: 0.5}", "bedplate_sharing.share"),
    ("{mode: mps, replicas: 4, share: 0.5}", "bedplate_sharing.share"),
    ("{mode: mps, replicas: 4, profile: 1g.10gb}", "bedplate_sharing.profile"),
    ("{mode: none, profile: 1g.10gb}", "bedplate_sharing.profile"),
    ("{mode: mig, profile: 1g.10gb, replicas: 2}", "bedplate_sharing.replicas"),
    ("{mode: mig, profile: 1g.99gb}", "bedplate_sharing.profile"),
    ("{mode: mps, replicas: 1}", "bedplate_sharing.replicas"),
    ("{mode: mps, share: 0.9}", "bedplate_sharing.share"),
    ("{mode: dra, replicas: 2}", "bedplate_sharing.replicas"),
    ("{mode: dra, seats: 4}", "bedplate_sharing.seats"),
    ("{mode: dra, isolation: isolated}", "bedplate_sharing.isolation"),
    ("{mode: time-slicing, replicas: 4, isolation: limited}", "bedplate_sharing.isolation"),
    ("{mode: mig, profile: 1g.10gb, profiles: {1g.10gb: 1}}", "bedplate_sharing.profiles"),
    ("[{mode: mps, replicas: 2, cards: [0]}]", "bedplate_sharing"),
)


class _Site:
    """The demo with wishes of its own."""

    def __init__(self, base: str, files: Mapping[str, str]) -> None:
        self.base, self.files = base, files

    def with_wish(
        self,
        kind: str,
        file: str,
        key: str,
        value: str,
        *,
        named: str,
        model: str | None = None,
        or_else: tuple[tuple[str, str], ...] = (),
    ) -> BadSite:
        """Return the site with one more wish in a file, and perhaps another GPU."""
        name = f"group_vars/{file}"
        before = self.files[name]
        if model is not None:
            before = f"bedplate_gpu: {{model: {model}, count: 8}}\n"
        text = with_wish(before, key, value)
        said = f"{key}: {value} in {name}" + (f" with {model}" if model else "")
        content = with_text(self.files, name, text)
        return BadSite(kind, self.base, said, content, name, text.count("\n"), named, or_else)


def unknown_names(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """GPUs, systems, versions and names that nobody knows."""
    site = _Site(base, files)
    for model in MODELS:
        for word in (f"nvidia-{model}", f"{model}-999gb", model[0] + model):
            text = f"bedplate_gpu: {{model: {word}, count: 8}}\n"
            name = f"group_vars/{TRAIN}"
            content = with_text(files, name, text)
            yield BadSite("unknown GPU", base, word, content, name, 1, "bedplate_gpu.model")
    for pci in ("10de:ffff", "1002:74a1", "10de:0000", "8086:0bd5"):
        name, text = f"group_vars/{CLASS}", f'bedplate_gpu: {{pci: "{pci}", count: 4}}\n'
        content = with_text(files, name, text)
        yield BadSite("unknown GPU", base, pci, content, name, 1, "bedplate_gpu.pci")
    for key, value, named in UNKNOWN:
        for file in (TRAIN, CLASS):
            yield site.with_wish("unknown name", file, key, value, named=named)
    for key, value in (
        ("bedplate_schedulers", "[slurmy]"),
        ("bedplate_schedulers", "[kueue-99.9]"),
        ("bedplate_operators", "[gpu-opertor]"),
    ):
        yield site.with_wish("unknown name", ALL, key, value, named=f"{key}[0]")
    for version in ("1.99", "1.12", "1.36.99", "1.0"):
        name = f"group_vars/{ALL}"
        text = files[name].replace('version: "1.36"', f'version: "{version}"')
        line = text[: text.index(f'"{version}"')].count("\n") + 1
        content = with_text(files, name, text)
        key = "bedplate_kubernetes.version"
        yield BadSite("unknown name", base, f"Kubernetes {version}", content, name, line, key)


def sharing_wrong(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """Sharing modes with wrong parameters, on boards that have them not, beyond their limits."""
    site, key = _Site(base, files), "bedplate_sharing"
    for value, named in SHARING:
        for file in (TRAIN, CLASS):
            yield site.with_wish("sharing parameters", file, key, value, named=named)
    board = (f"group_vars/{TRAIN}", "bedplate_gpu.model")
    for model in NO_MIG:
        for profile in ("1g.10gb", "7g.80gb"):
            yield site.with_wish(
                "MIG on a board without",
                TRAIN,
                key,
                f"{{mode: mig, profile: {profile}}}",
                named=f"{key}.mode",
                model=model,
                or_else=(board,),
            )
    # The device plugin offers 48 of a board, of chips before Turing 16, whatever the driver takes.
    for replicas, models in (
        (17, ("v100-sxm2-32gb",)),
        *((n, ("h100-pcie-80gb", "a100-sxm4-80gb", "t4-16gb")) for n in (49, 61, 100, 1000)),
    ):
        for model in models:
            yield site.with_wish(
                "MPS clients",
                TRAIN,
                key,
                f"{{mode: mps, replicas: {replicas}}}",
                named=f"{key}.replicas",
                model=model,
            )
    value, named = "{mode: hami, replicas: 4}", f"{key}.mode"
    yield site.with_wish("HAMi without HAMi", TRAIN, key, value, named=named)


def drivers_wrong(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """Branches and flavours that do not drive the board, or that no package brings."""
    site, key = _Site(base, files), "bedplate_driver"
    for model in LEGACY:
        for branch in ("590", "595"):
            value, named = f'{{branch: "{branch}"}}', f"{key}.branch"
            yield site.with_wish("legacy board", TRAIN, key, value, named=named, model=model)
        value, named = "{flavour: open}", f"{key}.flavour"
        yield site.with_wish("legacy board", TRAIN, key, value, named=named, model=model)
    for model in ("b200", "h100-pcie-80gb", "l40s"):
        value, named = '{branch: "470"}', f"{key}.branch"
        yield site.with_wish("board too new", TRAIN, key, value, named=named, model=model)
    value, named = "{flavour: proprietary}", f"{key}.flavour"
    yield site.with_wish("open only", TRAIN, key, value, named=named, model="b200")


def control_planes(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """Control planes without a quorum, or none at all."""
    if base != "demo":
        return
    name, text = "hosts.yml", files["hosts.yml"]
    for count in (2, 4, 6):
        more = "".join(
            f"        cp{number}: {{ansible_host: 10.213.0.1{number}}}\n"
            for number in range(2, count + 1)
        )
        new = text.replace("    gpu_pools:\n", f"{more}    gpu_pools:\n", 1)
        line = text[: text.index("    gpu_pools:")].count("\n") + count - 1
        content = with_text(files, name, new)
        said = f"{count} control planes"
        yield BadSite("control plane", base, said, content, name, line, "ansible_host")


OF_THE_CATALOGUE = (unknown_names, sharing_wrong, drivers_wrong, control_planes)
#: The sites that these start from: the wide one has more wishes than go together.
SOUND = ("demo", "example")
