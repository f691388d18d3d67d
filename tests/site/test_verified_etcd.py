"""etcd as verify sees it: goes on from test_site.py, with the real API server and etcd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.site.cluster import unwrapped
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

HOST = "cp1"
#: As docs/backup.md has it.
ETCD = r"""etcd() { crictl exec $(crictl ps --name '^etcd$' --quiet) etcdctl \
  --endpoints=https://127.0.0.1:2379 --cacert=/etc/kubernetes/pki/etcd/ca.crt \
  --cert=/etc/kubernetes/pki/etcd/healthcheck-client.crt \
  --key=/etc/kubernetes/pki/etcd/healthcheck-client.key "$@"; }
"""
MANIFEST = "/etc/kubernetes/manifests/etcd.yaml"
READY = """
kubectl="kubectl --kubeconfig=/etc/kubernetes/admin.conf"
until etcd endpoint health && [ "$($kubectl get --raw /readyz)" = ok ]; do sleep 1; done \\
  >/dev/null 2>&1
"""


def etcd(site: SiteCommands, command: str) -> str:
    return on_host(site, HOST, ETCD + command)


def restarted(site: SiteCommands, change: str) -> None:
    """Change etcd's manifest; kubelet starts another one, and the API answers again."""
    was = "was=$(crictl ps --name '^etcd$' --quiet)"
    ended = "while crictl ps --name '^etcd$' --quiet | grep -qx $was; do sleep 1; done"
    etcd(site, f"{was}; {change}; {ended}; {READY}")


def verified(site: SiteCommands) -> str:
    """Look at the control plane; return what differs."""
    site.playbook("playbooks/drift.yml", "--limit", HOST)
    told = site.run("drift", ["bedplate", "drift", str(site.site)], check=False)
    return unwrapped(told.stdout)


def test_a_member_that_never_started_is_seen(site: SiteCommands) -> None:
    assert "[etcd." not in verified(site)
    etcd(site, "etcd member add ghost --learner --peer-urls=https://192.0.2.99:2380")
    told = verified(site)
    ghost = "192.0.2.99 (never started, no vote)"
    assert f"[etcd.members] — got {ghost}, cp1 (no such Node: {ghost}) / allowed cp1" in told
    assert "[etcd.healthy]" not in told
    # As docs/backup.md has it.
    etcd(site, "etcd member remove $(etcd member list | grep 192.0.2.99 | cut -d, -f1)")
    assert "[etcd." not in verified(site)


@pytest.mark.prove
def test_a_database_near_its_limit_is_seen(site: SiteCommands) -> None:
    """Each restart takes kubelet most of a minute: it asks an API that has no etcd first."""
    (status,) = json.loads(etcd(site, "etcd endpoint status --write-out=json"))
    # Far enough from its limit that etcd goes on.
    limit = int(status["Status"]["dbSize"] * 1.2)
    on_host(site, HOST, f"cp {MANIFEST} /root/etcd.yaml")
    flag = f"--quota-backend-bytes={limit}"
    restarted(site, f"sed -i 's/^\\( *\\)- etcd$/&\\n\\1- {flag}/' {MANIFEST}")
    try:
        told = verified(site)
        assert "etcd's database is far from its limit — cp1 [etcd.room] — got " in told
        assert f"allowed 80% of {limit / 2**20:.1f} MiB" in told
        assert "[etcd.healthy]" not in told
    finally:
        restarted(site, f"cp /root/etcd.yaml {MANIFEST}; rm /root/etcd.yaml")
    assert "[etcd." not in verified(site)
