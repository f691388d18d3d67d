"""Bad sites: sound ones with one mistake each, and the file, line and key that must be named.

Sites are mutated as text, at the positions that PyYAML reports: nothing here is the loader's.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.properties.wide_site import WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
#: Upstream's own fields and names of components: nothing misspelt in them is the loader's to find.
FREE = ("kubelet", "kube_proxy", "bedplate_pins", "keys")
#: A team is called as its site likes.
NAMED = ("bedplate_teams",)
#: What the example offers in a comment.
OFFERED = re.compile(r"^( *)# (pool_class:|bedplate_)", re.MULTILINE)


@dataclass(frozen=True)
class BadSite:
    """A site with one mistake: its files, and what a refusal must name."""

    kind: str
    base: str
    said: str
    files: Mapping[str, bytes]
    file: str
    line: int | None
    key: str | None
    #: Other wishes of the same conflict, any of which may be named: files with keys.
    or_else: tuple[tuple[str, str], ...] = ()

    def write(self, folder: Path) -> Path:
        """Write the site below *folder*."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder


def bases() -> dict[str, dict[str, str]]:
    """Return the sound sites by name: the demo, the example and a wide one."""
    found = {"wide": WIDE}
    for name in ("demo", "example"):
        folder = ROOT / "inventories" / name
        found[name] = {
            str(path.relative_to(folder)): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*.yml"))
            if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        }
    for file in ("hosts.yml", "group_vars/pool_class.yml"):
        # With its second pool, as its comments tell one to have it.
        found["example"][file] = OFFERED.sub(r"\1\2", found["example"][file])
    return found


@dataclass(frozen=True)
class Spot:
    """A key with its value in the text of a file; `path` leads from the wish to it."""

    base: str
    file: str
    path: tuple[str | int, ...]
    key: yaml.Node
    value: yaml.Node
    flow: bool
    #: Where the key is, and what it is in: lines from 1.
    line: int
    parent_line: int
    wish_line: int

    @property
    def name(self) -> str:
        """Return the path without numbers: `bedplate_gpu.count`."""
        return ".".join(part for part in self.path if isinstance(part, str))

    @property
    def free(self) -> bool:
        """Tell whether the key's name is not managed by Bedplate."""
        return any(part in FREE for part in self.path[:-1]) or self.path[:-1] == NAMED


def spelt(path: tuple[str | int, ...]) -> str:
    """Return a path as messages print it."""
    text = str(path[0])
    for part in path[1:]:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text


def spots(base: str, files: Mapping[str, str]) -> Iterator[Spot]:
    """Yield every key of every wish, at any depth, and every item of a list."""
    for file, text in files.items():
        if "group_vars" not in file:
            continue
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        # A file may have nothing but comments.
        for key, value in root.value if root else ():
            if key.value.startswith("bedplate_"):
                line = key.start_mark.line + 1
                yield Spot(base, file, (key.value,), key, value, False, line, line, line)
                yield from _inside(base, file, (key.value,), value, line, line)


def _inside(
    base: str, file: str, path: tuple[str | int, ...], node: yaml.Node, line: int, wish: int
) -> Iterator[Spot]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            at, inner = key.start_mark.line + 1, (*path, key.value)
            yield Spot(base, file, inner, key, value, bool(node.flow_style), at, line, wish)
            yield from _inside(base, file, inner, value, at, wish)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            at = item.start_mark.line + 1
            if isinstance(item, yaml.ScalarNode):
                yield Spot(base, file, (*path, index), item, item, True, at, line, wish)
            else:
                yield from _inside(base, file, (*path, index), item, at, wish)


def with_text(files: Mapping[str, str], file: str, text: str) -> dict[str, bytes]:
    """Return the site with another text in one file."""
    return {name: content.encode() for name, content in (files | {file: text}).items()}


def with_wish(text: str, key: str, value: str) -> str:
    """Return a file with a wish at its end, in the place of a line that has the same."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(f"{key}:")) + f"{key}: {value}\n"


def put(text: str, node: yaml.Node, new: str) -> str:
    """Return *text* with *new* instead of a node, whatever lines that had."""
    start, end = node.start_mark.index, node.end_mark.index
    kept = "\n" if text[start:end].endswith("\n") else ""
    # A block collection ends where the next token starts: what is between stays.
    tail = text[start:end]
    kept = tail[len(tail.rstrip()) :] or kept
    return text[:start] + new + kept + text[end:]


def misspelt(word: str, chance: random.Random) -> Iterator[str]:
    """Yield the word with a letter left out, doubled, or changed places with its neighbour."""
    letters = [i for i in range(1, len(word)) if word[i].isalpha()]
    at = chance.choice(letters)
    yield word[:at] + word[at + 1 :]
    yield word[:at] + word[at] + word[at:]
    pairs = [i for i in letters if word[i] != word[i + 1 :][:1] and word[i + 1 :][:1].isalpha()]
    if pairs:
        at = chance.choice(pairs)
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def keys_misspelt(spot: Spot, files: Mapping[str, str], chance: random.Random) -> Iterator[BadSite]:
    """A misspelt key, at any depth."""
    if spot.free or spot.key is spot.value:
        return
    for word in misspelt(str(spot.path[-1]), chance):
        text = put(files[spot.file], spot.key, word)
        key = spelt((*spot.path[:-1], word))
        yield _bad("misspelt key", spot, f"{spot.path[-1]} as {word}", files, text, spot.line, key)


def _bad(
    kind: str, spot: Spot, said: str, files: Mapping[str, str], text: str, line: int, key: str
) -> BadSite:
    content = with_text(files, spot.file, text)
    return BadSite(kind, spot.base, f"{spot.file}: {said}", content, spot.file, line, key)


TEXT = ["1.30", "580", "true", "2026-11-21", "[a]", "{a: b}", "1.0e+3"]
WHOLE = ["many", '"8"', "1.5", "true", "[8]", "{a: 8}", "2026-11-21", "8GB"]
FRACTION = ["half", '"0.08"', "true", "[0.5]", "8%", "0", "1.5", "-0.1"]
TRUTH = ["1", '"true"', "maybe", "[]", "{}", "null"]
MAPPING = ["5", "text", "[]", "true", "2026-11-21"]
LIST = ["5", "text", "true"]
#: Right types that mean nothing, and values out of range, by key.
FORMS: dict[str, list[str]] = {
    "bedplate_host.os": ["Debian 12", "debian_12", '""', "null"],
    "bedplate_host.kind": ["baremetal", "vm", "null"],
    "bedplate_host.kernel": ["latest", '"6"'],
    "bedplate_host.module_signing": ["dkms"],
    "bedplate_driver.policy": ["newest", "LTS", "null"],
    "bedplate_driver.branch": ['"58"', '"535.309.01"', "R535", "latest"],
    "bedplate_driver.flavour": ["closed", "Open"],
    "bedplate_driver.source": ["ubuntu", "cuda-repo"],
    "bedplate_kubernetes.version": ['"2.0"', "v1.36", "latest", '"1.36.x"'],
    "bedplate_kubernetes.endpoint": [
        "k8s.example",
        "k8s.example:port",
        '":6443"',
        "https://k8s.example:6443",
        "k8s.example:0",
        "k8s.example:70000",
        "null",
    ],
    "bedplate_kubernetes.cni": ["calico", "Flannel"],
    "bedplate_kubernetes.pod_subnet": ["10.244.0.0", "10.244.0.0/99", "pods", "10.244.0.1/16"],
    "bedplate_kubernetes.service_subnet": ["10.96.0.0", "10.244.128.0/17"],
    "bedplate_container_runtime.name": ["crio", "podman"],
    "bedplate_container_runtime.source": ["upstream"],
    "bedplate_sources.mode": ["offline", "null"],
    "bedplate_sources.url": ["mirror.example:5080", "ftp://mirror.example", "http://"],
    "bedplate_gpu.model": ["H100 80GB", "h100_80gb"],
    "bedplate_gpu.pci": ['"10DE:2331"', '"2331"', '"10de-2331"'],
    "bedplate_gpu.subsystem": ['"1249"', '"0x10de1249"'],
    "bedplate_gpu.count": ["null", "0", "-1", "65", "100000"],
    "bedplate_accelerator.vendor": ["nvidia", "graphcore"],
    "bedplate_accelerator.model": ["R200 XPU"],
    "bedplate_accelerator.count": ["0", "65"],
    "bedplate_sharing.mode": ["vgpu", "MPS"],
    "bedplate_sharing.replicas": ["0", "-5", "1001"],
    "bedplate_sharing.seats": ["0", "1000001"],
    "bedplate_sharing.profile": ["1g10gb", "9g.10gb", "all"],
    "bedplate_rdma.stack": ["mofed", "none"],
    "bedplate_rdma.operator": ["Network Operator"],
    "bedplate_cuda": ["latest", "cuda-12", '">=12"'],
    "bedplate_schedulers": ["Kueue", "kueue_0_10", "kueue 0.10"],
    "bedplate_operators": ["GPU-Operator", "gpu-operator:26"],
    "bedplate_frameworks": ["PyTorch-2.8", "pytorch==2.8", "pytorch 2.8"],
    "bedplate_pins.containerd": ["latest", "v2", '">=2"', "2.*"],
    "bedplate_passthrough.devices": ['"3b:00.0"', '"0000:3b:00.8"', "0000:01:00.0", "10de:1db5"],
    "bedplate_passthrough.iommu_groups": ['"3b:00.0"', "0000:01:00.0"],
}
WHOLE_KEYS = {"count", "replicas", "seats"}
TRUTH_KEYS = {"secure_boot", "bedplate_forward_compatibility"}


def values_wrong(spot: Spot, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """A value of the wrong type, of the wrong form, or out of range."""
    if any(part in FREE[:2] for part in spot.path):
        return
    last, node, kind = spot.path[-1], spot.value, "wrong form"
    wrong = FORMS.get(spot.name, [])
    types: list[str]
    if isinstance(node, yaml.MappingNode):
        types = MAPPING if spot.name != "bedplate_gpu" else [x for x in MAPPING if x != "[]"]
    elif isinstance(node, yaml.SequenceNode):
        wrong, types = [], LIST
    elif last in WHOLE_KEYS:
        types = WHOLE
    elif last in TRUTH_KEYS:
        types = TRUTH
    else:
        types = FRACTION if last == "share" else TEXT
    if spot.name == "bedplate_preset":  # by its name, or with changes
        types = [x for x in types if not x.startswith("{")]
    for new in [*types, *wrong]:
        if new in types:
            kind = "version as a number" if new == "1.30" else "wrong type"
        else:
            kind = "wrong form"
        key = spelt(spot.path)
        text = put(files[spot.file], node, new)
        # Ansible knows no place of `true`: an item of a list is then found by its list.
        line = spot.parent_line if new == "true" and spot.key is node else spot.line
        yield _bad(kind, spot, f"{key}: {new}", files, text, line, key)


REQUIRED = {
    "bedplate_host.os",
    "bedplate_gpu.count",
    "bedplate_gpu.model",
    "bedplate_kubernetes.endpoint",
    "bedplate_accelerator.vendor",
    "bedplate_accelerator.model",
    "bedplate_accelerator.count",
    "bedplate_rdma.stack",
    "bedplate_passthrough.devices",
    "bedplate_passthrough.iommu_groups",
}


def keys_removed(spot: Spot, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """A required key that is not there: it stays as a comment, so that no line moves."""
    if spot.name not in REQUIRED or spot.key is spot.value:
        return
    text = files[spot.file]
    start, end = spot.key.start_mark.index, spot.value.end_mark.index
    if spot.flow:
        before, after = text[:start], text[end:]
        if after.startswith(","):
            after = after[1:]
        else:
            before = before.rstrip().removesuffix(",")
        text = before + after
    else:
        # In a list, the first key of an item stands behind a dash that has to stay.
        gone = text[start:end].rstrip().replace("\n", "\n# ")
        rest = text[start + len(gone.replace("\n# ", "\n")) :]
        text = text[:start] + f"# {gone}" + rest
    if spot.name == "bedplate_gpu.model":
        key, line = spelt(spot.path[:-1]), spot.parent_line
        if "- # " in text:  # the item now starts at its next key
            line += 1
    else:
        key, line = spelt(spot.path), spot.parent_line
    yield _bad("required key removed", spot, f"without {spot.name}", files, text, line, key)


def keys_doubled(spot: Spot, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """A key that is there twice: YAML would keep the last."""
    if spot.key is spot.value:
        return
    text, start, key = files[spot.file], spot.key.start_mark.index, str(spot.path[-1])
    indent = " " * spot.key.start_mark.column
    more = f"{key}: 0, " if spot.flow else f"{key}: 0\n{indent}"
    text = text[:start] + more + text[start:]
    line = spot.line if spot.flow else spot.line + 1
    yield _bad("key there twice", spot, f"{spelt(spot.path)} twice", files, text, line, key)


def templates_wrong(spot: Spot, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """A template that cannot be evaluated."""
    if not isinstance(spot.value, yaml.ScalarNode):
        return
    for new in ('"{{ nothing }}"', '"{{ broken"', '"{{ 1 / 0 }}"', '"{{ 1 | nofilter }}"'):
        text, key = put(files[spot.file], spot.value, new), str(spot.path[0])
        yield _bad("template", spot, f"{spelt(spot.path)}: {new}", files, text, spot.wish_line, key)


OF_A_SPOT = (keys_misspelt, values_wrong, keys_removed, keys_doubled, templates_wrong)


def bad_sites(seed: int) -> list[BadSite]:
    """Return distinct bad sites, each with its one mistake, in an order that the seed gives."""
    from tests.properties.mutated_facts import OF_THE_CATALOGUE, SOUND
    from tests.properties.mutated_groups import OF_A_SITE

    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    found: list[BadSite] = []
    for base, files in bases().items():
        for spot in spots(base, files):
            for mutation in OF_A_SPOT:
                found += mutation(spot, files, chance)
        for of_site in (*OF_A_SITE, *(OF_THE_CATALOGUE if base in SOUND else ())):
            found += of_site(base, files, chance)
    distinct = {tuple(sorted(site.files.items())): site for site in found}
    sites = list(distinct.values())
    chance.shuffle(sites)
    return sites
