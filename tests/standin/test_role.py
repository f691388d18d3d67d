"""Role nvidia_driver with the vendor's repository: installed, exchanged and held by apt and by dnf.

Systems and packages are stand-ins, reached through Ansible's chroot connection: nothing of them is
started, so the kernel module and the GPUs are not looked at here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.substrate.standin import deb, driver_packages, rpm, system
from tests.substrate.standin.packages import ORIGIN, format_of, pins
from tests.substrate.standin.signing import PUBLIC, Key

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SYSTEMS = {"ubuntu-24.04": "ubuntu-24.04-standin", "rocky-9": rpm.SYSTEM}
FIRST = ("580.178.04", "open")
#: Another version, branch (whose packages have other names on Ubuntu) and flavour, and back.
STEPS = [("580.126.20", "open"), ("595.91.07", "open"), ("595.91.07", "proprietary"), FIRST]
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

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking a system and chroot need root")


@pytest.fixture(scope="module", params=SYSTEMS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned site of one host: a stand-in system with the vendor's repository on it."""
    os_name = request.param
    work = tmp_path_factory.mktemp("role")
    folder = system.unpack(SYSTEMS[os_name], work / "host")
    for source in (folder / "etc/apt/sources.list.d").glob("*"):
        source.unlink()
    (folder / "etc/apt/sources.list").unlink(missing_ok=True)
    key = Key(work / "gnupg")
    builder = rpm if format_of(os_name) == "rpm" else deb
    versions = {FIRST[0], *(version for version, _ in STEPS)}
    builder.repository(driver_packages(os_name, versions), folder / "srv/standin", key)
    key.close()
    place = work / "site"
    (place / "group_vars").mkdir(parents=True)
    host = {
        "ansible_connection": "community.general.chroot",
        "ansible_host": str(folder),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    pool = {"pool_one": {"hosts": {"one": host}}}
    hosts = {"all": {"children": {"control_plane": {"hosts": {}}, "gpu_pools": {"children": pool}}}}
    wishes = {
        "bedplate_host": {"os": os_name, "kind": "bare-metal"},
        "bedplate_gpu": {"model": "t4-16gb", "count": 1},
        "bedplate_driver": {"branch": "580", "flavour": "open", "source": "vendor-repo"},
        "bedplate_kubernetes": {"version": "1.36", "endpoint": "192.0.2.1:6443", "cni": "flannel"},
        "nvidia_driver_repository": {
            "url": "file:///srv/standin/",
            "key": f"file:///srv/standin/{PUBLIC}",
            "fingerprint": key.fingerprint,
            "origin": ORIGIN,
        },
    }
    (place / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (place / "group_vars/all.yml").write_text(yaml.safe_dump(wishes))
    subprocess.run([BIN / "bedplate", "plan", place], check=True, capture_output=True)
    return place


def play(
    site: Path, entry: str = "install", *arguments: str, **variables: object
) -> tuple[int, str]:
    """Run an entry point of the role; how many tasks changed something (-1: failed), and output."""
    tasks = [
        {"ansible.builtin.import_role": {"name": "bedplate.gpu.nvidia_driver", "tasks_from": entry}}
    ]
    books = [str(ROOT / "playbooks/vars/from_lock.yml")]
    book = [{"hosts": "one", "gather_facts": False, "vars_files": books, "tasks": tasks}]
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


def driver(version: str, flavour: str, os_name: str) -> dict[str, object]:
    """Variables that wish for another driver than the lock's."""
    packages = pins(os_name, version, flavour)
    return {
        "nvidia_driver_version": version,
        "nvidia_driver_flavour": flavour,
        "nvidia_driver_packages": packages,
    }


def installed(site: Path) -> dict[str, str]:
    """Versions of all the driver's packages that are installed."""
    os_name, folder = described(site)
    answer = system.host(folder).run(QUERIES[format_of(os_name)])
    rows = [line.split() for line in answer.out.splitlines()]
    mine = [row for row in rows if re.match(r"(lib|kmod-)?nvidia", row[0])]
    return {row[0]: row[1] for row in mine if row[2:] in ([], ["ii"], ["hi"])}


def described(site: Path) -> tuple[str, Path]:
    """The operating system of the site's host, and its folder."""
    wishes = yaml.safe_load((site / "group_vars/all.yml").read_text())
    return wishes["bedplate_host"]["os"], site.parent / "host"


def test_check_mode_changes_nothing_and_says_what_would(site: Path) -> None:
    changed, said = play(site, "install", "--check", "--diff")
    assert changed > 0, said
    assert installed(site) == {}
    assert "bedplate-nvidia" in said


def test_a_key_that_nobody_trusts_changes_nothing(site: Path) -> None:
    wrong = {
        "url": "file:///srv/standin/",
        "key": f"file:///srv/standin/{PUBLIC}",
        "origin": ORIGIN,
    }
    _, said = play(site, nvidia_driver_repository=wrong | {"fingerprint": "0" * 40})
    assert "the repository's key is another one" in " ".join(said.split())
    assert installed(site) == {}


def test_the_locks_driver_is_installed_once(site: Path) -> None:
    changed, said = play(site)
    assert changed > 0, said
    assert installed(site) == pins(described(site)[0], *FIRST)
    changed, said = play(site)
    assert changed == 0, said


def test_branch_and_flavour_change_and_nothing_is_left(
    site: Path, figures: dict[str, dict[str, float]]
) -> None:
    os_name, folder = described(site)
    for version, flavour in STEPS:
        changed, said = play(site, **driver(version, flavour, os_name))
        assert changed > 0, said
        assert installed(site) == pins(os_name, version, flavour)
        upgrade = ["apt-get", "--simulate", "dist-upgrade"]
        argv = upgrade if format_of(os_name) == "deb" else ["dnf", "--assumeno", "upgrade"]
        plan = system.host(folder).run(argv, 120)
        assert "nvidia" not in plan.out.split("following packages have been kept back", 1)[0]
    figures[f"changes of the driver on stand-ins of {os_name}"] = {"steps": len(STEPS)}
