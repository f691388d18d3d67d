"""A control plane's backup: etcd's snapshot with the authorities, and a control plane made of it.

etcd's programs are those of the image that etcd runs from: its own image has all three since 3.6
(github.com/kubernetes/k8s.io, pull request 8596). `etcdutl` goes into the backup, because a host on
which nothing runs yet has no etcd to take it from.
"""

import contextlib
import json
import os
import re
import shutil
import tarfile
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List
from urllib.parse import urlsplit

from . import documents
from .certificates import API_SERVER
from .host import Host, Result

FORMAT = 1
#: Where a backup is put together and unpacked; root alone may look in.
FOLDER = "/var/lib/bedplate/backup"
#: What is encrypted, for whoever fetches it.
SEALED = "/var/lib/bedplate/backup.cms"
#: The note by which the provider knows a member, which it writes too.
MARK = "/var/lib/bedplate/membership.json"
#: What only the cluster's maker can have: all other certificates come of these.
AUTHORITIES = (
    "ca.crt",
    "ca.key",
    "etcd/ca.crt",
    "etcd/ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "sa.key",
    "sa.pub",
)
PKI = "/etc/kubernetes/pki"
MANIFEST = "/etc/kubernetes/manifests/etcd.yaml"
#: What says that a host is a member of a cluster, or was.
OF_A_MEMBER = ("/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf", PKI + "/ca.crt")
#: Revisions go on above all that a client can have seen, as etcd's page on disaster recovery asks:
#: kubelets and controllers would not notice that time has gone back. It proposes a billion, which
#: a cluster with 1,500 writes a second makes in a week.
BUMP = 1_000_000_000
#: kubeadm would set its own CoreDNS and kube-proxy over those that the snapshot has, and labels and
#: taints over the node's.
NOT_AGAIN = "addon,mark-control-plane"
_DATA = re.compile(r"--data-dir=(\S+)")
_PORT = re.compile(r"kube-apiserver\.advertise-address\.endpoint: \S+:(\d+)")
_LONG = 1800.0


class BackupError(Exception):
    """It cannot be done: ``got`` says why, ``allowed`` what it takes, ``fix`` what to do."""

    def __init__(self, got: str, allowed: str, fix: str) -> None:
        super().__init__(got)
        self.got, self.allowed, self.fix = got, allowed, fix


def _ran(host: Host, argv: List[str], timeout: float = 120) -> Result:
    answer = host.run(argv, timeout=timeout)
    if answer.code != 0:
        words = " ".join([os.path.basename(argv[0]), *argv[1:3]])
        raise BackupError(
            f"{words}: {answer.said}", f"'{words}' ends well", "Fix that, and run the play again."
        )
    return answer


def _json(answer: Result) -> Any:
    try:
        return documents.parsed(answer.out)
    except ValueError as error:
        raise BackupError(
            f"an answer that is no JSON: {error}", "JSON", "See etcd's log."
        ) from None


@contextlib.contextmanager
def _folder(host: Host) -> Iterator[str]:
    """An empty folder for root alone, which is gone afterwards: keys lie in it."""
    folder = host.path(FOLDER)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, mode=0o700)
        yield folder
    except OSError as error:
        raise BackupError(
            str(error),
            "three times etcd's size below /var/lib/bedplate, and etcd's folder",
            "Make room, and run the play again.",
        ) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(host: Host) -> str:
    """The folder of etcd's programs, in the root directory of the etcd that runs."""
    listed = _json(_ran(host, ["crictl", "ps", "--name=^etcd$", "--state=Running", "-o=json"]))
    found = [
        one["id"]
        for one in listed.get("containers") or []
        if one["labels"].get("io.kubernetes.pod.namespace") == "kube-system"
    ]
    if not found:
        raise BackupError("no etcd that runs", "one", "See 'crictl ps --all --name etcd' there.")
    pid = _json(_ran(host, ["crictl", "inspect", "-o=json", found[0]]))["info"]["pid"]
    programs = f"/proc/{pid}/root/usr/local/bin"
    lacking = [name for name in ("etcdctl", "etcdutl") if not host.exists(f"{programs}/{name}")]
    if lacking:
        raise BackupError(
            f"an image of etcd without {' and '.join(lacking)}",
            "etcd's own image, of 3.6 or newer, which has both in /usr/local/bin",
            "Plan a Kubernetes whose etcd is that new, or save etcd by programs of your own.",
        )
    return host.path(programs)


def data_folder(host: Host) -> str:
    """Where etcd's data lie on this control plane, by its manifest."""
    found = _DATA.search(host.read(MANIFEST) or "")
    return found.group(1) if found else "/var/lib/etcd"


def _restored(
    host: Host, program: str, snapshot: str, folder: str, name: str, peer: str, *more: str
) -> None:
    """Make a data folder of a snapshot, for a cluster of one member."""
    argv = [program, "snapshot", "restore", snapshot, f"--data-dir={folder}", f"--name={name}"]
    argv += [f"--initial-cluster={name}={peer}", f"--initial-advertise-peer-urls={peer}", *more]
    _ran(host, argv, _LONG)


def _members(host: Host, client: List[str]) -> Dict[str, str]:
    listed = _json(_ran(host, [*client, "member", "list", "-w=json"]))
    return {one["name"]: one["peerURLs"][0] for one in listed["members"] if one.get("name")}


def _kubectl(host: Host, *arguments: str) -> Result:
    config = f"--kubeconfig={host.path('/etc/kubernetes/admin.conf')}"
    return _ran(host, ["kubectl", config, *arguments])


def _kubeadm(host: Host) -> str:
    """What kubeadm keeps of its configuration in the cluster: the two documents that go on."""
    texts = []
    for name, key in (("kubeadm-config", "ClusterConfiguration"), ("kubelet-config", "kubelet")):
        found = _kubectl(host, "--namespace=kube-system", "get", "configmap", name, "-o=json")
        texts.append(_json(found)["data"][key])
    return "---\n".join(text.rstrip("\n") + "\n" for text in texts)


def save(host: Host, certificate: str, now: datetime) -> Dict[str, Any]:
    """Write the encrypted backup to `SEALED`, and return what it says of itself.

    The snapshot was restored once, beside the etcd that runs, before it counts as one.
    ``certificate`` is in PEM, and who has its key can read the backup.

    Raises:
        BackupError: it did not come about; nothing is left of it.
    """
    programs = _programs(host)
    pki = host.path(PKI)
    client = [programs + "/etcdctl", "--endpoints=https://127.0.0.1:2379"]
    client += [f"--cacert={pki}/etcd/ca.crt", f"--cert={pki}/etcd/healthcheck-client.crt"]
    client += [f"--key={pki}/etcd/healthcheck-client.key"]
    lacking = [name for name in AUTHORITIES if not host.exists(f"{PKI}/{name}")]
    if lacking:
        raise BackupError(
            f"no {', '.join(lacking)} in {PKI}",
            "authorities with their keys: without them the cluster cannot be made again",
            "Put them there, or keep a backup of your own where they are.",
        )
    with _folder(host) as folder:
        snapshot, program = f"{folder}/etcd.db", f"{folder}/etcdutl"
        shutil.copyfile(programs + "/etcdutl", program)
        os.chmod(program, 0o700)
        members = _members(host, client)
        _ran(host, [*client, "snapshot", "save", snapshot], _LONG)
        _restored(host, program, snapshot, f"{folder}/tried", "tried", "https://127.0.0.1:2380")
        shutil.rmtree(f"{folder}/tried")
        status = _json(_ran(host, [program, "snapshot", "status", snapshot, "-w=json"], _LONG))
        port = _PORT.search(host.read(API_SERVER) or "")
        said = {
            "format": FORMAT,
            "made": now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "kubernetes": _version(host),
            "members": members,
            "endpoint": documents.table(host.read(MARK)).get("endpoint", ""),
            "port": int(port.group(1)) if port else 6443,
            "data_folder": data_folder(host),
            "revision": status["revision"],
            "keys": status["totalKey"],
        }
        host.write(f"{FOLDER}/backup.json", json.dumps(said, sort_keys=True) + "\n", mode=0o600)
        host.write(f"{FOLDER}/kubeadm.yaml", _kubeadm(host), mode=0o600)
        for name in AUTHORITIES:
            target = f"{folder}/pki/{name}"
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(f"{pki}/{name}", target)
        _seal(host, folder, certificate)
    return said


def _version(host: Host) -> str:
    return _ran(host, ["kubeadm", "version", "-o=short"]).out.strip().lstrip("v")


def _seal(host: Host, folder: str, certificate: str) -> None:
    """Encrypt all that lies in the folder for the owner of a certificate."""
    packed, public = f"{folder}/all.tar.gz", f"{folder}/for.pem"
    names = sorted(os.listdir(folder))
    with tarfile.open(packed, "w:gz") as tar:
        for name in names:
            tar.add(f"{folder}/{name}", name)
    host.write(f"{FOLDER}/for.pem", certificate)
    sealed = host.path(SEALED)
    argv = ["openssl", "cms", "-encrypt", "-binary", "-stream", "-aes-256-cbc"]
    argv += ["-in", packed, "-outform", "DER", "-out", f"{folder}/sealed", public]
    _ran(host, argv, _LONG)
    # Whoever fetches it need not be root, and cannot read it either.
    os.chmod(f"{folder}/sealed", 0o644)
    os.replace(f"{folder}/sealed", sealed)


def restore(
    host: Host, packed: str, name: str, cri_socket: str, ignored: List[str]
) -> Dict[str, Any]:
    """Make this host the first control plane of the cluster that a backup is of.

    A run that was cut off is begun anew: its note is at `MARK` until `finish`.

    Args:
        packed: the decrypted backup, an archive on this host.
        name: the host's node.
        cri_socket: where its container runtime listens.
        ignored: checks of kubeadm that are not made.

    Raises:
        BackupError: it did not come about. A host that is a member was not touched.
    """
    mark = documents.table(host.read(MARK))
    cut_off = mark.get("action") == "restore"
    with _folder(host) as folder:
        said = _unpacked(host, packed, folder, name)
        data = said["data_folder"]
        there = [one for one in (*OF_A_MEMBER, data + "/member") if host.exists(one)]
        if there and not cut_off:
            raise BackupError(
                ", ".join(there),
                "a host that is no member of a cluster: these are what a restore would replace",
                "Run 'kubeadm reset' there if all of it may go, and run the play again.",
            )
        noted = {"name": name, "action": "restore", "endpoint": said["endpoint"], "phase": "begun"}
        host.write(MARK, json.dumps(noted) + "\n")
        if cut_off:
            _ran(host, ["kubeadm", "reset", "--force", f"--cri-socket={cri_socket}"], 300)
        _laid(host, folder, name, said)
        config = f"{folder}/init.yaml"
        host.write(f"{FOLDER}/init.yaml", _init(host, name, cri_socket, said), mode=0o600)
        _ran(host, ["systemctl", "enable", "kubelet"])
        skipped = ",".join([*ignored, "DirAvailable-" + data.replace("/", "-")])
        argv = ["kubeadm", "init", f"--config={config}", f"--skip-phases={NOT_AGAIN}"]
        argv += ["--skip-token-print", f"--ignore-preflight-errors={skipped}"]
        _ran(host, argv, 600)
    return said


def _unpacked(host: Host, packed: str, folder: str, name: str) -> Dict[str, Any]:
    """Unpack a backup, and return what it says of itself where it fits this host."""
    try:
        with tarfile.open(packed) as tar:
            # Python 3.14's default, where a host's Python has it.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            tar.extractall(folder)  # noqa: S202 - who could write it has the cluster's authority
        said = documents.table(host.read(f"{FOLDER}/backup.json"))
    except (OSError, tarfile.TarError, EOFError) as error:
        raise BackupError(
            f"no backup: {error}", "what bedplate.gpu.backup made", "Name another file."
        ) from None
    if said.get("format") != FORMAT:
        raise BackupError(
            f"a backup of format {said.get('format')}",
            f"format {FORMAT}",
            "Restore it with the version of Bedplate that made it.",
        )
    found, saved = _version(host), said["kubernetes"]
    if found != saved:
        raise BackupError(
            f"kubeadm {found} on the host, and a backup of Kubernetes {saved}",
            f"kubeadm {saved}",
            f"Plan the site for Kubernetes {saved}, run bedplate.gpu.site, and run the play again.",
        )
    if name not in said["members"]:
        raise BackupError(
            f"{name}, which had no etcd when the backup was made",
            f"one of {', '.join(sorted(said['members']))}",
            "Give the host that name in the site.",
        )
    return said


def _laid(host: Host, folder: str, name: str, said: Dict[str, Any]) -> None:
    """Put authorities and etcd's data where kubeadm takes them from."""
    for one in AUTHORITIES:
        target = host.path(f"{PKI}/{one}")
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        shutil.copyfile(f"{folder}/pki/{one}", target)
        os.chmod(target, 0o600 if one.endswith(".key") else 0o644)
    data = host.path(said["data_folder"])
    shutil.rmtree(data, ignore_errors=True)
    peer = said["members"][name]
    after = [f"--bump-revision={BUMP}", "--mark-compacted"]
    _restored(host, f"{folder}/etcdutl", f"{folder}/etcd.db", data, name, peer, *after)
    os.chmod(data, 0o700)


def finish(host: Host, name: str, said: Dict[str, Any], others: List[str]) -> None:
    """Remove the nodes of the other control planes, and note that this host is a member.

    In the snapshot they are Ready. kubeadm lets no host join under the name of a node that is
    (1.36.3), until the controllers miss it.

    Raises:
        BackupError: the API server did not do it.
    """
    if others:
        _kubectl(host, "delete", "node", "--ignore-not-found", *others)
    noted = {"name": name, "action": "init", "endpoint": said["endpoint"], "phase": "done"}
    host.write(MARK, json.dumps(noted) + "\n")


def _init(host: Host, name: str, cri_socket: str, said: Dict[str, Any]) -> str:
    """kubeadm's configuration for this host, before that of the cluster."""
    own = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {
            "advertiseAddress": urlsplit(said["members"][name]).hostname,
            "bindPort": said["port"],
        },
        "nodeRegistration": {"name": name, "criSocket": cri_socket},
    }
    return json.dumps(own) + "\n---\n" + (host.read(f"{FOLDER}/kubeadm.yaml") or "")
