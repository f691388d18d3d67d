"""Secrets as etcd has them: goes on from test_site.py, with the real API server and etcd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.site.cluster import recap, unwrapped
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from tests.substrate.commands import SiteCommands

HOST = "cp1"
PLAY = "playbooks/encryption.yml"
WORD = "planted-7d20e4"
FILE = "/etc/kubernetes/pki/encryption.json"
RAW = """
at=/etc/kubernetes/pki/etcd
crictl exec $(crictl ps --name '^etcd$' --quiet) etcdctl --endpoints=https://127.0.0.1:2379 \
  --cacert=$at/ca.crt --cert=$at/healthcheck-client.crt --key=$at/healthcheck-client.key \
  get /registry/secrets/default/written --print-value-only | head -c 4096 | tr -cd '[:print:]'
"""
#: The cluster as an older Bedplate has made it; kubelet starts another API server.
BEFORE = r"""
export KUBECONFIG=/etc/kubernetes/admin.conf
text=$(kubectl -n kube-system get configmap kubeadm-config \
  -o jsonpath='{.data.ClusterConfiguration}' | python3 -c '
import json, re, sys
text = sys.stdin.read()
part = r"apiServer:\n  extraArgs:\n  - name: enc.*\n    value: .*"
bare = re.sub(part, "apiServer: {}", text)
assert bare != text, text
print(json.dumps({"data": {"ClusterConfiguration": bare}}))
')
kubectl -n kube-system patch configmap kubeadm-config --type=merge --patch "$text"
sed --in-place '/encryption-provider-config/d' /etc/kubernetes/manifests/kube-apiserver.yaml
sleep 5
"""


def raw(site: SiteCommands) -> str:
    """Return what etcd has of the planted Secret, as far as it can be printed."""
    return on_host(site, HOST, RAW)


def keys(site: SiteCommands) -> list[str]:
    """Return the names of the keys on the control plane."""
    (part,) = json.loads(on_host(site, HOST, f"cat {FILE}"))["resources"]
    return [
        one["name"]
        for provider in part["providers"]
        for one in provider.get("secretbox", {"keys": [{"name": "none"}]})["keys"]
    ]


def bytes_of(site: SiteCommands) -> list[str]:
    """Return the keys themselves."""
    (part,) = json.loads(on_host(site, HOST, f"cat {FILE}"))["resources"]
    return [one["secret"] for one in part["providers"][0]["secretbox"]["keys"]]


def planted(site: SiteCommands) -> str:
    """Return the planted word as the API says it."""
    path = "jsonpath={.data.word}"
    return site.kubectl("get", "secret", "written", "-o", path).stdout


def test_etcd_does_not_have_the_word(site: SiteCommands) -> None:
    made = ["create", "secret", "generic", "written", f"--from-literal=word={WORD}"]
    assert site.kubectl(*made).returncode == 0
    said = raw(site)
    assert said.startswith("k8s:enc:secretbox:v1:key1-"), said
    assert WORD not in said
    listed = on_host(site, HOST, f"stat --format='%a %U' {FILE}")
    assert listed.strip() == "600 root"
    (key,) = bytes_of(site)
    for folder in (site.site / ".bedplate").iterdir():
        paths = folder.rglob("*") if folder.is_dir() else [folder]
        for path in paths:
            text = path.read_bytes() if path.is_file() else b""
            assert key.encode() not in text, path


@pytest.mark.prove
def test_another_key_replaces_it_and_no_log_has_either(site: SiteCommands) -> None:
    word, (old,) = planted(site), bytes_of(site)
    done = site.playbook(PLAY, "--check", "--diff")
    assert recap(done.stdout)[HOST]["changed"] == 0
    done = site.playbook(PLAY, "-e", "encryption_rotate=true", "--diff", "-vvv")
    assert "Secrets are encrypted with key2-" in unwrapped(done.stdout)
    assert [name.partition("-")[0] for name in keys(site)] == ["key2"]
    (new,) = bytes_of(site)
    assert old != new
    for secret in (old, new):
        assert secret not in done.stdout + done.stderr
    assert raw(site).startswith("k8s:enc:secretbox:v1:key2-")
    assert planted(site) == word
    done = site.playbook(PLAY)
    assert recap(done.stdout)[HOST]["changed"] == 0
    assert "0 were written again" in unwrapped(done.stdout)


@pytest.mark.prove
def test_a_cluster_from_before_is_encrypted_and_named_until_then(site: SiteCommands) -> None:
    word = planted(site)
    # As it was written without a key: read with one, written without.
    text = on_host(site, HOST, f"cat {FILE}")
    part = json.loads(text)
    part["resources"][0]["providers"].insert(0, {"identity": {}})
    on_host(site, HOST, f"cat > {FILE} <<'END'\n{json.dumps(part)}\nEND")
    restart = "crictl stop $(crictl ps --name '^kube-apiserver$' --quiet); sleep 15"
    on_host(site, HOST, restart)
    ready = 'until [ "$(kubectl --kubeconfig=/etc/kubernetes/admin.conf get --raw /readyz)" = ok ]'
    on_host(site, HOST, f"{ready}; do sleep 1; done")
    kubectl = "kubectl --kubeconfig=/etc/kubernetes/admin.conf"
    on_host(site, HOST, f"{kubectl} get secrets -A -o json | {kubectl} replace -f -")
    assert WORD in raw(site)
    on_host(site, HOST, BEFORE)
    on_host(site, HOST, f"rm {FILE}; {ready}; do sleep 1; done")
    site.playbook("playbooks/drift.yml", "--limit", HOST)
    told = site.run("drift", ["bedplate", "drift", str(site.site)], check=False).stdout
    assert "they lie in etcd, and in its backups, as they are" in unwrapped(told)
    assert "bedplate.gpu.encryption" in unwrapped(told)
    site.playbook(PLAY)
    assert [name.partition("-")[0] for name in keys(site)] == ["key1"]
    assert raw(site).startswith("k8s:enc:secretbox:v1:key1-")
    assert planted(site) == word
    flag = "encryption-provider-config"
    where = "-n kube-system get configmap kubeadm-config -o yaml"
    assert flag in on_host(site, HOST, f"{kubectl} {where}")
    assert recap(site.playbook(PLAY).stdout)[HOST]["changed"] == 0
    site.pulumi("cluster", "preview", "--expect-no-changes")
