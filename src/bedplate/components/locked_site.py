"""A site's lock with its artifacts, refused when stale: what plays read."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.common import reading, writing
from bedplate.common.errors import LockError, Problem
from bedplate.common.lock_place import BILL, PACKAGES, lock_path
from bedplate.common.walking import files_of

if TYPE_CHECKING:
    from bedplate.lock import Lock

CACHE = "locked-site.json"
#: What of this package an answer depends on: code, rules and facts.
OF_THE_PACKAGE = (".py", ".lp", ".yml")
#: The configuration of an inventory plugin, and values that a template fetches.
ELSEWHERE = re.compile(rb"""^\s*["']?plugin["']?\s*:|\b(lookup|query|q)\s*\(""", re.MULTILINE)
#: Settings of Ansible by which hosts are reached, in the environment.
OF_ANSIBLE = (
    "ANSIBLE_BECOME",
    "ANSIBLE_PRIVATE_KEY",
    "ANSIBLE_REMOTE",
    "ANSIBLE_SSH",
    "ANSIBLE_TRANSPORT",
)


def locked_site(site: Path) -> dict[str, Any]:
    """Return the lock of *site* with `artifacts`, `images`, `packages` and `gpu_memory_gib`.

    Raises LockError if it or the bill is missing or out of date, or no packages are in its mirror.

    Plays ask for it in every task of every host, each in a process of its own: what was checked
    once is kept below the site under a digest of the files that it came from. That is read without
    importing what checks it, which costs fifty times as much as the reading. A site whose inventory
    comes from elsewhere is asked anew by each run: its files do not tell.
    """
    fingerprint, dynamic = _looked_at(site)
    if dynamic:
        run = _run()
        if not run:
            return _checked(site)
        fingerprint += f" {run}"
    cache = site / ".bedplate" / CACHE
    try:
        kept = json.loads(reading.content(cache))
        if kept["of"] == fingerprint:
            return dict(kept["lock"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # not there, or not ours: it is made anew below
    found = _checked(site)
    _keep(cache, {"of": fingerprint, "lock": found})
    return found


def _run() -> str:
    """Name the run that asks, by its program: Ansible's workers are processes that it began.

    Its number comes again, so the boot and the time since then belong to the name. Empty where the
    system does not say them.
    """
    begun_by = multiprocessing.parent_process()
    pid = os.getpid() if begun_by is None else begun_by.pid
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # After the program's name, which may hold anything: proc_pid_stat(5).
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return f"{boot} {pid} {int(fields[19])}"
    except (OSError, ValueError, IndexError):
        return ""


def _looked_at(site: Path) -> tuple[str, bool]:
    """Digest all that the answer depends on, and say whether it may depend on more.

    What users write counts by its content: a file may be changed and keep size and time. Of the
    package's many files no content is read.
    """
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    # By names alone: paths of pathlib would take five times as long, in each task of each host.
    for folder, below, names in os.walk(package):
        below.sort()
        for name in sorted(names):
            if name.endswith(OF_THE_PACKAGE):
                status = os.stat(f"{folder}/{name}")  # noqa: PTH116
                times = f"{status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
                digest.update(f"{folder}/{name} {times} {status.st_size}\n".encode())
    for path in (lock_path(site), site / BILL, site / PACKAGES, *_configurations()):
        _add(digest, path)
    dynamic = False
    for path in files_of(site, lambda name: name.startswith(".")):
        content = _add(digest, path)
        if content is None:
            dynamic = True  # whatever it is, it is not known
        elif path.stat().st_mode & 0o111 or ELSEWHERE.search(content):
            dynamic = True
    named = {name: value for name, value in os.environ.items() if name.startswith(OF_ANSIBLE)}
    digest.update(json.dumps(named, sort_keys=True).encode())
    return digest.hexdigest(), dynamic


def _add(digest: Any, path: Path) -> bytes | None:
    """Add a file to a digest and return its content; None where it is no file that can be read."""
    try:
        content = reading.content(path)
    except OSError as error:  # reading the site says what is wrong
        digest.update(f"{path} {error.errno}\n".encode())
        return None
    digest.update(f"{path} {len(content)}\n".encode() + content)
    return content


def _configurations() -> list[Path]:
    """Return where Ansible looks for its configuration, which says how hosts are reached too."""
    named = os.environ.get("ANSIBLE_CONFIG")
    here = [Path("ansible.cfg").absolute(), Path.home() / ".ansible.cfg"]
    return [*([Path(named)] if named else here), Path("/etc/ansible/ansible.cfg")]


def _keep(cache: Path, content: dict[str, Any]) -> None:
    with suppress(OSError):  # a site that may only be read is checked each time
        cache.parent.mkdir(mode=0o755, exist_ok=True)
        writing.replace(cache, json.dumps(content).encode(), mode=0o600, durable=False)


def _checked(site: Path) -> dict[str, Any]:
    from bedplate.lock import content_of
    from bedplate.resolver.installable import described
    from bedplate.resolver.plan import checked_lock

    lock = checked_lock(site)
    content = content_of(lock)
    shared = [content.get("cluster", {}), content.get("containers", {})]
    for part in (content, *shared, *content["pools"].values()):
        if "not_yet" in part:  # plays show it to people
            part["not_yet"] = [described(one) for one in part["not_yet"]]
    added = {"packages": packages(site, lock), "gpu_memory_gib": _memory(site, content)}
    return content | artifacts(site, lock) | added


def _memory(site: Path, lock: dict[str, Any]) -> dict[str, int]:
    """Return how much memory each of the site's GPU models has, where the catalogue knows."""
    from bedplate.catalogue import catalogue_of

    models = catalogue_of(site).gpu_models
    used = {gpu["model"] for pool in lock["pools"].values() for gpu in pool["gpu"]}
    known = {name: models[name].value.memory_gib for name in sorted(used & set(models))}
    return {name: size for name, size in known.items() if size is not None}


def artifacts(site: Path, lock: Lock) -> dict[str, Any]:
    """Return where each file of the lock comes from, and the digests of its images.

    `artifacts` has `version`, `url` (at the mirror, where the site has one), `sha256` and `size` in
    bytes by name; `images` has digests by name, apart for the hosts that pull them before they
    join. Raises LockError without a bill, or with one that is out of date.
    """
    if lock.cluster is None and lock.containers is None:
        return {"artifacts": {}, "images": {}}  # no other host gets a file or an image
    from bedplate.bill import Places, checked_bill, needs_of
    from bedplate.catalogue import catalogue_of

    catalogue = catalogue_of(site)
    bill = checked_bill(site, lock, catalogue)
    places = Places.of(lock.sources, catalogue)
    asked = needs_of(lock, catalogue).images
    images: dict[str, dict[str, str]] = {"control_plane": {}, "node": {}, "gpu": {}, "nobody": {}}
    for name, image in bill.images.items():
        hosts = asked[name].hosts if name in asked else "node"
        images[hosts.replace("-", "_")][name] = image.digest
    return {
        "artifacts": {
            name: {
                "version": file.version,
                "url": places.file(file.url),
                "sha256": file.sha256,
                "size": file.size,
            }
            for name, file in bill.files.items()
        },
        "images": images,
    }


def packages(site: Path, lock: Lock) -> dict[str, Any]:
    """Return where hosts take packages from: nothing where that is sources of their own.

    `url` is the address below which each of `systems` has a repository, and `key` what signs it.
    Raises LockError where the site's packages are not in its mirror.
    """
    if not lock.sources.mirrors_packages:
        return {}
    from bedplate.bill import Places, place
    from bedplate.catalogue import catalogue_of

    known = place.load(site)
    have = known.systems if known else []
    lacking = sorted({pool.os for pool in lock.pools.values()} - set(have))
    if known is None or lacking:
        problem = Problem(
            "packages of the site are not in its mirror",
            str(place.path_of(site)),
            got="no file" if known is None else f"nothing for {', '.join(lacking)}",
            allowed="packages for each system of the site",
            fix=f"run: bedplate mirror packages {site}; where hosts have sources of their own, set "
            "bedplate_sources.packages: hosts",
            rule="packages",
        )
        raise LockError([problem])
    url = Places.of(lock.sources, catalogue_of(site)).file(f"https://{known.address}")
    return {"url": url, "systems": known.systems, "key": known.key}
