"""The image of the Containerfile, built here: its programs run, and a wrong file ends the build.

A folder stands in for the servers of Pulumi and Kubernetes, with what was built from their released
modules; the base is that of bare hosts. Python's packages and Debian's are the real ones.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.common.versions import number
from tests.install import environments
from tests.substrate.hosts import image
from tests.substrate.hosts.containers import Machine
from tests.substrate.pulumi import built

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TAG = "localhost/bedplate-of-test"
#: What a build needs to reach package indexes as this machine does.
REACH = ("/etc/pip.conf", "/etc/apt/apt.conf.d", "/etc/ssl/certs")
NUMBER = re.compile(r"\d+\.\d+|sha256:[0-9a-f]")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this machine."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def digest(path: Path) -> str:
    """Return a file's SHA-256, as its maker's checksum file has it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def published(folder: Path) -> Path:
    """Put the programs where their makers publish them; return kubectl's checksum file."""
    programs, kubernetes = built("pulumi"), built("kubernetes")
    assert programs, "pulumi is not built: tests/substrate/tools/build.py"
    assert kubernetes, "kubernetes is not built: tests/substrate/tools/build.py"
    named = version("pulumi")
    archive = folder / f"pulumi-v{named}-linux-x64.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(programs / "pulumi", "pulumi/pulumi")
    line = f"{digest(archive)}  {archive.name}\n"
    (folder / f"pulumi-{named}-checksums.txt").write_text(f"{'0' * 64}  another\n{line}")
    newest = max(load_catalogue().kubernetes, key=number)
    place = folder / f"v{newest}/bin/linux/amd64"
    place.mkdir(parents=True)
    (place / "kubectl").symlink_to(kubernetes / "kubectl")
    return place / "kubectl.sha256"


def build(context: Path, address: str) -> subprocess.CompletedProcess[str]:
    """Run `buildah build` as this machine can: it cannot set up containers' own networks."""
    there = [f"--volume={path}:{path}:ro" for path in REACH if Path(path).exists()]
    command = ["buildah", "build", "--no-cache", "--force-rm", "--isolation=chroot"]
    command += [
        "--network=host",
        *there,
        "--tag",
        TAG,
        f"--build-arg=BASE={image.ensure('debian-13')}",
    ]
    command += [f"--build-arg={name}={address}" for name in ("PULUMI", "KUBERNETES")]
    return subprocess.run(
        [*command, "."], cwd=context, capture_output=True, text=True, check=False, timeout=1200
    )


def ran(site: Path, *command: str) -> str:
    """Run a program in the image, without a network, in a site's folder; return what it printed."""
    machine = Machine.here()
    limits = [f"--ulimit=nofile={machine.nofile}", f"--ulimit=nproc={machine.nproc}"]
    start = ["podman", "run", "--rm", "--network=none", *limits, f"--volume={site}:/site", TAG]
    done = subprocess.run([*start, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_version_stands_in_the_containerfile() -> None:
    """They are in the lock of Python's packages and in the catalogue, each once."""
    text = (ROOT / "Containerfile").read_text()
    assert NUMBER.findall(text) == []
    assert f"pulumi=={version('pulumi')}" in (ROOT / "requirements.lock").read_text()


@pytest.mark.prove
def test_all_tools_run(tmp_path: Path) -> None:
    context, vendors = tmp_path / "context", tmp_path / "vendors"
    vendors.mkdir()
    (context / "dist").mkdir(parents=True)
    for name in ("Containerfile", ".containerignore", "requirements.lock"):
        shutil.copy(ROOT / name, context)
    environments.wheel(context / "dist")
    checksum = published(vendors)
    with served(vendors) as address:
        checksum.write_text("0" * 64)
        refused = build(context, address)
        assert refused.returncode != 0
        printed = refused.stdout + refused.stderr
        assert "/usr/local/bin/kubectl: FAILED" in printed, printed[-4000:]
        checksum.write_text(digest(checksum.with_suffix("")))
        done = build(context, address)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    try:
        site = tmp_path / "site"
        site.mkdir()
        assert f"bedplate {version('bedplate')}," in ran(site, "bedplate", "--version")
        assert "ansible-playbook [core " in ran(site, "ansible-playbook", "--version")
        assert version("pulumi") in ran(site, "pulumi", "version")
        assert "v" + max(load_catalogue().kubernetes, key=number) in ran(
            site, "kubectl", "version", "--client"
        )
        for program in ("git", "gpgv", "ssh"):
            ran(site, "which", program)
        ran(site, "bedplate", "init", "lab", "--one-machine", "192.0.2.5", "--gpu", "l40s:4")
        planned = ran(site, "bedplate", "plan", "lab/inventory")
        assert "Wrote lab/inventory/.bedplate.lock.yml" in planned
        play = ("ansible-playbook", "-i", "lab/inventory", "bedplate.gpu.site", "--syntax-check")
        assert "/gpu/playbooks/site.yml" in ran(site, *play)
    finally:
        subprocess.run(["buildah", "rmi", TAG], capture_output=True, check=False)
