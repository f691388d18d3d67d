"""The part of the provider that runs on a host: looking, joining and leaving, under one lock.

The provider sends this file's text to the host's `python3` on standard input, followed by one call
of `main` with a JSON request: secrets never appear in a command line. Everything that decides and
changes membership happens here in one round trip while a lock on the host is held, so that two
creates of the same host, or a create that follows a killed engine whose command still runs, never
join twice. It must run on any supported host: standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARK = "var/lib/bedplate/membership.json"
LOCK = "run/bedplate-membership.lock"
OURS_IN_IPTABLES = re.compile(r"KUBE-|FLANNEL-|CNI-(HOSTPORT|DN)-|\bcni0\b")
LINKS = ("cni0", "flannel.1")
# How kubectl words the API's answers 404, 403 and 401 to the question for a node.
NO_OF_THE_API = re.compile(
    r'^(Error from server \((NotFound|Forbidden)\): nodes "'
    r"|error: You must be logged in to the server \()",
    re.MULTILINE,
)
# What Secrets are encrypted with: kubeadm copies all other keys to a control plane that joins.
ENCRYPTION = "etc/kubernetes/pki/encryption.json"
API_SERVER = "etc/kubernetes/manifests/kube-apiserver.yaml"
KUBE_FILES = ("admin.conf", "kubelet.conf", "bootstrap-kubelet.conf", "pki/ca.crt")
# What etcd says that refuses to remove a member, before it asks the others for it (etcd 3.6.8,
# `EtcdServer.mayRemoveMember`, read 2026-12-01). All else may have reached them.
REFUSALS = ("unhealthy cluster", "not enough started members")
# Says that keepalived was stopped here so that the cluster's address leaves this host.
GIVEN = "var/lib/bedplate/endpoint-given-away"
KEEPALIVED, OURS = "etc/keepalived/keepalived.conf", "# Managed by Bedplate"
CONTROL_PLANE_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# How long a kubelet that kubeadm had already started gets to end its join by itself.
BOOTSTRAP_SECONDS = 60.0
# How long a command that is ended is waited for.
LAST_SECONDS = 5.0
# How long an endpoint gets to answer, and what a balancer says that has nobody behind it.
ANSWER_SECONDS = 5.0
NOBODY_BEHIND = (502, 503, 504)


class RefusalError(Exception):
    """A request that must not be carried out; the text is a complete message for the user."""


class FailureError(Exception):
    """A command that failed; the text carries the command and its last output."""


class Host:
    """The host's file system and commands. `root` is `/` except in tests."""

    def __init__(self, root: Path, budget: float) -> None:
        self.root = root
        self.deadline = time.monotonic() + budget
        self.held: tuple[int, ...] = ()

    def path(self, relative: str) -> Path:
        """Return a path below the root."""
        return self.root / relative

    def left(self) -> float:
        """Return the seconds until the deadline, at least one."""
        return max(1.0, self.deadline - time.monotonic())

    def try_run(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command within the budget and return what it did, whatever its exit status."""
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # so that its children can be ended with it
                pass_fds=self.held,
            )
        except FileNotFoundError as error:
            raise RefusalError(
                f"{argv[0]} is not installed on this host: prepare it with ansible-playbook "
                "bedplate.gpu.site first"
            ) from error
        try:
            output, _ = process.communicate(stdin, timeout=self.left())
        except subprocess.TimeoutExpired as error:
            end_group(process)
            said = error.output or b""
            text = said.decode(errors="replace") if isinstance(said, bytes) else said
            raise FailureError(
                f"`{argv[0]} {argv[1]}` did not end in time: {tail(text)}"
            ) from error
        except BaseException:
            end_group(process)
            raise
        return subprocess.CompletedProcess(argv, process.returncode, output)

    def run(self, *argv: str, stdin: str = "") -> str:
        """Run a command and return its output; raise `FailureError` if it fails."""
        done = self.try_run(*argv, stdin=stdin)
        if done.returncode:
            what = " ".join(argv[:2])
            raise FailureError(f"`{what}` ended with status {done.returncode}: {tail(done.stdout)}")
        return done.stdout

    @staticmethod
    def answers(endpoint: str) -> bool:
        """Tell whether an API server answers there, whatever it says; nothing is sent to it."""
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        handlers = (
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=unverified),
        )
        try:
            asked = urllib.request.build_opener(*handlers)
            asked.open(f"https://{endpoint}/readyz", timeout=ANSWER_SECONDS).close()
        except urllib.error.HTTPError as error:
            return error.code not in NOBODY_BEHIND
        except (OSError, http.client.HTTPException):
            return False
        return True


def end_group(process: subprocess.Popen[str]) -> None:
    """End a command, and all that it has started in its session."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # One that waits for a device in the kernel ends later, or never.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LAST_SECONDS)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def tail(text: str, lines: int = 25) -> str:
    """Return the last lines of an output."""
    return "\n".join(text.strip().splitlines()[-lines:])


@contextlib.contextmanager
def locked(host: Host) -> Iterator[None]:
    """Hold the host's membership lock; the kernel releases it when this process has ended.

    Its commands hold it too: a kubeadm that outlives this process is still at work.
    """
    path = host.path(LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > host.deadline:
                    raise FailureError(
                        f"another run still holds {path} on this host: see `fuser -v {path}` there"
                    ) from None
                time.sleep(0.2)
        host.held = (handle.fileno(),)
        yield


def read_mark(host: Host) -> dict[str, Any]:
    """Return what an earlier run noted about this host's membership; empty if nothing."""
    try:
        found = json.loads(host.path(MARK).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_mark(host: Host, mark: dict[str, Any]) -> None:
    """Note the membership, atomically."""
    path = host.path(MARK)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(mark, sort_keys=True) + "\n")
    fresh.replace(path)


def authority(host: Host) -> str:
    """Return the SHA-256 of the cluster's CA certificate on this host, or an empty string."""
    try:
        pem = host.path("etc/kubernetes/pki/ca.crt").read_text()
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.strip())).hexdigest()
    except (FileNotFoundError, ValueError):
        return ""


def leftovers(host: Host) -> list[str]:
    """Return which files of a cluster lie on this host."""
    return [name for name in KUBE_FILES if host.path(f"etc/kubernetes/{name}").exists()]


def registered(host: Host, name: str) -> bool:
    """Say whether the API knows this host's node, asked with the kubelet's own credentials.

    Only the API's own no is a no. Anything else (a control plane that is just starting, a broken
    network, a certificate that is not trusted) says nothing about this host, and what is not known
    must not lead to a reset.
    """
    config = host.path("etc/kubernetes/kubelet.conf")
    done = host.try_run("kubectl", f"--kubeconfig={config}", "get", "node", name, "-o", "name")
    if done.returncode == 0:
        return True
    if NO_OF_THE_API.search(done.stdout):
        return False
    raise FailureError(
        "whether this host is still a member is not known, so it is left alone: the cluster's API "
        f"did not say: {tail(done.stdout)}"
    )


def look(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Say what this host is: `none`, `half` or `member`, and of which cluster."""
    found = leftovers(host)
    mark = read_mark(host)
    if not found and not mark:
        return {"state": "none", "authority": "", "mark": mark}
    mine = authority(host)
    whole = "kubelet.conf" in found and mark.get("phase") != "begun"
    # A member of a cluster with another authority is not asked about: nobody there can say.
    if whole and mine == request.get("authority", mine):
        whole = registered(host, request["name"])
    return {"state": "member" if whole else "half", "authority": mine, "mark": mark}


def ended_by_itself(host: Host, request: dict[str, Any], seen: dict[str, Any]) -> bool:
    """Say whether a worker's join that was cut off became a membership all the same.

    kubeadm leaves the rest to the kubelet once it has started it: that asks for its certificate
    and registers its node, whether kubeadm lives or not. Joining again would do both twice. A
    control plane's join has phases after that, so it never counts as ended.
    """
    mark = seen["mark"]
    ours = (mark.get("action"), mark.get("endpoint")) == ("join", request["endpoint"])
    started = {"kubelet.conf", "bootstrap-kubelet.conf"} & set(leftovers(host))
    # A worker has manifests too: the device plugin's is put there as soon as there is a kubelet.
    worker = not host.path("etc/kubernetes/pki/apiserver.crt").exists() and not any(
        host.path(f"etc/kubernetes/manifests/{name}.yaml").exists() for name in CONTROL_PLANE_PODS
    )
    if not (ours and started and worker and seen["authority"] == request["authority"]):
        return False
    host.run("systemctl", "start", "kubelet")
    until = min(time.monotonic() + BOOTSTRAP_SECONDS, host.deadline)
    while not ("kubelet.conf" in leftovers(host) and registered(host, request["name"])):
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    host.path("etc/kubernetes/bootstrap-kubelet.conf").unlink(missing_ok=True)
    write_mark(host, {**mark, "phase": "done"})
    return True


def check_tools(host: Host, version: str) -> None:
    """Refuse if kubeadm on this host is not the version that the lock says."""
    found = host.run("kubeadm", "version", "-o", "short").strip().lstrip("v")
    if found != version:
        raise RefusalError(
            f"kubeadm on this host is {found}, the lock says {version}: "
            "run ansible-playbook bedplate.gpu.site for this host, then pulumi up"
        )


def kubeadm(host: Host, action: str, request: dict[str, Any]) -> None:
    """Run `kubeadm init` or `join` with the request's configuration, marked begun and done."""
    config = host.path("run/bedplate-kubeadm.yaml")
    keys = host.path(ENCRYPTION)
    mark = {"name": request["name"], "action": action, "endpoint": request["endpoint"]}
    write_mark(host, {**mark, "phase": "begun"})
    config.touch(mode=0o600)
    if request.get("encryption"):
        keys.parent.mkdir(parents=True, exist_ok=True)
        keys.touch(mode=0o600)
        keys.write_text(request["encryption"])
    try:
        config.write_text(request["config"])
        host.run("systemctl", "enable", "kubelet")
        options = [f"--ignore-preflight-errors={','.join(request['ignore_preflight'])}"]
        if action == "init":
            options.append("--skip-token-print")
        host.run("kubeadm", action, f"--config={config}", *options)
    finally:
        config.unlink()
    write_mark(host, {**mark, "phase": "done"})


def init(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Make this host the first control plane, or take the one that it already is."""
    seen = look(host, request)
    mark = seen["mark"]
    if seen["state"] != "none":
        if not mark:
            raise RefusalError(
                "this host already carries a Kubernetes cluster that bedplate did not make "
                f"({', '.join(leftovers(host))}): run `kubeadm reset` there if it may go, or use "
                "another host"
            )
        if mark.get("action") == "restore":
            raise RefusalError(
                "this host was being restored from a backup, and the run was cut off: run "
                "ansible-playbook bedplate.gpu.restore again, then pulumi up"
            )
        if mark.get("endpoint") != request["endpoint"]:
            raise RefusalError(
                f"this host is a member of another cluster ({mark.get('endpoint')}), requested "
                f"{request['endpoint']}: destroy that cluster's stack first"
            )
        if (mark.get("action"), mark.get("phase")) == ("join", "begun") and seen["state"] == "half":
            raise RefusalError(
                "this host was on its way into the cluster, and no other control plane of the site "
                "says that it has that (allowed one that has, since a new cluster would be made "
                "here): start the others and run pulumi up again"
            )
    refuse_another_name(host, request, seen)
    adopted = seen["state"] == "member"
    data = request["etcd_data_dir"].lstrip("/")
    finished = leftovers(host) or host.path(f"{data}/member").exists()
    if seen["state"] == "half" and mark["phase"] == "done" and finished:
        # A finished control plane holds the cluster's data, whatever its API says of its node.
        raise RefusalError(
            "this host has been a whole control plane, and its API does not know its node "
            f"{request['name']} (got phase done, allowed an unfinished one): it is left as it is, "
            "since a new start would wipe etcd; restart its kubelet and run pulumi up again, or "
            "run `kubeadm reset` there yourself if the cluster may go"
        )
    if not adopted:
        check_tools(host, request["version"])
        if seen["state"] == "half":
            clean(host, request)
        if host.answers(request["endpoint"]):
            # A first control plane whose disk was lost would begin a second cluster under the same
            # address, and the nodes would go over to it.
            raise RefusalError(
                f"a cluster answers at {request['endpoint']}, and neither this host nor another "
                "control plane of the site that could be asked is a member of it (allowed no "
                "answer, since a new cluster would be made here): start the control planes that "
                "serve it, or switch off what answers if it may go"
            )
        kubeadm(host, "init", request)
    host.run("systemctl", "start", "kubelet")
    return {"adopted": adopted, **access(host, request)}


def access(host: Host, _request: dict[str, Any]) -> dict[str, Any]:
    """Return the administrator's configuration, keys, the CA's digest, and the note of joining."""
    config, mark = host.path("etc/kubernetes/admin.conf"), read_mark(host)
    keys = host.path(ENCRYPTION)
    manifest = host.path(API_SERVER)
    return {
        "kubeconfig": config.read_text() if config.exists() else "",
        "authority": authority(host),
        "encryption": keys.read_text() if keys.exists() else "",
        "encrypts": manifest.exists() and f"=/{ENCRYPTION}" in manifest.read_text(),
        "phase": mark.get("phase", ""),
        "endpoint": mark.get("endpoint", ""),
        "name": mark.get("name", ""),
        "member": bool(leftovers(host)),
        "restoring": mark.get("action") == "restore",
    }


def join(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Join this host to the cluster, or take the membership that it already has."""
    seen = look(host, request)
    foreign = seen["authority"] and seen["authority"] != request["authority"]
    # Another authority behind our own endpoint: the cluster that this host was in is gone for good.
    if foreign and seen["mark"].get("endpoint") != request["endpoint"]:
        raise RefusalError(
            "this host is a member of another cluster "
            f"({seen['mark'].get('endpoint', 'not made by bedplate')}), requested "
            f"{request['endpoint']}: take it out there, or run `kubeadm reset` on it if it may go"
        )
    if not foreign:
        way = (
            "; or take it out under that, run pulumi up, and add it under the new one afterwards "
            "(if the cluster has no such node any more, run `kubeadm reset --force` on this host "
            "and pulumi up again)"
        )
        refuse_another_name(host, request, seen, way)
    adopted = seen["state"] == "member" and not foreign
    if not adopted:
        check_tools(host, request["version"])
        adopted = seen["state"] == "half" and ended_by_itself(host, request, seen)
    if not adopted:
        if seen["state"] != "none":
            clean(host, request)
        kubeadm(host, "join", request)
    host.run("systemctl", "start", "kubelet")
    return {"adopted": adopted, **access(host, request)}


def refuse_another_name(
    host: Host, request: dict[str, Any], seen: dict[str, Any], way: str = ""
) -> None:
    """Refuse to reset a node in service because the site has given its machine another name.

    *way* is another one out of it than the old name.
    """
    name = seen["mark"].get("name", request["name"])
    if leftovers(host) and seen["mark"].get("phase") == "done" and name != request["name"]:
        raise RefusalError(
            f"this host is in the cluster under the name {name}, requested "
            f"{request['name']}: give it its old name in the inventory{way}"
        )


def reset(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Take everything of the cluster off this host, unless it has come back under another name."""
    mark = read_mark(host)
    other = mark.get("name", request["name"]) != request["name"]
    if other or (not mark and not leftovers(host)):
        return {"changed": False}
    if mark and mark.get("endpoint") != request["endpoint"]:
        raise RefusalError(
            f"this host is a member of another cluster by now ({mark.get('endpoint')}), not of "
            f"{request['endpoint']}: it is left alone"
        )
    clean(host, request)
    return {"changed": True}


def serve_endpoint(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Have this host take part in the cluster's virtual address no more; or again, by `on`.

    Without it the address moves at once. A keepalived of the site's own is left alone, and one that
    somebody else has stopped is not started: the others may not know it as a peer any more.
    """
    config, given = host.path(KEEPALIVED), host.path(GIVEN)
    if not config.exists() or OURS not in config.read_text():
        return {"changed": False}
    unit = "keepalived.service"
    if request["on"]:
        if not given.exists():
            return {"changed": False}
        host.run("systemctl", "enable", "--now", unit)
        given.unlink()
        return {"changed": True}
    if host.try_run("systemctl", "is-active", unit).returncode:
        return {"changed": False}
    # First the note: who is cut off between the two has it started again where it runs already.
    given.parent.mkdir(parents=True, exist_ok=True)
    given.touch()
    host.run("systemctl", "disable", "--now", unit)
    return {"changed": True}


def leave_etcd(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Take another control plane, which is gone, out of the members of this host's etcd.

    A member is known by its name, and before its first start, when it has none, by its address.
    Where another host is about to come to that address, whatever member is there has to leave.
    """
    running = host.run("crictl", "ps", "--name=^etcd$", "--state=Running", "--quiet").split()
    if not running:
        raise FailureError("etcd does not run on this host: see `crictl ps --all --name etcd`")
    pki = "/etc/kubernetes/pki/etcd"
    client = [
        *("crictl", "exec", "--sync", running[0]),
        *("etcdctl", "--endpoints=https://127.0.0.1:2379", "--command-timeout=30s"),
        *(
            f"--cacert={pki}/ca.crt",
            f"--cert={pki}/healthcheck-client.crt",
            f"--key={pki}/healthcheck-client.key",
        ),
    ]

    def there() -> list[str]:
        listed = host.run(*client, "member", "list", "--write-out=json")
        # Warnings may stand around it.
        found = next((line for line in listed.splitlines() if line.startswith("{")), "")
        if not found:
            raise FailureError(f"etcd does not list its members: {tail(listed)}")
        numbers = []
        for member in json.loads(found)["members"]:
            named = member.get("name")
            hosts = {urllib.parse.urlsplit(url).hostname for url in member.get("peerURLs", ())}
            by_address = request["for_another"] or not named
            if named == request["name"] or (by_address and hosts & set(request["addresses"])):
                numbers.append(f"{member['ID']:x}")
        return numbers

    gone = there()
    for number in gone:
        done = host.try_run(*client, "member", "remove", number)
        # It may have left although nothing said so in time.
        if done.returncode and number in there():
            told = tail(done.stdout)
            if number != gone[0] or not any(refusal in told for refusal in REFUSALS):
                # What was asked may be carried out yet, or a part of it has been.
                left = f"{gone.index(number)} of {len(gone)} members"
                raise FailureError(f"etcd has removed {left} so far: {told}")
            return {"changed": False, "refused": told}
    return {"changed": bool(gone), "refused": ""}


def clean(host: Host, request: dict[str, Any]) -> None:
    """Reset by kubeadm, then remove what it leaves: CNI state, links and packet filter rules."""
    host.run("kubeadm", "reset", "--force", f"--cri-socket={request['cri_socket']}")
    for config in host.path("etc/cni/net.d").glob("*flannel*"):
        config.unlink()
    for folder in ("var/lib/cni", "run/flannel"):
        path = host.path(folder)
        if path.exists():
            shutil.rmtree(path)
    for link in LINKS:
        if host.path(f"sys/class/net/{link}").exists():
            host.run("ip", "link", "delete", link)
    for family in ("iptables", "ip6tables"):
        saved = host.run(f"{family}-save")
        kept = [line for line in saved.splitlines() if not OURS_IN_IPTABLES.search(line)]
        if len(kept) != len(saved.splitlines()):
            host.run(f"{family}-restore", stdin="\n".join(kept) + "\n")
    with contextlib.suppress(FileNotFoundError):
        host.path(MARK).unlink()


def container_log(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Return the state and the last log lines of the newest container whose name begins so."""
    listed = host.run("crictl", "ps", "--all", f"--name=^{request['container']}", "-o", "json")
    containers = json.loads(listed).get("containers") or []
    if not containers:
        return {"found": False, "log": "", "state": "", "attempts": 0}
    newest = max(containers, key=lambda item: int(item["createdAt"]))
    log = host.try_run("crictl", "logs", f"--tail={request['lines']}", newest["id"]).stdout
    return {
        "found": True,
        "log": tail(log, request["lines"]),
        "state": newest["state"],
        "attempts": int(newest["metadata"].get("attempt", 0)) + 1,
    }


ACTIONS: dict[str, Callable[[Host, dict[str, Any]], dict[str, Any]]] = {
    "access": access,
    "init": init,
    "join": join,
    "reset": reset,
    "serve-endpoint": serve_endpoint,
    "leave-etcd": leave_etcd,
    "container-log": container_log,
}
# The first and the last only read; what etcd is asked, it orders itself.
UNLOCKED = {"access", "leave-etcd", "container-log"}


def main(text: str, root: str = "/") -> int:
    """Carry out one JSON request and print one JSON answer as the last line of the output."""
    request = json.loads(text)
    host = Host(Path(root), float(request.get("budget", 600)))
    action = ACTIONS[request["action"]]
    guard = contextlib.nullcontext() if request["action"] in UNLOCKED else locked(host)
    try:
        with guard:
            answer: dict[str, Any] = {"ok": True, **action(host, request)}
    except (RefusalError, FailureError) as error:
        kind = "refused" if isinstance(error, RefusalError) else "failed"
        answer = {"ok": False, "kind": kind, "reason": str(error)}
    # The reader may be gone (a killed engine): the work is done all the same.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0
