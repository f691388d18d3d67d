"""Mistakes that are no single wish's: hosts, groups, files, and what stands in the wrong place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

from tests.properties.mutations import BadSite, with_text, with_wish

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

HOSTS = "hosts.yml"
POOL = re.compile(r"^ +(pool_\w+):", re.MULTILINE)
#: Wishes that all hosts share, each with another value than the sites have.
SHARED = {
    "bedplate_kubernetes": '{version: "1.35", endpoint: other.example:6443}',
    "bedplate_container_runtime": "{name: cri-o}",
    "bedplate_sources": "{mode: mirror, url: http://other.example}",
    "bedplate_schedulers": "[volcano]",
    "bedplate_operators": "[nfd]",
}


def line_of(text: str, needle: str) -> int:
    """Return the line, from 1, of the first occurrence."""
    return text[: text.index(needle)].count("\n") + 1


def pools_of(files: Mapping[str, str]) -> list[str]:
    """Return the names of the site's pools."""
    return POOL.findall(files[HOSTS])


def shared_in_a_pool(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """What all hosts share, set for one pool."""
    for pool in pools_of(files):
        file = f"group_vars/{pool}.yml"
        before = files[file]
        for key, value in SHARED.items():
            text = f"{before}{key}: {value}\n"
            line = before.count("\n") + 1
            said = f"{key} in {file}"
            yield BadSite(
                "shared wish of a pool", base, said, with_text(files, file, text), file, line, key
            )


def different_in_a_pool(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """A host that wishes something else than its pool."""
    wishes = {
        "bedplate_cuda": '["11.8"]',
        "bedplate_driver": '{branch: "570"}',
        "bedplate_frameworks": "[jax]",
        "bedplate_gpu": "{model: a100-sxm4-80gb, count: 2}",
        "bedplate_sharing": "{mode: time-slicing, replicas: 3}",
    }
    if base != "wide":
        return  # only there has a pool two hosts with names of their own
    for key, value in wishes.items():
        file = "host_vars/train2.yml"
        content = with_text(files, file, f"{key}: {value}\n")
        yield BadSite("hosts of a pool differ", base, f"{key} in {file}", content, file, 1, key)


def of_nobody(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """Wishes in files that are named for no group or host."""
    names = [f"group_vars/{name}" for name in ("pool_trian.yml", "gpus.yml", "gpu_pool/a.yml")]
    for file in [*names, "host_vars/nobody.yml", "host_vars/gpu-z.yaml", "group_vars/cp/x.yml"]:
        for key, value in (("bedplate_cuda", '["12.2"]'), ("bedplate_driver", "{policy: lts}")):
            text = f"---\nother: 1\n{key}: {value}\n"
            content = with_text(files, file, text)
            yield BadSite("wishes of nobody", base, f"{key} in {file}", content, file, 3, key)


def groups_misplaced(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """Pools that are below nothing, empty, or in two places; groups that are misspelt."""
    text = files[HOSTS]
    lines = text.count("\n")

    def bad(kind: str, said: str, new: str, line: int | None, key: str) -> BadSite:
        return BadSite(kind, base, said, with_text(files, HOSTS, new), HOSTS, line, key)

    for name in ("pool_x", "pool_lonely"):
        new = f"{text}    {name}: {{hosts: {{x1: {{}}}}}}\n"
        yield bad("pool in no group", f"{name} below all", new, lines + 1, name)
        new = re.sub(r"( +)(gpu_pools:\n +children:.*\n)", rf"\1\2\1    {name}: {{}}\n", text)
        yield bad("empty pool", f"{name} without hosts", new, line_of(new, f"{name}:"), name)
        new = re.sub(
            r"( +)(gpu_pools:\n +children:.*\n)", rf"\1\2\1    {name}: {{hosts: {{}}}}\n", text
        )
        yield bad("empty pool", f"{name} with no hosts", new, line_of(new, f"{name}:"), name)
    for pool in pools_of(files):
        for parent in ("hypervisors", "slurm", "gpu_pools"):
            # A second parent, by a second mention in a file of its own.
            file = "more.yml"
            content = with_text(files, file, f"{parent}: {{children: {{{pool}: {{}}}}}}\n")
            inside = _parent_of(text, pool)
            if inside != parent:
                said = f"{pool} below {inside} and {parent}"
                yield BadSite(
                    "pool in two groups",
                    base,
                    said,
                    content,
                    HOSTS,
                    line_of(text, f"{pool}:"),
                    pool,
                )
    for group in ("control_plane", "gpu_pools"):
        for wrong in (group[:-1], f"{group}s", group.replace("_", "", 1)):
            new = text.replace(f"{group}:", f"{wrong}:", 1)
            yield bad(
                "misspelt group", f"{group} as {wrong}", new, line_of(new, f"{wrong}:"), wrong
            )
    for word, wrong in (("children", "childern"), ("children", "child"), ("hosts", "host")):
        at = re.search(rf"(\w+):(?: \{{|\n +){word}:", text)
        assert at is not None
        new = text[: at.end() - len(word) - 1] + wrong + text[at.end() - 1 :]
        key = f"{at.group(1)}.{wrong}"
        line = text[: at.end()].count("\n") + 1
        yield bad("misspelt section", f"{word} as {wrong}", new, line, key)
    yield bad(
        "hosts as a list",
        "hosts as a list",
        f"{text}    more:\n      hosts: [a, b]\n",
        lines + 2,
        "more.hosts",
    )
    yield bad(
        "children as a list",
        "children as a list",
        f"{text}    more:\n      children:\n        - a\n",
        lines + 2,
        "more.children",
    )
    yield bad("group of text", "a group is a text", f"{text}    more: text\n", lines + 1, "more")
    new = f"{text}    a: {{children: {{b: {{}}}}}}\n    b: {{children: {{a: {{}}}}}}\n"
    yield bad("groups in a circle", "a in b in a", new, lines + 2, "a")
    new = f"{text}    a:\n      children:\n        a: {{}}\n"
    yield bad("groups in a circle", "a in a", new, lines + 3, "a")
    for empty in ("", "all: {}\n", "all:\n  hosts: {}\n", "all: {children: {gpu_pools: {}}}\n"):
        content = with_text(files, HOSTS, empty)
        kind = "empty inventory"
        yield BadSite(kind, base, repr(empty), content, "", None, None)


def _parent_of(text: str, pool: str) -> str:
    before = text[: text.index(f"{pool}:")]
    return re.findall(r"^    (\w+):", before, re.MULTILINE)[-1]


def hosts_misplaced(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """Hosts in two pools or worlds, with the same address, with a port that is none."""
    text = files[HOSTS]
    hosts = re.findall(r"^ +([\w-]+): \{ansible_host: ([\d.]+)", text, re.MULTILINE)
    pools = pools_of(files)

    def bad(kind: str, said: str, new: str, line: int, key: str) -> BadSite:
        return BadSite(kind, base, said, with_text(files, HOSTS, new), HOSTS, line, key)

    more = "more.yml"
    for name, address in hosts:
        line = line_of(text, f"{name}: {{ansible_host")
        before = text[: text.index(f"{name}: {{")]
        pool = next((p for p in POOL.findall(before)[::-1]), None)
        group = re.findall(r"^    (\w+):", before, re.MULTILINE)[-1]
        for other in pools:
            if pool and group != "control_plane" and other != pool:
                content = with_text(files, more, f"{other}: {{hosts: {{{name}: {{}}}}}}\n")
                said = f"{name} in {pool} and {other}"
                yield BadSite("host in two pools", base, said, content, HOSTS, line, name)
        worlds = {"slurm", "hypervisors"} if group in {"control_plane", "gpu_pools"} else set()
        for world in sorted(worlds):
            content = with_text(files, more, f"{world}: {{hosts: {{{name}: {{}}}}}}\n")
            said = f"{name} in {group} and {world}"
            yield BadSite("host in two worlds", base, said, content, HOSTS, line, name)
        for port in ("0", "65536", "ssh", "-22", "2.5", "[22]"):
            new = text.replace(address + ",", address).replace(
                f"ansible_host: {address}", f"ansible_host: {address}, ansible_port: {port}", 1
            )
            new = re.sub(r"(ansible_port: \S+) ansible_port: \d+,", r"\1,", new)
            if new.splitlines()[line - 1].count("ansible_port") == 1:
                said = f"{name}: port {port}"
                yield bad("port", said, new, line, "ansible_port")
        for twin, its in hosts:
            if twin > name:
                for form in (address, f'"{address}"'):
                    new = text.replace(
                        f"{twin}: {{ansible_host: {its}", f"{twin}: {{ansible_host: {form}"
                    )
                    if "ansible_port: 2222" in new.splitlines()[line_of(new, f"{twin}: {{") - 1]:
                        continue
                    if "ansible_port: 2222" in new.splitlines()[line - 1]:
                        continue
                    at = line_of(new, f"{twin}: {{ansible_host")
                    said = f"{twin} at {form} of {name}"
                    yield bad("same address", said, new, at, "ansible_host")


def kinds_misplaced(base: str, files: Mapping[str, str], _: random.Random) -> Iterator[BadSite]:
    """Hypervisors among the nodes, and nodes among the hypervisors."""
    for pool in pools_of(files):
        file = f"group_vars/{pool}.yml"
        kind = "bare-metal" if pool == "pool_virtual" else "hypervisor"
        text = with_wish(files[file], "bedplate_host", f"{{os: debian-12, kind: {kind}}}")
        line = text.count("\n")
        content = with_text(files, file, text)
        key = "bedplate_host.kind"
        yield BadSite("kind", base, f"{kind} in {pool}", content, file, line, key)


def bytes_wrong(base: str, files: Mapping[str, str], chance: random.Random) -> Iterator[BadSite]:
    """Files that are no text, no YAML, or too much of it."""
    for file, text in files.items():
        lines = text.splitlines(keepends=True)
        at = chance.randrange(len(lines))
        head, tail = "".join(lines[:at]).encode(), "".join(lines[at:]).encode()
        end = len(lines) + 1
        deep = b"x: " + b"[" * 200 + b"]" * 200 + b"\n"
        bomb = b"x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n" + b"".join(
            b"x%d: &x%d [%s]\n" % (n, n, b", ".join([b"*x%d" % (n - 1)] * 10)) for n in range(1, 8)
        )
        whole = text.encode()
        for kind, content, line in (
            ("Latin-1", head + b"# caf\xe9\n" + tail, at + 1),
            ("UTF-16", text.encode("utf-16"), 1),
            ("binary", head + b"\x00\x01\x02" + tail, None),
            ("object file", b"\x7fELF\x02\x01\x01\x00" + bytes(64), None),
            ("compressed", b"\x1f\x8b\x08\x00\xff\xff" + bytes(range(128, 256)), 1),
            ("conflict marker", head + b"<<<<<<< HEAD\n" + tail, at + 1),
            ("open bracket", whole + b"x: [b\n", None),
            ("open quote", whole + b'x: "b\n', None),
            ("tab", whole + b"x:\n\ty: 1\n", end + 1),
            ("list", b"- a\n- b\n", 1),
            ("text", b"just text\n", 1),
            ("two documents", whole + b"---\nx: 1\n", end),
            ("unknown tag", whole + b"x: !python/object:os.system {}\n", end),
            ("unknown alias", whole + b"x: *nothing\n", end),
            ("too deep", whole + deep, end),
            ("alias bomb", whole + bomb, None),
            ("alias in itself", whole + b"x: &x {y: *x}\n", end),
            ("too large", whole + b"#" * (10 * 1024 * 1024), None),
        ):
            if kind == "two documents" and yaml.safe_load(text) is None:
                continue  # comments alone are no document: what comes after them is the only one
            site = {name: body.encode() for name, body in files.items()} | {file: content}
            yield BadSite(kind, base, f"{file}: {kind}", site, file, line, None)


OF_A_SITE = (
    shared_in_a_pool,
    different_in_a_pool,
    of_nobody,
    groups_misplaced,
    hosts_misplaced,
    kinds_misplaced,
    bytes_wrong,
)
