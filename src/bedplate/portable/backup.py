"""A control plane's backup: etcd's snapshot with the authorities, and a control plane made of it.

etcd's programs are those of the image that etcd runs from: its own image has all three since 3.6
(github.com/kubernetes/k8s.io, pull request 8596). `etcdutl` goes into the backup, because a host on
which nothing runs yet has no etcd to take it from.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import tarfile
import zlib
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, NamedTuple
from urllib.parse import urlsplit

from . import certificates, documents, encryption_keys
from .host import Host, Result, make_folders
from .refusal import ImpossibleError, must

FORMAT = 1
#: Where a backup is put together and unpacked; root alone may look in.
FOLDER = "/var/lib/bedplate/backup"
#: What is encrypted, for whoever fetches it.
SEALED = "/var/lib/bedplate/backup.cms"
#: The note by which the provider knows a member, which it writes too, and what it holds meanwhile.
MARK = "/var/lib/bedplate/membership.json"
LOCK = "/run/bedplate-membership.lock"
#: Bytes that `openssl cms -decrypt` still opens, of a file of any size that it writes: it holds all
#: in one buffer (github.com/openssl/openssl, issue 26274, read 2026-11-30).
MOST = 1_400_000_000
DEFAULT_PORT = 6443
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
_LONG = 1800.0


def decoded(answer: Result) -> Any:
    """The JSON of an answer of one of etcd's programs, or of the container runtime.

    Raises:
        ImpossibleError: it is none.
    """
    try:
        return documents.parsed(answer.out)
    except ValueError as error:
        raise ImpossibleError(
            f"an answer that is no JSON: {error}", "JSON", "See etcd's log."
        ) from None


class NoClientError(ImpossibleError):
    """The image that etcd runs from lacks a program that is needed."""


@contextlib.contextmanager
def _folder(host: Host) -> Iterator[str]:
    """An empty folder for root alone, which is gone afterwards: keys lie in it."""
    folder = host.path(FOLDER)
    with alone(host):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder, mode=0o700)
            yield folder
        except OSError as error:
            raise ImpossibleError(
                str(error),
                "files that can be written, and three times etcd's size below /var/lib/bedplate",
                "Fix that, and run the play again.",
            ) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def alone(host: Host) -> Iterator[None]:
    """Hold what the provider holds while it changes a membership."""
    os.makedirs(os.path.dirname(host.path(LOCK)), exist_ok=True)
    with open(host.path(LOCK), "a", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImpossibleError(
                f"another run that holds {LOCK}",
                "one at a time",
                "Wait until it has ended, and run the play again.",
            ) from None
        yield


def _programs(host: Host, *wanted: str) -> str:
    """The folder of etcd's programs, in the root directory of the etcd that runs."""
    pid, look = 0, "See 'crictl ps --all --name etcd' there."
    try:
        argv = ["crictl", "ps", "--name=^etcd$", "--state=Running", "-o=json"]
        found = [
            one["id"]
            for one in decoded(must(host, argv)).get("containers") or []
            if one["labels"].get("io.kubernetes.pod.namespace") == "kube-system"
        ]
        if found:
            pid = decoded(must(host, ["crictl", "inspect", "-o=json", found[0]]))["info"]["pid"]
    except (AttributeError, KeyError, TypeError):
        raise ImpossibleError(
            "an answer of crictl without containers, labels or a process",
            "an answer of containerd or CRI-O",
            look,
        ) from None
    root = f"/proc/{pid}/root"
    programs = f"{root}/usr/local/bin"
    lacking = [name for name in wanted if not host.exists(f"{programs}/{name}")]
    # It may have ended since crictl was asked, and lacks everything then.
    if not pid or not host.exists(root):
        raise ImpossibleError("no etcd that runs", "one", look)
    if lacking:
        raise NoClientError(
            f"an image of etcd without {' and '.join(lacking)}",
            "etcd's own image, of 3.6 or newer, which has both in /usr/local/bin",
            "Plan a Kubernetes whose etcd is that new, or save etcd by programs of your own.",
        )
    return host.path(programs)


def etcd_client(host: Host, programs: str = "") -> List[str]:
    """The command that asks this control plane's etcd.

    Raises:
        ImpossibleError: no etcd runs.
        NoClientError: its image has no client.
    """
    programs = programs or _programs(host, "etcdctl")
    pki = host.path(PKI)
    argv = [programs + "/etcdctl", "--endpoints=https://127.0.0.1:2379"]
    argv += [f"--cacert={pki}/etcd/ca.crt", f"--cert={pki}/etcd/healthcheck-client.crt"]
    return [*argv, f"--key={pki}/etcd/healthcheck-client.key"]


def snapshot(host: Host, path: str) -> None:
    """Save etcd's data to a file of this host, for root alone.

    Raises:
        ImpossibleError: it did not come about; a file that was there is as it was.
    """
    real = host.path(path)
    make_folders(os.path.dirname(real))
    must(host, [*etcd_client(host), "snapshot", "save", real + ".new"], _LONG)
    os.chmod(real + ".new", 0o600)
    os.replace(real + ".new", real)


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
    must(host, argv, _LONG)


def _members(host: Host, client: List[str]) -> Dict[str, str]:
    listed = decoded(must(host, [*client, "member", "list", "-w=json"]))
    return {one["name"]: one["peerURLs"][0] for one in listed["members"] if one.get("name")}


def _kubectl(host: Host, *arguments: str) -> Result:
    config = f"--kubeconfig={host.path('/etc/kubernetes/admin.conf')}"
    return must(host, ["kubectl", config, *arguments])


def _kubeadm(host: Host) -> str:
    """What kubeadm keeps of its configuration in the cluster: the two documents that go on."""
    texts = []
    for name, key in (("kubeadm-config", "ClusterConfiguration"), ("kubelet-config", "kubelet")):
        found = _kubectl(host, "--namespace=kube-system", "get", "configmap", name, "-o=json")
        texts.append(decoded(found)["data"][key])
    return "---\n".join(text.rstrip("\n") + "\n" for text in texts)


def save(host: Host, certificate: str, now: datetime) -> Dict[str, Any]:
    """Write the encrypted backup to `SEALED`, and return what it says of itself.

    The snapshot was restored once, beside the etcd that runs, before it counts as one.
    ``certificate`` is in PEM, and who has its key can read the backup. Who is killed in between
    leaves the folder, for root alone, until the next run.

    Raises:
        ImpossibleError: it did not come about; nothing is left of it.
    """
    programs = _programs(host, "etcdctl", "etcdutl")
    pki = host.path(PKI)
    client = etcd_client(host, programs)
    lacking = [name for name in AUTHORITIES if not host.exists(f"{PKI}/{name}")]
    if lacking:
        raise ImpossibleError(
            f"no {', '.join(lacking)} in {PKI}",
            "authorities with their keys: without them the cluster cannot be made again",
            "Put them there, or keep a backup of your own where they are.",
        )
    with _folder(host) as folder:
        snapshot, program = f"{folder}/etcd.db", f"{folder}/etcdutl"
        shutil.copyfile(programs + "/etcdutl", program)
        os.chmod(program, 0o700)
        members = _members(host, client)
        must(host, [*client, "snapshot", "save", snapshot], _LONG)
        _restored(host, program, snapshot, f"{folder}/tried", "tried", "https://127.0.0.1:2380")
        shutil.rmtree(f"{folder}/tried")
        status = decoded(must(host, [program, "snapshot", "status", snapshot, "-w=json"], _LONG))
        said = {
            "format": FORMAT,
            "made": now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "kubernetes": _version(host),
            "members": members,
            "endpoint": documents.table(host.read(MARK)).get("endpoint", ""),
            "data_folder": data_folder(host),
            "revision": status["revision"],
            "keys": status["totalKey"],
        }
        host.write(f"{FOLDER}/backup.json", json.dumps(said, sort_keys=True) + "\n", mode=0o600)
        host.write(f"{FOLDER}/kubeadm.yaml", _kubeadm(host), mode=0o600)
        for name in _kept(pki):
            target = f"{folder}/pki/{name}"
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(f"{pki}/{name}", target)
        _seal(host, folder, certificate)
    return said


def _kept(pki: str) -> List[str]:
    """What is kept of a folder of keys; that of Secrets is not everywhere."""
    secrets_key = encryption_keys.NAME
    return [*AUTHORITIES, *([secrets_key] if os.path.exists(f"{pki}/{secrets_key}") else [])]


def _version(host: Host) -> str:
    return must(host, ["kubeadm", "version", "-o=short"]).out.strip().lstrip("v")


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
    must(host, argv, _LONG)
    size = os.path.getsize(f"{folder}/sealed")
    if size > MOST:
        raise ImpossibleError(
            f"a backup of {size} bytes",
            f"{MOST}: 'openssl cms -decrypt' opens no larger one",
            "Compact and defragment etcd; if it stays so large, save it by programs of your own.",
        )
    # Whoever fetches it need not be root, and cannot read it either.
    os.chmod(f"{folder}/sealed", 0o644)
    os.replace(f"{folder}/sealed", sealed)


class Wanted(NamedTuple):
    """What is to be restored, and on which host.

    Attributes:
        archive: the decrypted backup, a file on the host.
        name: the host's node.
        endpoint: of the cluster, as HOST:PORT.
        cri_socket: where the host's container runtime listens.
        ignored: checks of kubeadm that are not made.
    """

    archive: str
    name: str
    endpoint: str
    cri_socket: str
    ignored: List[str]


def restore(host: Host, wanted: Wanted) -> Dict[str, Any]:
    """Make this host the first control plane of the cluster that a backup is of.

    A run that was cut off is begun anew: its note is at `MARK` until `finish`. Where its API
    server answers there is a cluster already, which somebody may use: it is left as it is.

    Raises:
        ImpossibleError: it did not come about. A host that is a member was not touched.
    """
    name = wanted.name
    cut_off = documents.table(host.read(MARK)).get("action") == "restore"
    with _folder(host) as folder:
        said = _unpacked(host, folder, wanted)
        if cut_off and certificates.answers(host):
            return said
        data = said["data_folder"]
        there = [one for one in OF_A_MEMBER if host.exists(one)]
        there += [f"{data}/{one}" for one in host.list(data)]
        if there and not cut_off:
            raise ImpossibleError(
                ", ".join(there),
                "a host that is no member of a cluster: these are what a restore would replace",
                f"Copy {data} elsewhere if nothing newer is saved. Then run 'kubeadm reset' there,"
                " and the play again.",
            )
        noted = {"name": name, "action": "restore", "endpoint": said["endpoint"], "phase": "begun"}
        host.write(MARK, json.dumps(noted) + "\n")
        if cut_off:
            must(host, ["kubeadm", "reset", "--force", f"--cri-socket={wanted.cri_socket}"], 300)
            shutil.rmtree(host.path(data), ignore_errors=True)
        _laid(host, folder, name, said)
        config = f"{folder}/init.yaml"
        host.write(f"{FOLDER}/init.yaml", _init(host, wanted, said), mode=0o600)
        must(host, ["systemctl", "enable", "kubelet"])
        skipped = ",".join([*wanted.ignored, "DirAvailable-" + data.replace("/", "-")])
        argv = ["kubeadm", "init", f"--config={config}", f"--skip-phases={NOT_AGAIN}"]
        argv += ["--skip-token-print", f"--ignore-preflight-errors={skipped}"]
        must(host, argv, 600)
    return said


def _unpacked(host: Host, folder: str, wanted: Wanted) -> Dict[str, Any]:
    """Unpack a backup, and return what it says of itself where it fits this host."""
    name = wanted.name
    try:
        with tarfile.open(wanted.archive) as tar:
            # Python 3.14's default, where a host's Python has it.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            tar.extractall(folder)  # noqa: S202 - who could write it has the cluster's authority
        said = documents.table(host.read(f"{FOLDER}/backup.json"))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ImpossibleError(
            f"no backup: {error}",
            "what bedplate.gpu.backup made, and the key of its certificate",
            "Name another file, or another key.",
        ) from None
    if said.get("format") != FORMAT:
        raise ImpossibleError(
            f"a backup of format {said.get('format')}",
            f"format {FORMAT}",
            "Restore it with the version of Bedplate that made it.",
        )
    if said["endpoint"] != wanted.endpoint:
        raise ImpossibleError(
            f"a backup of the cluster at {said['endpoint']}",
            f"one of the site's, at {wanted.endpoint}",
            "Name another file, or the site that it is of.",
        )
    found, saved = _version(host), said["kubernetes"]
    if found != saved:
        raise ImpossibleError(
            f"kubeadm {found} on the host, and a backup of Kubernetes {saved}",
            f"kubeadm {saved}",
            f"Plan the site for Kubernetes {saved}, run bedplate.gpu.site, and run the play again.",
        )
    if name not in said["members"]:
        raise ImpossibleError(
            f"{name}, which had no etcd when the backup was made",
            f"one of {', '.join(sorted(said['members']))}",
            "Give the host that name in the site.",
        )
    address = _address(said, name)
    if f" {address}/" not in must(host, ["ip", "-oneline", "address"]).out:
        raise ImpossibleError(
            f"a host without the address {address}, which {name} had",
            "that address: the other control planes are to find etcd there",
            "Give the host that address.",
        )
    return said


def _address(said: Dict[str, Any], name: str) -> str:
    return urlsplit(said["members"][name]).hostname or ""


def _port(said: Dict[str, Any], name: str) -> int:
    """Where its API server listens: at the endpoint's port if that is the host's own address."""
    server, port = said["endpoint"].rsplit(":", 1)
    return int(port) if server.strip("[]") == _address(said, name) else DEFAULT_PORT


def _laid(host: Host, folder: str, name: str, said: Dict[str, Any]) -> None:
    """Put authorities and etcd's data where kubeadm takes them from."""
    for one in _kept(f"{folder}/pki"):
        target = host.path(f"{PKI}/{one}")
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        shutil.copyfile(f"{folder}/pki/{one}", target)
        os.chmod(target, 0o600 if one.endswith((".key", ".json")) else 0o644)
    data = host.path(said["data_folder"])
    peer = said["members"][name]
    # By name, address and token members know each other: one of before that comes back must not.
    token = f"{said['made']}-{secrets.token_hex(8)}"
    after = [f"--bump-revision={BUMP}", "--mark-compacted", f"--initial-cluster-token={token}"]
    _restored(host, f"{folder}/etcdutl", f"{folder}/etcd.db", data, name, peer, *after)
    os.chmod(data, 0o700)


def finish(host: Host, name: str, said: Dict[str, Any], others: List[str]) -> None:
    """Remove the nodes of the other control planes, and note that this host is a member.

    In the snapshot they are Ready. kubeadm lets no host join under the name of a node that is
    (1.36.3), until the controllers miss it.

    Raises:
        ImpossibleError: the API server did not do it.
    """
    if others:
        # Its own API server: at the endpoint another cluster may still answer.
        at = _address(said, name)
        own = f"--server=https://{f'[{at}]' if ':' in at else at}:{_port(said, name)}"
        _kubectl(host, own, "delete", "node", "--ignore-not-found", *others)
    noted = {"name": name, "action": "init", "endpoint": said["endpoint"], "phase": "done"}
    host.write(MARK, json.dumps(noted) + "\n")


def _init(host: Host, wanted: Wanted, said: Dict[str, Any]) -> str:
    """kubeadm's configuration for this host, before that of the cluster."""
    own = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {
            "advertiseAddress": _address(said, wanted.name),
            "bindPort": _port(said, wanted.name),
        },
        "nodeRegistration": {"name": wanted.name, "criSocket": wanted.cri_socket},
    }
    return json.dumps(own) + "\n---\n" + (host.read(f"{FOLDER}/kubeadm.yaml") or "")
