"""What is asked of kubeadm to bring a control plane to another Kubernetes, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bedplate.portable import control_plane_upgrade as upgrading
from bedplate.portable.certificates import MANIFESTS, NO_PROXY
from bedplate.portable.host import Host, Result
from bedplate.portable.refusal import ImpossibleError

if TYPE_CHECKING:
    from collections.abc import Sequence

OLD, NEW = "1.35.6", "1.36.3"
KUBEADM = "/opt/bedplate/kubernetes-node/1.36.3/kubeadm"
WANTED = upgrading.Wanted(NEW, "3.6.8-0", "v1.14.2", KUBEADM, ["SystemVerification"])
CONFIGURATION = """apiServer: {{}}
apiVersion: kubeadm.k8s.io/v1beta4
dns:
  imageTag: {dns}
etcd:
  local:
    dataDir: /var/lib/etcd
    imageTag: {etcd}
imageRepository: registry.k8s.io
kind: ClusterConfiguration
kubernetesVersion: v{version}
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "_SECONDS", 0.0)


class ControlPlane:
    """A host with static pods of a version, whose kubeadm moves them and notes how it was called.

    ``cluster``: the version that kubeadm's configuration names. ``others``: further API servers'.
    ``silent``: its API does not answer. ``lazy``: kubeadm ends well and has changed nothing.
    ``broken``: it fails. ``dies``: the API answers no more then. ``down``: one that is not Ready.
    """

    def __init__(
        self, root: Path, version: str = OLD, cluster: str = "", others: str = "", dns: str = ""
    ) -> None:
        self.root, self.version, self.others = root, version, others
        self.cluster = cluster or version
        self.silent = self.lazy = self.broken = self.dies = False
        self.down = ""
        self.calls: list[str] = []
        self.host = Host(str(root), self.run)
        (root / MANIFESTS.lstrip("/")).mkdir(parents=True)
        for name in (*upgrading.STATIC, "etcd"):
            (root / f"proc/{name}/root/usr/local/bin").mkdir(parents=True)
        (root / "proc/etcd/root/usr/local/bin/etcdctl").touch()
        tags = {OLD: ("v1.13.1", "3.6.6-0"), NEW: ("v1.14.2", "3.6.8-0")}
        self.dns, self.etcd = tags.get(self.cluster, ("v1.12.1", "3.6.5-0"))
        self.dns = dns or self.dns
        self.addons = (self.cluster, self.dns)
        self.move(version, self.etcd)

    def move(self, version: str, etcd: str) -> None:
        """Have static pods of a version."""
        self.version = version
        tags = dict.fromkeys(upgrading.STATIC, f"v{version}") | {"etcd": etcd}
        for name, tag in tags.items():
            text = (
                "metadata:\n  annotations:\n    kubeadm.kubernetes.io/"
                "kube-apiserver.advertise-address.endpoint: 192.0.2.11:6443\n"
                f"spec:\n  containers:\n  - command: [x]\n    image: registry.k8s.io/{name}:{tag}\n"
            )
            self.host.write(f"{MANIFESTS}/{name}.yaml", text)

    @property
    def configuration(self) -> str:
        """The cluster's, as kubeadm keeps it."""
        return CONFIGURATION.format(dns=self.dns, etcd=self.etcd, version=self.cluster)

    def run(self, argv: Sequence[str], _timeout: float, environment: object) -> Result:
        program = argv[0].rpartition("/")[2]
        if program == "kubectl":
            return self._kubectl(list(argv), " ".join(argv))
        if program == "crictl":
            space = {"io.kubernetes.pod.namespace": "kube-system"}
            each = [
                {"id": name, "createdAt": "1", "metadata": {"name": name}, "labels": space}
                for name in ("etcd", *upgrading.STATIC)
            ]
            said = {"info": {"pid": "etcd"}} if "inspect" in argv else {"containers": each}
            return Result(0, json.dumps(said), "")
        self.calls.append(" ".join([program, *(one for one in argv[1:] if "/pki/" not in one)]))
        if program == "etcdctl":
            Path(argv[-1]).touch()
            return Result(0, "", "")
        assert environment == NO_PROXY
        if self.broken:
            self.silent = self.dies
            return Result(1, "", "error: it failed")
        self.host.write(f"{upgrading.COPIES}/kubeadm-backup-etcd-1/db", "all secrets")
        if not self.lazy:
            self.move(NEW, self.etcd)
            self.cluster = NEW
            if not self.others:
                self.addons = (NEW, self.dns)
        return Result(0, "", "")

    def _kubectl(self, argv: list[str], line: str) -> Result:
        if self.silent:
            return Result(1, "", "error: connection refused")
        if "patch" in argv:
            self.calls.append("kubectl patch")
            (patch,) = (one.partition("=")[2] for one in argv if one.startswith("--patch="))
            text = json.loads(patch)["data"]["ClusterConfiguration"]
            self.dns, self.etcd = re.findall(r"imageTag: (\S+)", text)
            assert text == self.configuration
            return Result(0, "", "")
        if "rollout" in argv:
            self.calls.append("kubectl rollout")
        if "component=kube-apiserver" in line:
            versions = [self.version, *([self.others] if self.others else [])]
            pods = [
                {
                    "spec": {
                        "nodeName": f"cp{n}",
                        "containers": [{"image": f"x/kube-apiserver:v{v}"}],
                    }
                }
                for n, v in enumerate(versions, 1)
            ]
            return Result(0, json.dumps({"items": pods}), "")
        answers = {
            "/readyz": "ok",
            "node-role.kubernetes.io": "cp1=True " + (f"{self.down}=Unknown" if self.down else ""),
            "kube-proxy": f"registry.k8s.io/kube-proxy:v{self.addons[0]}",
            "kubeadm-config": self.configuration,
            "coredns": f"registry.k8s.io/coredns/coredns:{self.addons[1]}",
        }
        return Result(0, next((text for word, text in answers.items() if word in line), ""), "")

    def lacks(self) -> list[str]:
        """Tell what is to be changed."""
        return upgrading.lacks(upgrading.find(self.host, WANTED), WANTED)

    def brought(self) -> list[str]:
        """Upgrade it, and return the programs that were called."""
        found = upgrading.find(self.host, WANTED)
        upgrading.check(found, WANTED)
        upgrading.upgrade(self.host, WANTED, found)
        return self.calls


def refusal(one: ControlPlane) -> str:
    with pytest.raises(ImpossibleError) as error:
        one.brought()
    assert not one.calls or one.lazy or one.broken
    return f"got {error.value.got} / allowed {error.value.allowed} — {error.value.fix}"


def test_the_first_saves_etcd_and_brings_the_cluster_the_others_themselves(tmp_path: Path) -> None:
    first = ControlPlane(tmp_path / "a", others=OLD)
    saved = first.host.path(upgrading.SAVED)
    asked = "--ignore-preflight-errors=SystemVerification"
    assert first.brought() == [
        f"etcdctl --endpoints=https://127.0.0.1:2379 snapshot save {saved}.new",
        "kubectl patch",
        f"kubeadm upgrade apply v1.36.3 --yes {asked}",
    ]
    assert Path(saved).stat().st_mode & 0o777 == 0o600
    assert first.lacks() == []  # CoreDNS and kube-proxy come with the last control plane
    last = ControlPlane(tmp_path / "b", OLD, NEW)
    last.addons = (OLD, "v1.13.1")
    assert last.brought() == [f"kubeadm upgrade node {asked}", "kubectl rollout"]
    assert last.addons == (NEW, "v1.14.2")


def test_kubeadms_copies_of_all_secrets_go(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    one.host.write(f"{upgrading.COPIES}/kubeadm-backup-etcd-0/db", "of somebody else's run")
    one.brought()
    assert one.host.list(upgrading.COPIES) == ["kubeadm-backup-etcd-0"]


def test_a_tag_that_the_plan_corrects_comes_without_another_version(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, NEW, dns="v1.14.1")
    assert one.lacks() == ["coredns: v1.14.1 -> v1.14.2"]
    assert one.brought()[0] == "kubectl patch"
    assert one.lacks() == []


def test_the_module_calls_nothing_where_all_is_as_it_is_to_be(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, NEW)
    assert one.lacks() == []
    assert one.calls == []


def test_what_differs_is_told_part_by_part(tmp_path: Path) -> None:
    assert ControlPlane(tmp_path).lacks() == [
        "kube-apiserver: v1.35.6 -> v1.36.3",
        "kube-controller-manager: v1.35.6 -> v1.36.3",
        "kube-scheduler: v1.35.6 -> v1.36.3",
        "etcd: 3.6.6-0 -> 3.6.8-0",
    ]


def test_a_run_that_ended_before_the_addons_is_finished(tmp_path: Path) -> None:
    """Its control planes are at the version; kube-proxy is not, and no snapshot is taken anew."""
    one = ControlPlane(tmp_path, NEW)
    one.addons = (OLD, "v1.13.1")
    assert one.lacks() == ["kube-proxy: v1.35.6 -> v1.36.3", "coredns: v1.13.1 -> v1.14.2"]
    assert one.brought()[0].startswith("kubeadm upgrade node")
    assert one.lacks() == []


def test_while_a_control_plane_is_down_nothing_is_changed(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    one.down = "cp2"
    assert refusal(one).startswith("got cp2 not Ready / allowed all control planes Ready")


def test_what_kubeadm_refuses_leaves_its_configuration_as_it_was(tmp_path: Path) -> None:
    """A control plane that joins next would get the new etcd with the old Kubernetes."""
    one = ControlPlane(tmp_path)
    one.broken = True
    before = one.configuration
    assert "it failed" in refusal(one)
    assert one.configuration == before
    assert one.calls.count("kubectl patch") == 2


def test_kubeadms_reason_is_reported_where_the_api_has_gone_with_it(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    one.broken = one.dies = True
    assert "it failed" in refusal(one)


def test_there_is_no_way_back(tmp_path: Path) -> None:
    assert refusal(ControlPlane(tmp_path, "1.36.4")) == (
        "got kube-apiserver 1.36.4 / allowed 1.36.3 or older: Kubernetes is never"
        " downgraded — Set bedplate_kubernetes.version to 1.36.4 or newer, and run"
        " 'bedplate plan'."
    )


def test_there_is_no_way_over_a_version(tmp_path: Path) -> None:
    assert refusal(ControlPlane(tmp_path, "1.34.9")) == (
        "got kube-apiserver 1.34.9 / allowed 1.35 next: Kubernetes goes up by one minor version"
        " at a time — Restore the lock from before this plan (git has it). Set"
        " bedplate_kubernetes.version to a release of 1.35, run 'bedplate plan' and this playbook,"
        " and go on from there."
    )


@pytest.mark.parametrize("version", ["1.36.2", "1.35.10"])
def test_a_newer_patch_and_the_next_minor_are_ways(tmp_path: Path, version: str) -> None:
    """By number: 10 is newer than 6."""
    assert ControlPlane(tmp_path, version).brought()


def test_a_control_plane_that_does_not_answer_is_left_where_nothing_is_to_change(
    tmp_path: Path,
) -> None:
    done, due = ControlPlane(tmp_path / "a", NEW), ControlPlane(tmp_path / "b")
    done.silent = due.silent = True
    assert done.lacks() == []
    assert "connection refused" in refusal(due)


def test_kubeadms_word_alone_does_not_count(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    one.lazy = True
    assert "got kube-apiserver: v1.35.6 -> v1.36.3; " in refusal(one)


def test_a_manifest_that_kubeadm_has_moved_away_is_named(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    one.host.remove(f"{MANIFESTS}/kube-scheduler.yaml")
    said = refusal(one)
    assert "no image in /etc/kubernetes/manifests/kube-scheduler.yaml" in said
    assert said.endswith("when it was cut off, from /etc/kubernetes/tmp.")
