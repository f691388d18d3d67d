"""This machine: its programs and their versions, Python, the collection, Pulumi's provider."""

from __future__ import annotations

import json
import os
import platform
import select
import shlex
import shutil
import subprocess
import sys
from functools import partial
from importlib.metadata import metadata, version
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from packaging.specifiers import SpecifierSet

from bedplate.bill import signatures
from bedplate.catalogue import catalogue_of, load_catalogue
from bedplate.cli.doctor.finding import ANSIBLE, PULUMI, Finding, each
from bedplate.common import programs, reading, shipped
from bedplate.common.errors import CatalogueError
from bedplate.common.versions import number
from bedplate.planning.starting.environment import made
from bedplate.portable import os_release
from bedplate.portable.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PACKAGE, COLLECTION, PLUGIN = "bedplate", "bedplate.gpu", "pulumi-resource-bedplate"
#: How long a program may take, in seconds: it is ended before the questions are.
SECONDS = 30.0
INSTALL = {"Debian": "apt-get install", "RedHat": "dnf install"}
OPENSSH = {"Debian": "openssh-client", "RedHat": "openssh-clients"}
OPENSSL = dict.fromkeys(INSTALL, "openssl")
PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - a name


def findings(
    site: Path | None, *, cluster: bool, gpgv: bool, kubernetes: str | None
) -> list[Finding]:
    """Check what a site needs, many things at once.

    Args:
        site: whose facts say where kubectl comes from; None for the catalogue's own.
        cluster: whether Pulumi makes a cluster of its hosts.
        gpgv: whether `bedplate mirror` verifies signatures for it.
        kubernetes: the release whose kubectl is proposed; None for the newest.
    """
    checks: dict[str, Callable[[str], Finding]] = {
        "Python": _python,
        "ssh": partial(_program, ANSIBLE, lambda: _install(OPENSSH)),
        "ansible-playbook": partial(_program, "bedplate.gpu.site", _environment),
        f"collection {COLLECTION}": _collection,
    }
    if gpgv:
        needed_by, fix = "bedplate mirror", lambda: _install(signatures.PACKAGES)
        checks[signatures.GPGV] = partial(_program, needed_by, fix)
    if cluster:
        kubectl = partial(_kubectl, site, kubernetes)
        checks |= {
            "pulumi": _pulumi,
            "python3 of pulumi": _python_of_pulumi,
            PLUGIN: _provider,
            "kubectl": partial(_program, "you, to use the cluster", kubectl),
            "openssl": partial(_program, "bedplate.gpu.restore", lambda: _install(OPENSSL)),
        }
    answers = each(checks, lambda check: checks[check](check))
    late = "no end in time"
    return [answers.get(check) or Finding(check, "not checked", late) for check in checks]


def _program(needed_by: str, fix: Callable[[], str], name: str) -> Finding:
    if path := shutil.which(name):
        return Finding(name, "OK", path, needed_by)
    return Finding(name, "LACKING", f"no {name} on PATH", needed_by, fix())


def _sudo() -> str:
    return "" if os.geteuid() == 0 else "sudo "


def _install(packages: Mapping[str, str]) -> str:
    """Return the command that installs a package here, or what it is called where."""
    if (family := os_release.family(Host())) in packages:
        return f"{_sudo()}{INSTALL[family]} {packages[family]}"
    return f"install the package {signatures.called(packages)}"


def _environment() -> str:
    """Return the command that puts the programs of this environment on PATH."""
    activate = made().activate
    return f". {activate}" if activate else f'export PATH="{Path(sys.executable).parent}:$PATH"'


def _kubectl(site: Path | None, wanted: str | None) -> str:
    """Return the command that fetches kubectl, from where nodes have their Kubernetes."""
    target = "/usr/local/bin/kubectl"
    try:
        catalogue = catalogue_of(site) if site else load_catalogue()
    except CatalogueError:  # which the row of the inventory tells
        catalogue = load_catalogue()
    wanted = wanted or max(catalogue.kubernetes, key=number)
    files = (one.value for one in catalogue.artifacts.values())
    url = next(str(one.url) for one in files if one.component == "kubernetes")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    address = f"{url.rpartition('/')[0].format(version=wanted)}/bin/linux/{machine}/kubectl"
    return f"{_sudo()}curl -fLo {target} {address} && {_sudo()}chmod 0755 {target}"


def _python(check: str) -> Finding:
    got, allowed = platform.python_version(), metadata(PACKAGE)["Requires-Python"]
    if SpecifierSet(allowed).contains(got, prereleases=True):
        return Finding(check, "OK", got, PACKAGE)
    fix = f"uv venv --seed --python '{allowed}' ~/bedplate  # and install bedplate there"
    return Finding(check, "LACKING", f"{got}; {allowed} is needed", PACKAGE, fix)


def _pulumi(check: str) -> Finding:
    """Compare with what the projects require; what is proposed is their package's own version."""
    texts = [path.read_text("utf-8") for path in shipped.stacks().glob("*/Pulumi.yaml")]
    wanted = SpecifierSet(",".join(yaml.safe_load(one)["requiredPulumiVersion"] for one in texts))
    own = {"PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        got = programs.run([check, "version"], SECONDS, own=own).text.strip().removeprefix("v")
        if wanted.contains(got, prereleases=True):
            return Finding(check, "OK", got, PULUMI)
        got = f"{got or 'no version'}; {wanted} is needed"
    except programs.MissingError as error:
        got = f"{error.got} on PATH"
    except programs.ProgramError as error:
        got = error.got
    fix = f"curl -fsSL https://get.pulumi.com | sh -s -- --version {version('pulumi')}"
    return Finding(check, "LACKING", got, PULUMI, fix)


def _same(check: str, got: str, where: str, needed_by: str, fix: str) -> Finding:
    """Compare the version of a part of Bedplate with that of this package."""
    if got == (own := version(PACKAGE)):
        return Finding(check, "OK", f"{got}, {where}", needed_by)
    return Finding(check, "LACKING", f"{got}, {where}; bedplate is {own}", needed_by, fix)


def _collection(check: str) -> Finding:
    words = ["ansible-galaxy", "collection", "list", COLLECTION, "--format", "json"]
    try:
        done = programs.run(words, SECONDS, check=False)
        found = {path: its[COLLECTION]["version"] for path, its in json.loads(done.text).items()}
        if (path := _first([*found])) is None:
            got = f"which one Ansible takes of {', '.join(found)} is not known"
            return Finding(check, "not checked", got, ANSIBLE)
        got = found[path]
    except programs.MissingError as error:
        return Finding(check, "not checked", f"{error.got} on PATH", ANSIBLE)
    except (programs.ProgramError, ValueError, LookupError, AttributeError, TypeError):
        got = f"not where {shutil.which('ansible-galaxy')} looks for collections"
        return Finding(check, "LACKING", got, ANSIBLE, _environment())
    folder = shlex.quote(f"{path}/{COLLECTION.replace('.', '/')}")
    fix = f"rm -r {folder}  # bedplate has its own"
    return _same(check, got, path, ANSIBLE, fix)


def _first(folders: list[str]) -> str | None:
    """Return which of several folders of collections Ansible takes one from.

    `ansible-galaxy collection list` sorts them by their path (ansible-core 2.21.5), and Ansible
    takes the first in the order of its setting; what is beside its own Python comes last.
    None where the setting cannot be had.
    """
    if len(folders) == 1:
        return folders[0]
    words = ["ansible-config", "dump", "--format", "json"]
    try:
        shown = json.loads(programs.run(words, SECONDS).text)
        setting = {one.get("name"): one.get("value") for one in shown}["COLLECTIONS_PATHS"]
    except (programs.ProgramError, ValueError, LookupError, AttributeError, TypeError):
        return None
    order = [Path(path, "ansible_collections").resolve() for path in setting]
    places = {path: Path(path).resolve() for path in folders}
    return min(folders, key=lambda path: [*order, places[path]].index(places[path]))


def _python_of_pulumi(check: str) -> Finding:
    """Ask the Python that Pulumi starts its programs with, which has to have pip too."""
    ask = f"import pip, importlib.metadata as of; print(of.version('{PACKAGE}'))"
    path = str(shutil.which("python3"))
    try:
        done = programs.run(["python3", "-c", ask], SECONDS, own={"PYTHONSAFEPATH": "1"})
    except programs.ProgramError as error:
        ours = Path(path).parent == Path(sys.executable).parent
        fix = f"{path} -m ensurepip" if ours and "'pip'" in error.got else _environment()
        return Finding(check, "LACKING", f"{path}: {error.got}", PULUMI, fix)
    return _same(check, done.text.strip(), path, PULUMI, _environment())


def _provider(check: str) -> Finding:
    """Start the provider from PATH, as the engine does; it prints the port that it listens on."""
    process, got = None, f"no port after {SECONDS:.0f} s"
    try:
        process = subprocess.Popen(
            [check, "127.0.0.1:0"],  # no engine listens there
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if process.stdout and select.select([process.stdout], [], [], SECONDS)[0]:
            got = os.read(process.stdout.fileno(), 16).decode("ascii", "replace").strip()
    except OSError as error:
        got = f"{check}: {error.strerror}"
    finally:
        if process is not None:
            programs.end(process)
    if got.isdecimal():
        return Finding(check, "OK", str(shutil.which(check)), PULUMI)
    return Finding(check, "LACKING", got or "it ends at once", PULUMI, _environment())


def state_of(site: Path | None) -> Iterator[Finding]:
    """Yield whether Pulumi has a place for its state, and a passphrase where it encrypts by one."""
    backend = os.environ.get("PULUMI_BACKEND_URL") or _logged_in()
    if backend:
        yield Finding("Pulumi's state", "OK", backend.rpartition("@")[2], PULUMI)
    else:
        fix = 'mkdir -p state && export PULUMI_BACKEND_URL="file://$PWD/state"'
        yield Finding("Pulumi's state", "LACKING", "no backend is chosen", PULUMI, fix)
    if not _encrypts_by_passphrase(site, backend):
        return
    file, fix = os.environ.get(f"{PASSPHRASE}_FILE"), f"read -rs {PASSPHRASE}; export {PASSPHRASE}"
    if PASSPHRASE in os.environ or (file and os.access(file, os.R_OK)):
        yield Finding("passphrase", "OK", "set", PULUMI)
    else:
        got = f"{file} cannot be read" if file else f"neither {PASSPHRASE} nor {PASSPHRASE}_FILE"
        yield Finding("passphrase", "LACKING", got, PULUMI, fix)


def _logged_in() -> str | None:
    """Return the backend of `pulumi login`; a token alone is for Pulumi Cloud."""
    own = os.environ.get("PULUMI_CREDENTIALS_PATH") or os.environ.get("PULUMI_HOME")
    try:
        path = Path(own or "~/.pulumi").expanduser() / "credentials.json"
        current: str | None = reading.document(path).get("current")
    except (OSError, ValueError, AttributeError, RuntimeError):
        current = None
    return current or ("https://" if "PULUMI_ACCESS_TOKEN" in os.environ else None)


def _encrypts_by_passphrase(site: Path | None, backend: str | None) -> bool:
    """Ask the stacks' files; without one, Pulumi takes a passphrase outside of its own cloud."""
    homes = site.resolve().parents[:2] if site else ()
    files = (path for home in homes for path in home.glob("stacks/*/Pulumi.*.yaml"))
    texts = [path.read_text("utf-8", "replace") for path in files if os.access(path, os.R_OK)]
    if any("secretsprovider:" in text or "encryptionsalt:" in text for text in texts):
        return any("encryptionsalt:" in text for text in texts)
    return not (backend or "").startswith("http")
