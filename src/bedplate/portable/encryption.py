"""Secrets encrypted in etcd: what a control plane has, a key put in place, Secrets written again.

All is read from what is there: a run that was cut off is finished by the next.
"""

import base64
import os
import re
import time
from typing import Callable, List, Tuple

from . import backup, cluster_node, control_plane_upgrade, encryption_keys
from .certificates import API_SERVER, PAUSE, await_answer, outdated, since
from .encryption_keys import FILE, MARK, OPTION, PLAIN
from .host import Host
from .refusal import ImpossibleError, must

SECRETS = "/registry/secrets/"
END = "/registry/secrets0"
#: How many Secrets are read from etcd at once, and given to one kubectl: each may have a megabyte.
PAGE = 50
#: How often those are looked for that are left: others write meanwhile.
TRIES = 3
LOST = (
    "Copy it from another control plane, with mode 600, or take it out of a backup: without the key"
    " no Secret can be read."
)
#: An annotation of the API server's pod: which file it has started with.
MARKED = "bedplate.gpu/encryption"
_OPTION = re.compile(rf"--{OPTION}=(\S+)")
_MARKED = re.compile(rf"^( +){MARKED}: .*$", re.MULTILINE)
_ANNOTATIONS = re.compile(r"^  annotations:$", re.MULTILINE)
_COMMAND = re.compile(r"^(\s*)- kube-apiserver$", re.MULTILINE)
_LONG = 1800.0


def option(host: Host) -> str:
    """The file that the API server takes its keys from; empty where it has none."""
    found = _OPTION.search(host.read(API_SERVER) or "")
    return found.group(1) if found else ""


def file(host: Host) -> str:
    """The text of this control plane's file; empty where it has none.

    Where the API server does not have the option, it is as if no encryption came first.

    Raises:
        ImpossibleError: the API server has a file that is not ours, or ours is damaged or gone.
    """
    path, text = option(host), host.read(FILE) or ""
    if path not in ("", FILE):
        raise ImpossibleError(
            f"--{OPTION}={path}",
            f"{FILE}, or no such option",
            "Replace keys of your own by hand, as kubernetes.io's 'Encrypting Confidential Data at"
            " Rest' says.",
        )
    try:
        keys = encryption_keys.read(text)
    except ValueError as error:
        raise ImpossibleError(str(error), "the file that Bedplate wrote", LOST) from None
    if path and not keys:
        raise ImpossibleError(f"no {FILE}", "the file that the API server starts with", LOST)
    if keys and not path:
        return encryption_keys.written([PLAIN, *(key for key in keys if key != PLAIN)])
    return text


def refuse_without(host: Host, named: List[str]) -> None:
    """Refuse where the cluster has a control plane that is not named: it would not get the key.

    Raises:
        ImpossibleError: it has, or did not say.
    """
    try:
        missed = sorted(set(cluster_node.api_servers(host)) - set(named))
    except cluster_node.UnansweredError as error:
        raise ImpossibleError(
            str(error), "an answer of its API", "See 'crictl ps --all' there, and run it again."
        ) from None
    if missed:
        raise ImpossibleError(
            f"{', '.join(missed)} in the cluster, and not in this run",
            "all control planes of the cluster: each has to know each key",
            "Run it without --limit, with all of them in the group control_plane.",
        )


def put(host: Host, text: str, seconds: float, pause: Callable[[float], None] = time.sleep) -> bool:
    """Have the API server run with these keys; whether that was a change.

    Raises:
        ImpossibleError: it does not answer, or does not run with them, after ``seconds``.
        certificates.UnreadError: the container runtime did not answer.
    """
    if host.read(FILE) != text:
        host.write(FILE, text, mode=0o600)
    changed = "kube-apiserver" in outdated(host) or not option(host)
    if changed:
        there = host.read(API_SERVER) or ""
        manifest = _manifest(there, os.stat(host.path(FILE)).st_mtime_ns)
        if manifest != there:
            host.write(API_SERVER, manifest, mode=0o600)
        _await_start(host, seconds, pause)
    if not await_answer(host, seconds, pause):
        raise ImpossibleError(
            f"no answer of its own API server, or not all its static pods, after {seconds:.0f} s",
            "an API server that is ready",
            "See 'crictl logs' of kube-apiserver there, and run the play again.",
        )
    return changed


def _manifest(there: str, written: int) -> str:
    """The API server's manifest with the option, marked with when its file was written.

    kubelet starts a pod with another manifest at once. A container that is stopped waits longer
    each time: none, 10 s, 20 s, and up to five minutes (seen with 1.36.3).
    """
    mark = f"{MARKED}: '{written}'"
    found, number = _MARKED.subn(rf"\g<1>{mark}", there, count=1)
    if not number:
        found = _ANNOTATIONS.sub(rf"\g<0>\n    {mark}", there, count=1)
    if not _OPTION.search(found):
        found = _COMMAND.sub(rf"\g<0>\n\g<1>- --{OPTION}={FILE}", found, count=1)
    if MARKED in found and _OPTION.search(found):
        return found
    raise ImpossibleError(
        f"no annotations, or no command kube-apiserver, in {API_SERVER}",
        "the manifest that kubeadm writes",
        f"Add --{OPTION}={FILE} to its command, and an annotation, and run the play again.",
    )


def _await_start(host: Host, seconds: float, pause: Callable[[float], None]) -> None:
    """Wait until the API server's container is younger than its manifest and its file."""
    written = max(os.stat(host.path(one)).st_mtime for one in (API_SERVER, FILE))
    left = seconds
    while since(host, "kube-apiserver") < written:
        if left <= 0:
            raise ImpossibleError(
                f"no kube-apiserver that was started after its manifest was written, in"
                f" {seconds:.0f} s",
                "a kubelet that starts it again",
                "See 'crictl ps --all' and 'journalctl -u kubelet' there, and run it again.",
            )
        pause(PAUSE)
        left -= PAUSE


def configure(host: Host) -> bool:
    """Have kubeadm give the option to control planes that it makes or upgrades later.

    Raises:
        ImpossibleError: its configuration has options of the API server, and not this one.
    """
    text = control_plane_upgrade.configuration(host)
    if OPTION in text:
        return False
    wanted = f"apiServer:\n  extraArgs:\n  - name: {OPTION}\n    value: {FILE}"
    with_it = re.sub(r"^apiServer: \{\}$", wanted, text, count=1, flags=re.MULTILINE)
    if with_it == text:
        raise ImpossibleError(
            "ConfigMap kubeadm-config of kube-system with an apiServer section of its own",
            f"{OPTION} among its extraArgs",
            f"Add the name {OPTION} with the value {FILE} there by 'kubectl edit', and run the play"
            " again.",
        )
    control_plane_upgrade.configure(host, with_it)
    return True


def otherwise(host: Host, name: str) -> List[Tuple[str, str]]:
    """The Secrets in etcd that a key of this name has not encrypted, by namespace and name.

    Raises:
        ImpossibleError: etcd was not read.
    """
    client = [*backup.etcd_client(host), f"--command-timeout={_LONG:.0f}s", "get"]
    listed = must(host, [*client, SECRETS, "--prefix", "--keys-only"], _LONG).out.split()
    begins = f"{MARK}{name}:".encode()
    found = []
    for first in range(0, len(listed), PAGE):
        after = listed[first + PAGE] if first + PAGE < len(listed) else END
        answer = must(host, [*client, listed[first], after, "-w=json"], _LONG)
        for one in backup.decoded(answer).get("kvs") or []:
            # A multiple of four signs is whole in Base64.
            if not base64.b64decode(one["value"][:256]).startswith(begins):
                space, _, secret = (
                    base64.b64decode(one["key"]).decode()[len(SECRETS) :].partition("/")
                )
                found.append((space, secret))
    return found


def rewrite(host: Host, name: str) -> int:
    """Have each Secret encrypted with the key of this name; how many were not.

    An empty patch changes nothing of a Secret, has it written where it is encrypted otherwise
    (seen with 1.36.3), carries none of its data, and is in the way of nobody who changes it.

    Raises:
        ImpossibleError: some still are not.
    """
    first = left = otherwise(host, name)
    said = ""
    for _ in range(TRIES):
        if not left:
            break
        for space in sorted({one for one, _ in left}):
            named = [secret for one, secret in left if one == space]
            for begin in range(0, len(named), PAGE):
                said = _patched(host, space, named[begin : begin + PAGE]) or said
        left = otherwise(host, name)
    if left:
        told = ", ".join("/".join(one) for one in left[:5])
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        raise ImpossibleError(
            f"Secrets that {name} has not encrypted: {told}{more}" + (f" ({said})" if said else ""),
            "all of them: until then the previous key stays",
            "Have the API accept a change of them (a webhook may refuse it), and run the play"
            " again.",
        )
    return len(first)


def _patched(host: Host, space: str, names: List[str]) -> str:
    """Write Secrets as they are; what kubectl says where one was not."""
    argv = [f"--namespace={space}", "patch", "secret", *names, "--type=merge", "--patch={}"]
    config = host.path(cluster_node.ADMIN)
    answer = host.run(["kubectl", f"--kubeconfig={config}", *argv], timeout=_LONG)
    return answer.said if answer.code != 0 else ""


def refuse_left(host: Host, name: str) -> None:
    """Refuse while there is a Secret that only another key can read.

    Raises:
        ImpossibleError: there is one.
    """
    left = otherwise(host, name)
    if left:
        raise ImpossibleError(
            f"{len(left)} Secrets that {name} has not encrypted, {'/'.join(left[0])} among them",
            "none: the previous key is the only one that reads them",
            "Run the playbook again.",
        )
