"""Images of bare hosts, built from Debian packages and kept by the digest of their recipe.

Two steps with different rates of change: the distribution's own packages (a tar file in the cache,
about half a minute) and what makes a container out of it a host with simulated hardware (seconds).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.substrate import gpu
from tests.substrate.hosts import apt_sources
from tests.substrate.hosts.description import RECIPES
from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.hosts.shell import run, step, succeeds

FILES = Path(__file__).parent / "files"
GPU = Path(__file__).parents[1] / "gpu"
MACHINE_CERTIFICATES = Path("/usr/local/share/ca-certificates")
NAME = "localhost/bedplate-host"
FREE_BYTES = 3 << 30


@dataclass(frozen=True)
class Recipe:
    """One operating system as data; the fields are the recipe file's.

    ``os_release`` makes a stand-in of another system, which says so in its name. ``base`` is the
    recipe whose packages and units it takes, where it has none of its own.
    """

    os: str
    release: str
    components: list[str]
    packages: list[str]
    mask: list[str]
    cgroup_v1_environment: dict[str, str]
    os_release: str = ""
    base: str = ""


def recipe(system: str) -> Recipe:
    """Read the recipe of an operating system that `description.known_systems` lists."""
    fields = yaml.safe_load((RECIPES / f"{system}.yml").read_text())
    if "base" in fields:
        fields = yaml.safe_load((RECIPES / f"{fields['base']}.yml").read_text()) | fields
    return Recipe(os=system, **fields)


def cache() -> Path:
    """Return the directory outside the tree that keeps what is costly to build."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bedplate"
    return Path(os.environ.get("BEDPLATE_CACHE") or default)


def name(system: str) -> str:
    """Return the name of the image that an operating system's hosts are made from."""
    wanted = recipe(system)
    return _name(wanted, _sources(wanted))


def ensure(system: str) -> str:
    """Return the name of an operating system's image, building what is not there yet."""
    wanted = recipe(system)
    sources = _sources(wanted)
    image = _name(wanted, sources)
    if not succeeds(["podman", "image", "exists", image]):
        base = _base(wanted, sources)
        with step(f"image {image}: host files and simulated hardware"):
            _layer(base, image, wanted)
        _drop_older(wanted.os, base, image)
    return image


def base(system: str) -> Path:
    """Return the tar file of a system's packages alone, building it where it is absent."""
    return base_of(recipe(system))


def base_of(wanted: Recipe) -> Path:
    """Return the tar file of a recipe's packages, building it where it is absent."""
    return _base(wanted, _sources(wanted))


def _sources(wanted: Recipe) -> str:
    files = [(path.name, path.read_text()) for path in apt_sources.machine_files()]
    codename = apt_sources.machine_codename()
    return apt_sources.derive(files, codename, wanted.release, wanted.components)


def _base_digest(wanted: Recipe, sources: str) -> str:
    return _digest(wanted.release, *wanted.packages, sources)


def _name(wanted: Recipe, sources: str) -> str:
    trees = [line for folder in (FILES, GPU, MACHINE_CERTIFICATES) for line in _tree(folder)]
    digest = _digest(
        _base_digest(wanted, sources), *wanted.mask, *filter(None, [wanted.os_release]), *trees
    )
    return f"{NAME}:{wanted.os}-{digest[:12]}"


def _drop_older(system: str, base: Path, image: str) -> None:
    """Remove what this build replaces, so that the disk used does not grow with every change."""
    for tar in base.parent.glob(f"{system}-*.tar"):
        if tar != base:
            tar.unlink()
    listed = run(["podman", "images", "--format", "{{.Repository}}:{{.Tag}}", NAME])
    for other in listed.split():
        if other.startswith(f"{NAME}:{system}-") and other != image:
            # Podman keeps an image that a host of another substrate runs on: its next turn comes.
            succeeds(["podman", "image", "rm", other])


def _base(wanted: Recipe, sources: str) -> Path:
    folder = cache() / "hosts"
    base = folder / f"{wanted.base or wanted.os}-{_base_digest(wanted, sources)[:12]}.tar"
    if base.exists():
        return base
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        raise SubstrateError(
            "too little room to build a host image",
            str(folder),
            f"{free >> 20} MiB free",
            f"{FREE_BYTES >> 20} MiB",
            "free disk space, or name another directory in BEDPLATE_CACHE",
        )
    with (
        step(f"base of {wanted.os}: {len(wanted.packages)} packages and what they need"),
        tempfile.TemporaryDirectory(dir=folder, prefix=".base-") as work,
    ):
        source_file = Path(work, "debian.sources")
        source_file.write_text(sources)
        made = Path(work, "base.tar")
        run(
            [
                "mmdebstrap",
                "--mode=root",
                "--variant=minbase",
                f"--include={','.join(wanted.packages)}",
                wanted.release,
                str(made),
                str(source_file),
            ],
            fix="check that this machine's own 'apt-get update' works",
        )
        made.rename(base)
    return base


def _layer(base: Path, image: str, wanted: Recipe) -> None:
    with tempfile.TemporaryDirectory(dir=base.parent, prefix=".layer-") as work:
        root = Path(work)
        run(["tar", "--extract", "--file", str(base), "--directory", work, "--numeric-owner"])
        shutil.copytree(FILES, root, dirs_exist_ok=True, symlinks=True)
        _unique_per_host(root)
        if wanted.os_release:
            (root / "etc/os-release").unlink(missing_ok=True)
            (root / "etc/os-release").write_text(wanted.os_release)
        units = root / "etc/systemd/system"
        for unit in wanted.mask:
            (units / unit).symlink_to("/dev/null")
        wants = units / "ssh.service.requires"
        wants.mkdir()
        (wants / "ssh-host-keys.service").symlink_to("../ssh-host-keys.service")
        _carry_certificates(root)
        gpu.install(root)
        packed = subprocess.Popen(
            ["tar", "--create", "--directory", work, "--numeric-owner", "--xattrs", "."],
            stdout=subprocess.PIPE,
        )
        imported = subprocess.run(
            ["podman", "import", "--quiet", "-", image],
            stdin=packed.stdout,
            capture_output=True,
            check=False,
        )
        if packed.wait() or imported.returncode:
            raise SubstrateError(
                "podman can't import the host image",
                image,
                imported.stderr.decode().strip(),
                "an image",
                "check the free space of podman's storage (podman info)",
            )


def _unique_per_host(root: Path) -> None:
    """Remove what two machines must never share; the first boot makes it anew."""
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")
    (root / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    # Podman would mount its own over these: hosts have theirs.
    (root / "etc/hostname").unlink(missing_ok=True)


def _carry_certificates(root: Path) -> None:
    """Let the hosts trust what this machine's administrator made it trust (TLS gateways)."""
    certificates = sorted(MACHINE_CERTIFICATES.rglob("*.crt"))
    if not certificates:
        return
    target = root / MACHINE_CERTIFICATES.relative_to("/")
    for certificate in certificates:
        shutil.copy(certificate, target / certificate.name)
    run(["chroot", str(root), "update-ca-certificates"])


def _tree(folder: Path) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        f"{path.relative_to(folder)} {path.stat().st_mode & 0o111} {_digest_file(path)}"
        for path in files
        if "__pycache__" not in path.parts
    ]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
