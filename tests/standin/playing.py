"""Roles played on a stand-in system, which Ansible reaches by its chroot connection.

Nothing of the system is started, so only what a role does with packages and files is looked at.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.portable.packages import rpm as rpm_state
from tests.substrate.standin import deb, rpm, system
from tests.substrate.standin.packages import ORIGIN, StandIn, format_of
from tests.substrate.standin.signing import PUBLIC, Key
from tests.unit.bill.made import make

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SYSTEMS = {"ubuntu-24.04": "ubuntu-24.04-standin", "rocky-9": rpm.SYSTEM}
#: The same for a fixture whose second system is left to `make prove AREA=standin`.
ONE_BY_DEFAULT = [
    pytest.param(name, marks=[pytest.mark.prove] if place else [], id=name)
    for place, name in enumerate(SYSTEMS)
]
REPOSITORY = "srv/standin"
#: What the distribution, and EPEL, have: unsigned, and apart from the vendor's.
DISTRIBUTION = "srv/distribution"
QUERIES = {
    "deb": ["dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Abbrev}\n"],
    "rpm": [
        "rpm",
        "--query",
        "--all",
        "--queryformat",
        "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE} \n",
    ],
}


def unpacked(os_name: str, work: Path, packages: Iterable[StandIn]) -> dict[str, str]:
    """Unpack a stand-in system into `work`/host with a repository of stand-ins on it alone.

    Returns what a role has to know of the repository, in place of the vendor's.
    """
    folder = system.unpack(SYSTEMS[os_name], work / "host")
    for source in (folder / "etc/apt/sources.list.d").glob("*"):
        source.unlink()
    (folder / "etc/apt/sources.list").unlink(missing_ok=True)
    key = Key(work / "gnupg")
    builder = rpm if format_of(os_name) == "rpm" else deb
    builder.repository(packages, folder / REPOSITORY, key)
    key.close()
    return {
        "url": f"file:///{REPOSITORY}/",
        "key": f"file:///{REPOSITORY}/{PUBLIC}",
        "fingerprint": key.fingerprint,
        "origin": ORIGIN,
    }


def headers() -> StandIn:
    """Return a stand-in of the headers of this machine's kernel, as Debian's family names them."""
    release = os.uname().release
    return StandIn(f"linux-headers-{release}", "1-1", files=_built_with(release))


def devel() -> StandIn:
    """Return the same as Red Hat's family names them."""
    release = os.uname().release
    name, version, revision = f"kernel-devel-{release}".rsplit("-", 2)
    return StandIn(name, f"{version}-{revision}", files=_built_with(release))


def _built_with(release: str) -> dict[str, str]:
    return {f"/lib/modules/{release}/build/Makefile": ""}


def distribution(site: Path, packages: Iterable[StandIn]) -> None:
    """Offer packages to a site's host beside the vendor's repository, in place of earlier ones."""
    folder, url = site.parent / "host", f"file:///{DISTRIBUTION}/"
    shutil.rmtree(folder / DISTRIBUTION, ignore_errors=True)
    shutil.rmtree(site.parent / "gnupg-distribution", ignore_errors=True)
    key = Key(site.parent / "gnupg-distribution")
    if format_of(system_of(site)) == "rpm":
        rpm.repository(packages, folder / DISTRIBUTION, key)
        text = f"[distribution]\nname=distribution\nbaseurl={url}\ngpgcheck=0\nmetadata_expire=0\n"
        (folder / "etc/yum.repos.d").mkdir(exist_ok=True)
        # Of the Debian below, whose dnf has a plugin with an unsigned repository of its own.
        (folder / "etc/dnf/plugins/local.conf").write_text("[main]\nenabled = false\n")
        (folder / "etc/yum.repos.d/distribution.repo").write_text(text)
    else:
        deb.repository(packages, folder / DISTRIBUTION, key, origin="distribution")
        text = f"deb [trusted=yes] {url} ./\n"
        (folder / "etc/apt/sources.list.d/distribution.list").write_text(text)
    key.close()


def planned(os_name: str, work: Path, wishes: Mapping[str, Any]) -> Path:
    """Write and plan a site of one host, the system in `work`/host; more wishes may be given."""
    place = written(os_name, work, wishes)
    # Also what a stack does not install below a kubelet: the role is played by itself.
    command = [BIN / "bedplate", "plan", "--allow-planned", place]
    subprocess.run(command, check=True, capture_output=True)
    make(place)  # the stand-in repositories have what the roles install
    return place


def written(os_name: str, work: Path, wishes: Mapping[str, Any]) -> Path:
    """Write a site of one host, for a role that needs no lock."""
    place = work / "site"
    (place / "group_vars").mkdir(parents=True)
    pool = {"pool_one": {"hosts": {"one": {}}}}
    hosts = {"all": {"children": {"control_plane": {"hosts": {}}, "gpu_pools": {"children": pool}}}}
    every = {
        "bedplate_host": {"os": os_name, "kind": "bare-metal"},
        "bedplate_gpu": {"model": "t4-16gb", "count": 1},
        "bedplate_driver": {"branch": "580", "flavour": "open", "source": "vendor-repo"},
        "bedplate_kubernetes": {"version": "1.36", "endpoint": "192.0.2.1:6443", "cni": "flannel"},
    }
    (place / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (place / "group_vars/all.yml").write_text(yaml.safe_dump(every | dict(wishes)))
    return place


def play(
    site: Path, role: str, entry: str, *arguments: str, **variables: object
) -> tuple[int, str]:
    """Run an entry point of a role; how many tasks changed something (-1: failed), and output."""
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.import_role": {"name": f"bedplate.gpu.{role}", "tasks_from": entry}},
        # In a chroot no daemon runs that a handler could restart.
        {"ansible.builtin.meta": "end_play"},
    ]
    books = [str(ROOT / "playbooks/vars/from_lock.yml")]
    # The play's own: the site is one of hosts over SSH, as the plan wants it.
    reached = {
        "ansible_host": str(site.parent / "host"),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    book = [
        {
            "hosts": "one",
            "connection": "community.general.chroot",
            "vars": reached,
            "gather_facts": False,
            "vars_files": books,
            "tasks": tasks,
        }
    ]
    path = site.parent / "play.yml"
    path.write_text(yaml.safe_dump(book, sort_keys=False))
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", site, path, "-e", json.dumps(variables), *arguments],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return -1, done.stdout + done.stderr
    return int(done.stdout.rsplit("changed=", 1)[1].split()[0]), done.stdout


def module(folder: Path, name: str, *arguments: str, **parameters: object) -> dict[str, Any]:
    """Run one of our modules in a stand-in system, and return what it answered."""
    host = {"ansible_host": str(folder), "ansible_python_interpreter": "/usr/bin/python3"}
    command = [BIN / "ansible", "-i", "one,", "-c", "community.general.chroot", "one"]
    command += ["-m", f"bedplate.gpu.{name}", "-a", json.dumps(parameters), "-e", json.dumps(host)]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        capture_output=True,
        text=True,
        check=False,
    )
    _, _, answer = done.stdout.partition("=> ")
    assert answer, done.stdout + done.stderr
    return dict(json.loads(answer))


def installed(site: Path) -> dict[str, str]:
    """Return the versions of all packages that are installed on the site's host."""
    answer = system.host(site.parent / "host").run(QUERIES[format_of(system_of(site))])
    rows = [line.split() for line in answer.out.splitlines()]
    return {row[0]: row[1] for row in rows if row[2:] in ([], ["ii"], ["hi"])}


def held(site: Path, package: str) -> bool:
    """Whether a package of the site's host is held against upgrades."""
    host = system.host(site.parent / "host")
    if format_of(system_of(site)) == "deb":
        return package in host.run(["apt-mark", "showhold"]).out.split()
    return f"{package}-" in (host.read(rpm_state.lock_list(host)) or "")


def system_of(site: Path) -> str:
    """Return the operating system of the site's host."""
    wishes = yaml.safe_load((site / "group_vars/all.yml").read_text())
    return str(wishes["bedplate_host"]["os"])
