"""Certificates that kubeadm manages on a control plane: when they end, and who runs with them.

And what else its static pods read once, as they start.
"""

import json
import os
import re
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, NamedTuple

from . import encryption_keys
from .host import Host

#: So many days before the end it is said: longer than a team's holidays, and shorter than the tenth
#: of a year before which kubelets renew their own.
DAYS = 30
MANIFESTS = "/etc/kubernetes/manifests"
API_SERVER = MANIFESTS + "/kube-apiserver.yaml"
#: What each static pod reads once, as it starts, in the order in which they are to start again.
READ: Dict[str, List[str]] = {
    "etcd": ["pki/etcd/server.crt", "pki/etcd/peer.crt"],
    "kube-apiserver": [
        "pki/apiserver.crt",
        "pki/apiserver-kubelet-client.crt",
        "pki/apiserver-etcd-client.crt",
        "pki/front-proxy-client.crt",
        "pki/" + encryption_keys.NAME,
    ],
    "kube-controller-manager": ["controller-manager.conf"],
    "kube-scheduler": ["scheduler.conf"],
}


#: Lies there while kubeadm renews: a run that was cut off may have left a key without its
#: certificate, which no date tells.
MARK = "/var/lib/bedplate/certificates-renewed"
_ADDRESS = re.compile(r"kube-apiserver\.advertise-address\.endpoint: (\S+)")
PAUSE = 1.0
#: For programs that ask hosts of the cluster by their addresses, which no proxy is to hear of.
NO_PROXY = {"NO_PROXY": "*", "no_proxy": "*"}


class UnreadError(Exception):
    """A program did not say what was asked, or do it; the text is the reason."""


class Certificate(NamedTuple):
    """A certificate as kubeadm lists it.

    ``external`` says that the key of its authority is not on this host, which renews none then.
    """

    name: str
    ends: datetime
    authority: bool
    external: bool

    def days(self, now: datetime) -> float:
        """How many days it is still good for, less than none where it has ended."""
        return (self.ends - now).total_seconds() / 86400

    def __str__(self) -> str:
        return f"{self.name} ends on {day(self.ends)}"


def day(when: datetime) -> str:
    """A time as people are told it: UTC, to the second."""
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def find(host: Host) -> List[Certificate]:
    """All that are there, as kubeadm lists them.

    It names those too that are not there (``super-admin.conf`` is on the first control plane
    alone), and ends with status 0 where there is none at all.

    Raises:
        UnreadError: kubeadm did not say, or knows of none.
    """
    answer = host.run(["kubeadm", "certs", "check-expiration", "--output=json"], timeout=120)
    if answer.code != 0:
        raise UnreadError(answer.said)
    try:
        said: Dict[str, Any] = json.loads(answer.out)
        found = [
            Certificate(one["name"], _time(one["expirationDate"]), authority, external)
            for kind, authority in (("certificates", False), ("certificateAuthorities", True))
            for one in said[kind]
            for external in [bool(one.get("externallyManaged"))]
            if not one.get("missing")
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadError(f"kubeadm's answer is not understood: {error!r}") from None
    if not any(not one.authority for one in found):
        raise UnreadError("kubeadm finds no certificate")
    return found


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def renew(host: Host) -> None:
    """Have kubeadm renew all.

    Raises:
        UnreadError: it did not.
    """
    host.write(MARK, "")
    answer = host.run(["kubeadm", "certs", "renew", "all"], timeout=300)
    if answer.code != 0:
        raise UnreadError(answer.said)
    host.remove(MARK)


def cut_off(host: Host) -> bool:
    """Whether a run ended while kubeadm renewed."""
    return host.exists(MARK)


def outdated(host: Host) -> List[str]:
    """Static pods that were started before a file was written which they read as they start.

    What the API server shows on its port says nothing of it: that it reads again by itself within
    a minute, but the two kubeconfigs are never read again.

    Raises:
        UnreadError: the container runtime did not answer.
    """
    running = _running(host)
    return [n for n in READ if n in running and running[n].since < _written(host, n)]


class _Container(NamedTuple):
    id: str
    since: float


def _running(host: Host) -> Dict[str, _Container]:
    """The containers of the control plane that run, and since when in seconds of the epoch."""
    answer = host.run(["crictl", "ps", "--state=Running", "--output=json"])
    if answer.code != 0:
        raise UnreadError(answer.said)
    found = [
        (one["metadata"]["name"], _Container(one["id"], int(one["createdAt"]) / 1e9))
        for one in json.loads(answer.out).get("containers") or []
        if one["labels"].get("io.kubernetes.pod.namespace") == "kube-system"
    ]
    return dict(sorted(found, key=lambda one: one[1].since))


def since(host: Host, name: str) -> float:
    """When a static pod's container was started, in seconds of the epoch; 0 where none runs."""
    found = _running(host).get(name)
    return found.since if found else 0.0


def _written(host: Host, name: str) -> float:
    paths = [host.path("/etc/kubernetes/" + file) for file in READ[name]]
    return max((os.stat(path).st_mtime for path in paths if os.path.exists(path)), default=0.0)


def restart(
    host: Host, name: str, seconds: float, pause: Callable[[float], None] = time.sleep
) -> None:
    """Stop a static pod's container; kubelet starts another, which reads the new files.

    kubeadm's documentation moves the manifest away and back instead. A run that is cut off between
    the two would leave a host without its API server.

    Raises:
        UnreadError: it does not stop, or none runs after ``seconds``.
    """
    found = _running(host).get(name)
    if found is not None:
        answer = host.run(["crictl", "stop", "--timeout=30", found.id], timeout=120)
        if answer.code != 0:
            raise UnreadError(answer.said)
    left = seconds
    while True:
        now = _running(host).get(name)
        if now is not None and now != found:
            return
        if left <= 0:
            raise UnreadError(f"no container {name} within {seconds:.0f} s")
        pause(PAUSE)
        left -= PAUSE


def answers(host: Host) -> bool:
    """Whether this control plane's own API server says at /readyz that it is ready."""
    said = _ADDRESS.search(host.read(API_SERVER) or "")
    if said is None:
        return False
    where = f"--server=https://{said.group(1)}"
    config = f"--kubeconfig={host.path('/etc/kubernetes/admin.conf')}"
    argv = ["kubectl", config, where, "--request-timeout=10s", "get", "--raw", "/readyz"]
    return host.run(argv, timeout=20, environment=NO_PROXY).out == "ok"


def await_answer(host: Host, seconds: float, pause: Callable[[float], None] = time.sleep) -> bool:
    """Wait for the answer and for all static pods, and return whether both came in ``seconds``.

    Controllers and scheduler end where the API server is away for long, and start again later.
    """
    left = seconds
    there = [name for name in READ if host.exists(f"{MANIFESTS}/{name}.yaml")]
    while not (answers(host) and set(there) <= set(_running(host))):
        if left <= 0:
            return False
        pause(PAUSE)
        left -= PAUSE
    return True
