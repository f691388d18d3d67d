"""A control plane brought to another Kubernetes by kubeadm: its static pods, not its kubelet.

A kubelet must not be newer than any API server that it may ask, and behind one address it may ask
each of them: all control planes come here first, one after the other, and kubelets afterwards.
"""

import contextlib
import json
import re
import shutil
from typing import Dict, List, NamedTuple

from . import backup, cluster_node
from .certificates import MANIFESTS, NO_PROXY, UnreadError, await_answer
from .cluster_node import numbers
from .host import Host
from .refusal import ImpossibleError, must

#: What kubeadm starts with the tag of Kubernetes' own version.
STATIC = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: etcd's data as they were before the newest upgrade, for root alone.
SAVED = "/var/lib/bedplate/etcd-before-upgrade.db"
#: Where kubeadm puts manifests and etcd's data before it changes them, and leaves the latter.
COPIES = "/etc/kubernetes/tmp"
#: The first to be upgraded has this done, and the last one has kubeadm move CoreDNS and kube-proxy.
APPLY, NODE = "apply", "node"
_IMAGE = re.compile(r"^\s*(?:- )?image: \S+:(\S+)$", re.MULTILINE)
_VERSION = re.compile(r"^kubernetesVersion: v?(\S+)$", re.MULTILINE)
_TAG = r"(^{}:\n(?: .*\n)*? +imageTag: )(\S+)$"
_ADDONS = {"kube-proxy": "daemonset/kube-proxy", "coredns": "deployment/coredns"}
_LONG = 1800.0
#: Until a control plane serves that kubeadm has upgraded.
_SECONDS = 300.0


class Wanted(NamedTuple):
    """What a control plane is to run.

    Attributes:
        version: of Kubernetes, like 1.36.3.
        etcd: tag of etcd's image.
        dns: tag of CoreDNS'.
        kubeadm: the program of that version; the one on the path is moved with the kubelet.
        ignored: checks of kubeadm that are not made.
    """

    version: str
    etcd: str
    dns: str
    kubeadm: str
    ignored: List[str]


class Found(NamedTuple):
    """What there is.

    Attributes:
        tags: of the images of this host's static pods, by their names.
        configuration: the cluster's, as kubeadm keeps it.
        addons: tags of kube-proxy's and CoreDNS' images, once all API servers are at the version.
    """

    tags: Dict[str, str]
    configuration: str
    addons: Dict[str, str]


def lacks(found: Found, wanted: Wanted) -> List[str]:
    """What is not as it is to be, a line each; nothing is to be done where there is none.

    etcd or CoreDNS that kubeadm does not manage is not told of.
    """
    own = dict.fromkeys((*STATIC, "kube-proxy"), f"v{wanted.version}")
    wishes = {**own, "etcd": wanted.etcd, "coredns": wanted.dns}
    there = {**found.tags, **found.addons}
    return [
        f"{name}: {tag} -> {wishes[name]}" for name, tag in there.items() if tag != wishes[name]
    ]


def find(host: Host, wanted: Wanted) -> Found:
    """Look at this control plane, and at what kubeadm keeps in its cluster.

    Raises:
        ImpossibleError: it is no control plane of kubeadm's, or is to be changed and its API does
            not answer.
    """
    tags = {}
    for name in (*STATIC, "etcd"):
        text = host.read(f"{MANIFESTS}/{name}.yaml")
        image = _IMAGE.search(text or "")
        if image:
            tags[name] = image.group(1).partition("@")[0]
        elif name in STATIC:
            raise ImpossibleError(
                f"no image in {MANIFESTS}/{name}.yaml",
                "all manifests of a control plane that kubeadm made",
                f"Put back what kubeadm moved away when it was cut off, from {COPIES}.",
            )
    alone = Found(tags, "", {})
    try:
        return Found(tags, configuration(host), _addons(host) if _all_at(host, wanted) else {})
    except (ImpossibleError, cluster_node.UnansweredError) as error:
        if not lacks(alone, wanted):
            return alone  # nothing to do here; that it does not answer is for others to say
        if isinstance(error, ImpossibleError):
            raise
        raise ImpossibleError(
            str(error), "an answer of its API", "See 'crictl ps --all' there, and run it again."
        ) from None


def _all_at(host: Host, wanted: Wanted) -> bool:
    """Whether each API server is at the version: kubeadm leaves the addons alone until then."""
    return set(cluster_node.api_servers(host).values()) == {wanted.version}


def _addons(host: Host) -> Dict[str, str]:
    found = {}
    for name, kind in _ADDONS.items():
        images = _ask(host, kind, "{.spec.template.spec.containers[*].image}").split()
        mine = [one.rpartition(":")[2] for one in images if f"/{name}:" in one]
        if mine:
            found[name] = mine[0]
    return found


def _ask(host: Host, what: str, path: str) -> str:
    argv = ["get", what, "--ignore-not-found", f"--output=jsonpath={path}"]
    return must(host, [*_kubectl(host), *argv]).out


def _kubectl(host: Host, *, wait: bool = False) -> List[str]:
    config = host.path("/etc/kubernetes/admin.conf")
    argv = ["kubectl", f"--kubeconfig={config}", "--namespace=kube-system"]
    return argv if wait else [*argv, "--request-timeout=20s"]


def check(found: Found, wanted: Wanted) -> None:
    """Refuse a way that Kubernetes does not go: down, or over a minor version.

    Raises:
        ImpossibleError: it is one.
    """
    for name in STATIC:
        tag = found.tags[name].lstrip("v")
        has, wishes = numbers(tag), numbers(wanted.version)
        if has > wishes:
            raise ImpossibleError(
                f"{name} {tag}",
                f"{wanted.version} or older: Kubernetes is never downgraded",
                f"Set bedplate_kubernetes.version to {tag} or newer, and run 'bedplate plan'.",
            )
        if wishes[:2] > (has[0], has[1] + 1):
            between = f"{has[0]}.{has[1] + 1}"
            raise ImpossibleError(
                f"{name} {tag}",
                f"{between} next: Kubernetes goes up by one minor version at a time",
                "Restore the lock from before this plan (git has it). Set"
                f" bedplate_kubernetes.version to a release of {between}, run 'bedplate plan' and"
                " this playbook, and go on from there.",
            )


def upgrade(host: Host, wanted: Wanted, found: Found) -> None:
    """Have kubeadm bring this control plane to the wanted version, and see that it did.

    A run that was cut off is finished by the next one. kubeadm puts the manifest of before back
    where a static pod of the new version does not come up; its own copies go when all is well.

    Raises:
        ImpossibleError: it did not come about.
    """
    _refuse_without(host)
    first = _version(found.configuration) != wanted.version
    if first and found.tags["kube-apiserver"] != f"v{wanted.version}" and "etcd" in found.tags:
        backup.snapshot(host, SAVED)
    _retag(host, wanted, found.configuration)
    argv = [
        wanted.kubeadm,
        "upgrade",
        *([APPLY, f"v{wanted.version}", "--yes"] if first else [NODE]),
    ]
    if wanted.ignored:
        argv.append(f"--ignore-preflight-errors={','.join(wanted.ignored)}")
    kept = set(host.list(COPIES))
    try:
        with backup.alone(host):
            must(host, argv, _LONG, NO_PROXY)
    except ImpossibleError:
        # One that joins meanwhile would get the new etcd with the old Kubernetes. Where the API has
        # gone silent, kubeadm's own reason is the one to report.
        with contextlib.suppress(ImpossibleError):
            if first and _version(configuration(host)) != wanted.version:
                configure(host, found.configuration)
        raise
    try:
        serves = await_answer(host, _SECONDS)
    except UnreadError:
        serves = False
    if not serves:
        raise ImpossibleError(
            f"no answer of its own API server, or not all its static pods, after {_SECONDS:.0f} s",
            "a control plane that serves",
            f"See {MANIFESTS} and 'crictl ps --all' there, and run the play again.",
        )
    now = find(host, wanted)
    left = lacks(now, wanted)
    if left:
        raise ImpossibleError(
            "; ".join(left),
            "all of it at the requested version, as kubeadm has reported it",
            f"See {MANIFESTS} and 'crictl ps --all' there, and run the play again.",
        )
    if "coredns" in now.addons:
        argv = ["rollout", "status", "deployment/coredns", f"--timeout={_SECONDS:.0f}s"]
        must(host, [*_kubectl(host, wait=True), *argv], _SECONDS + 60)
    for name in set(host.list(COPIES)) - kept:
        if name.startswith("kubeadm-backup-"):
            shutil.rmtree(host.path(f"{COPIES}/{name}"), ignore_errors=True)


def _refuse_without(host: Host) -> None:
    """Refuse while a control plane is not Ready: kubeadm would, after the cluster was changed."""
    path = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'
    argv = ["get", "nodes", "--selector=node-role.kubernetes.io/control-plane"]
    said = must(host, [*_kubectl(host), *argv, f"--output=jsonpath={path}"]).out.split()
    down = [one.partition("=")[0] for one in said if not one.endswith("=True")]
    if down:
        raise ImpossibleError(
            f"{', '.join(down)} not Ready",
            "all control planes Ready: a cluster is upgraded as a whole",
            "Bring them up, or take those that are lost out of the cluster, and run it again.",
        )


def _version(configuration: str) -> str:
    found = _VERSION.search(configuration)
    return found.group(1) if found else ""


def configuration(host: Host) -> str:
    """The cluster's configuration as kubeadm keeps it, in YAML.

    Raises:
        ImpossibleError: the API did not answer.
    """
    return _ask(host, "configmap/kubeadm-config", "{.data.ClusterConfiguration}")


def _retag(host: Host, wanted: Wanted, configuration: str) -> None:
    """Write the tags of etcd and CoreDNS where kubeadm takes them from.

    `kubeadm upgrade apply` keeps those that the cluster was made with (1.36.3): without this a new
    Kubernetes goes on with the old etcd. It accepts no other configuration of the cluster.
    """
    text = configuration
    for section, tag in (("etcd", wanted.etcd), ("dns", wanted.dns)):
        pattern = re.compile(_TAG.format(section), re.MULTILINE)
        text = pattern.sub(rf"\g<1>{tag}", text)
    if text != configuration:
        configure(host, text)


def configure(host: Host, text: str) -> None:
    """Have kubeadm keep another configuration of the cluster.

    Raises:
        ImpossibleError: the API did not take it.
    """
    patch = json.dumps({"data": {"ClusterConfiguration": text}})
    argv = ["patch", "configmap", "kubeadm-config", "--type=merge", f"--patch={patch}"]
    must(host, [*_kubectl(host), *argv])
