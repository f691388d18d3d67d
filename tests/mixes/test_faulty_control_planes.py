"""One of three control planes is cut off, then its disk is full, while a client writes."""

from __future__ import annotations

import json
import re
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.mixes.clients import begin, ended
from tests.mixes.living import installed, living
from tests.mixes.test_replaced_nodes import CONTROL_PLANES, MIX, api_again, voters
from tests.site.cluster import ready, wait_for
from tests.site.hosts import on_host
from tests.substrate.hosts.description import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

FAULTY = replace(MIX, name="faulty-mix", subnet="10.213.31.0/25")
SECONDS = 300.0
#: A disk of etcd's own: room for two segments of its log (64 MB each) and some of its data.
DISK = "mkdir -p /var/lib/etcd && mount -t tmpfs -o size=220M,mode=0700 tmpfs /var/lib/etcd"
FILLS = "dd if=/dev/zero of=/var/lib/etcd/fills bs=1M 2>&1 || df -m /var/lib/etcd"
RUNS = "crictl ps --name='^etcd$' --state Running --quiet"
LARGE = 40


def holders(site: SiteCommands) -> list[str]:
    """Return the control planes that have the cluster's address; one that is cut off is asked too.

    Over its container: there is no other way to one that is cut off.
    """
    return [
        name
        for name in CONTROL_PLANES
        if f" {FAULTY.address}/" in inside(site, name, "ip addr show")
    ]


def inside(site: SiteCommands, name: str, script: str) -> str:
    """Run a script in the container that is a host, and return its output."""
    description = load(site.description)
    container = description.container(description.host(name))
    words = ["podman", "exec", container, "bash", "-c", script]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextmanager
def cut_off(site: SiteCommands, name: str) -> Iterator[None]:
    """Take a host's cable out of the switch: its own end does not see that."""
    number = inside(site, name, "cat /sys/class/net/eth0/iflink").strip()
    shown = subprocess.run(
        ["ip", "-json", "link", "show"], check=True, capture_output=True, text=True
    ).stdout
    (link,) = (one for one in json.loads(shown) if one["ifindex"] == int(number))
    subprocess.run(["ip", "link", "set", link["ifname"], "nomaster"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", link["ifname"], "master", link["master"]], check=True)


@pytest.mark.prove
def test_one_of_three_is_cut_off_and_its_disk_is_full(
    tmp_path: Path, figures: dict[str, dict[str, float]]
) -> None:
    with living(FAULTY, tmp_path) as site:
        for name in CONTROL_PLANES:
            on_host(site, name, DISK)
        installed(site)
        for name in FAULTY.hosts:
            wait_for(f"node {name}", lambda name=name: ready(site, name), SECONDS)
        site.kubectl("create", "namespace", "written")
        begin(site, "w1", FAULTY)
        away, again = {}, {}

        (name,) = holders(site)
        with cut_off(site, name):
            away["cut off"] = api_again(site)
            # The one that is cut off believes that it has the address; nobody hears it.
            wait_for("the node is missed", lambda: not ready(site, name), SECONDS)
            assert [one for one in holders(site) if one != name]
            site.pulumi("cluster", "preview", "--expect-no-changes")
        began = time.monotonic()
        wait_for("one address", lambda: len(holders(site)) == 1, SECONDS)
        wait_for(f"node {name}", lambda: ready(site, name), SECONDS)
        again["cut off"] = time.monotonic() - began
        assert voters(site, name) == CONTROL_PLANES

        (name,) = holders(site)
        large = tmp_path / "large"
        large.write_text("x" * 900_000)
        assert "No space left on device" in on_host(site, name, FILLS)
        began = time.monotonic()
        for number in range(LARGE):
            words = ["create", "configmap", f"large-{number}", f"--from-file={large}"]
            site.kubectl("-n", "written", *words, "--request-timeout=10s")
        wait_for("the end of its etcd", lambda: not on_host(site, name, RUNS).strip(), SECONDS)
        print("etcd ended after", time.monotonic() - began)
        wait_for("another holder", lambda: name not in holders(site), SECONDS)
        away["disk full"] = api_again(site)
        site.pulumi("cluster", "preview", "--expect-no-changes")
        on_host(site, name, "rm /var/lib/etcd/fills")
        began = time.monotonic()
        wait_for("its etcd", lambda: on_host(site, name, RUNS).strip(), SECONDS)
        wait_for(f"node {name}", lambda: ready(site, name), SECONDS)
        wait_for("its API", lambda: answers(site, name), SECONDS)
        again["disk full"] = time.monotonic() - began
        assert voters(site, name) == CONTROL_PLANES

        said = ended(site, "w1")["api"]
        there = site.kubectl("-n", "written", "get", "configmaps", "-o", "name").stdout
        print(away, again, len(said["done"]), said["gap"], said["failed"])
        figures[
            "a control plane is cut off, or its disk is full: seconds until the API answers"
        ] = away
        figures["and seconds until it serves again, once that has ended"] = again
        figures["the longest gap between two writes, seconds"] = {"faulty": said["gap"]}
        assert set(said["done"]) <= set(re.findall(r"w-\d+", there))
        assert said["gap"] < 15
        site.playbook("playbooks/verify.yml")


def answers(site: SiteCommands, name: str) -> bool:
    """Say whether the API server of one control plane is ready."""
    ask = f"curl -sk --max-time 3 https://{FAULTY.hosts[name]}:6443/readyz"
    return inside(site, name, f"{ask} || true").strip() == "ok"
