"""Certificates of the control plane: goes on from test_site.py, with the real kubeadm."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.site.cluster import recap, unwrapped
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

HOST = "cp1"
PLAY = "playbooks/certificates.yml"
DAYS = 10
#: kubeadm itself makes one that ends soon. The scheduler reads its own once, as it starts.
SHORT = f"""
export KUBECONFIG=/etc/kubernetes/admin.conf
kubectl -n kube-system get configmap kubeadm-config \
  -o jsonpath='{{.data.ClusterConfiguration}}' > /run/short.yml
printf '\ncertificateValidityPeriod: {DAYS * 24}h\n' >> /run/short.yml
kubeadm certs renew scheduler.conf --config=/run/short.yml
"""
ENDS = """
sed -n 's/.*client-certificate-data: //p' /etc/kubernetes/scheduler.conf | base64 -d |
  openssl x509 -noout -enddate -dateopt iso_8601 | sed 's/notAfter=//; s/Z/ UTC/'
"""
#: A container's start by its name, for each program of the control plane.
STARTS = """
crictl ps -o json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["containers"]:
    print(one["metadata"]["name"], one["createdAt"])
' | grep -E "^(etcd|kube-(apiserver|controller-manager|scheduler)) "
"""


def starts(site: SiteCommands) -> dict[str, str]:
    """Return when each program of the control plane was started."""
    return dict(line.split() for line in on_host(site, HOST, STARTS).splitlines())


def ends(site: SiteCommands) -> str:
    """Return until when the scheduler's certificate is good, as OpenSSL reads it."""
    return on_host(site, HOST, ENDS).strip()


def looked(site: SiteCommands, *arguments: str) -> tuple[dict[str, Any], str]:
    """Look for drift: the evidence of certificates, and what `bedplate drift` says."""
    site.playbook("playbooks/drift.yml", "--limit", HOST, *arguments)
    path = site.site / ".bedplate/evidence" / f"drift-{HOST}.json"
    evidence = json.loads(path.read_text())
    told = site.run("drift", ["bedplate", "drift", str(site.site)], check=False).stdout
    found = {one["id"]: one["found"] for one in evidence["checks"]}
    found["first"] = evidence["facts"]["certificates"]
    return found, unwrapped(told)


def test_a_certificate_that_ends_soon_is_named_with_date_and_play(site: SiteCommands) -> None:
    # Made for a year, with authorities for ten.
    found, _ = looked(site, "-e", "gpu_verify_certificate_days=400")
    assert f"scheduler.conf ends on {ends(site)}" in found["certificates.ends"]
    assert len(found["certificates.ends"]) > 8
    assert found["certificates.authorities"] == []
    on_host(site, HOST, SHORT)
    end = ends(site)
    assert end < f"{datetime.now(UTC) + timedelta(days=DAYS, hours=1):%Y-%m-%d %H:%M} UTC"
    found, told = looked(site)
    assert found["first"] == {"name": "scheduler.conf", "ends": end}
    assert found["certificates.ends"] == [f"scheduler.conf ends on {end}"]
    assert f"scheduler.conf ends on {end}" in told
    assert f"bedplate.gpu.certificates --limit {HOST}" in told


@pytest.mark.prove
def test_the_play_renews_and_a_run_that_was_cut_off_is_completed(site: SiteCommands) -> None:
    end, before = ends(site), starts(site)
    if end > f"{datetime.now(UTC) + timedelta(days=DAYS + 1):%Y-%m-%d}":
        on_host(site, HOST, SHORT)
        end = ends(site)
    done = site.playbook(PLAY, "--check", "--diff")
    assert f"-scheduler.conf ends on {end}" in done.stdout
    assert recap(done.stdout)[HOST]["changed"] == 1
    assert (ends(site), starts(site)) == (end, before)

    done = site.playbook(PLAY)
    assert ends(site) > f"{datetime.now(UTC) + timedelta(days=300):%Y-%m-%d}"
    after = starts(site)
    assert before.keys() == after.keys() == {
        "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"
    }  # fmt: skip
    assert not before.items() & after.items()
    assert "hold the previous certificate, which is valid until" in unwrapped(done.stdout)
    assert site.kubectl("get", "--raw", "/readyz").stdout == "ok"

    # As it is where a run has ended between renewing and restarting.
    on_host(site, HOST, "kubeadm certs renew scheduler.conf")
    found, _ = looked(site)
    assert found["certificates.in_use"] == ["kube-scheduler"]
    done = site.playbook(PLAY)
    assert recap(done.stdout)[HOST]["changed"] == 1
    again = starts(site)
    assert {name for name in again if again[name] != after[name]} == {"kube-scheduler"}
    assert recap(site.playbook(PLAY).stdout)[HOST]["changed"] == 0


#: An authority whose end comes a second after it was made, by kubeadm too.
ENDED = """
sed '/certificatesDir/d; /ValidityPeriod/d' /run/short.yml > /run/ended.yml
printf 'certificatesDir: /run/ended\ncaCertificateValidityPeriod: 1s\n' >> /run/ended.yml
kubeadm init phase certs front-proxy-ca --config=/run/ended.yml
cp -a /etc/kubernetes/pki/front-proxy-ca.crt /root/
cp /run/ended/front-proxy-ca.crt /etc/kubernetes/pki/
"""


@pytest.mark.prove
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            "mv /etc/kubernetes/pki/ca.key /root/",
            "mv /root/ca.key /etc/kubernetes/pki/",
            "certificates are signed by an authority whose key is not on this host",
        ),
        (
            ENDED,
            "cp -a /root/front-proxy-ca.crt /etc/kubernetes/pki/",
            "an authority of the cluster has ended",
        ),
    ],
)
def test_what_kubeadm_would_leave_out_is_refused(
    site: SiteCommands, before: str, after: str, reason: str
) -> None:
    on_host(site, HOST, SHORT)
    on_host(site, HOST, before)
    end, running = ends(site), starts(site)
    try:
        done = site.playbook(PLAY, check=False)
    finally:
        on_host(site, HOST, after)
    assert done.returncode != 0
    assert reason in unwrapped(done.stdout)
    assert (ends(site), starts(site)) == (end, running)
