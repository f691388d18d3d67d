"""What a member of a team tries against nodes and neighbours, and what comes of it.

Each attack is made as the member `ada` from a pod of the team `lab` with one share of a GPU, and
again with the one defence off, where it works: else the test would show nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
from typing import TYPE_CHECKING, Any

from tests.site import trials
from tests.site.cluster import wait_for
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

NODE, TEAM, MEMBER = "gpu-b", "lab", "ada"
#: A namespace that is no team's: nothing is enforced in it.
OPEN = "attacks"
DEBIAN = "docker.io/library/debian:12-slim"
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
#: As the kernel says it: the node may not be opened, or it may and no hardware is behind it.
DENIED, OPENED = "Operation not permitted", "No such device or address"
NEIGHBOURS = """
import json, os, re, stat
own = {int(found[1]) for one in os.listdir("/dev") if (found := re.fullmatch(r"nvidia(\\d+)", one))}
def opened(minor):
    path = f"/tmp/gpu{minor}"
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(195, minor))
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return os.strerror(error.errno)
    return "opened"
print(json.dumps([sorted(own), {minor: opened(minor) for minor in range(4)}]))
"""
#: The devices of a container that has no Python, as JSON.
LISTED = """ls /dev | sed 's/.*/"&"/' | paste -sd, | sed 's/.*/[&]/'"""
KUBELET = """
import json, ssl, sys, urllib.error, urllib.request
def asked(token):
    request = urllib.request.Request(f"https://{sys.argv[1]}:10250/pods")
    if token:
        request.add_header("Authorization", "Bearer " + token)
    try:
        context = ssl._create_unverified_context()
        return urllib.request.urlopen(request, context=context, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
print(json.dumps([asked(token) for token in sys.argv[2:]]))
"""


class Member:
    """Runs pods in a team's namespace as one of its members."""

    def __init__(self, site: SiteCommands, folder: Path) -> None:
        self.site, self._folder = site, folder

    def create(self, manifest: dict[str, Any], *options: str) -> str:
        """Create an object as the member, or as administrator where it is no team's namespace."""
        path = self._folder / "attack.json"
        path.write_text(json.dumps(manifest))
        mine = manifest["metadata"].get("namespace") == TEAM
        who = ["--as", MEMBER] if mine else []
        return self.site.kubectl(*who, "create", "-f", str(path), *options).stdout

    def ask(self, *arguments: str) -> str:
        """Ask the cluster as administrator; fail with its answer where it refuses."""
        done = self.site.kubectl(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def told(self, *arguments: str) -> Any:
        """Return what a program prints: one line of JSON, after what kubectl says of itself.

        Now and then kubectl ends well and has lost what the program printed: it is asked again.
        """
        said = ""
        for _ in range(3):
            said = self.ask(*arguments)
            with contextlib.suppress(IndexError, ValueError):
                return json.loads(said.splitlines()[-1])
        raise AssertionError(f"no answer of {arguments}: {said!r}")

    @contextlib.contextmanager
    def running(self, pod: dict[str, Any]) -> Iterator[tuple[str, ...]]:
        """Run a pod; yield how to run a command in it."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        where = ("-n", namespace)
        said = self.create(pod)
        assert "created" in said, said
        phase = ("get", "pod", name, *where, "-o", "jsonpath={.status.phase}")
        try:
            wait_for(f"pod {name} runs", lambda: self.ask(*phase) == "Running", 300)
            yield ("exec", *where, name, "--")
        finally:
            self.site.kubectl("delete", "pod", name, *where, "--now")


def pod(name: str, namespace: str = TEAM, image: str = DEBIAN, **more: Any) -> dict[str, Any]:
    """Return a pod that sleeps as root on the node; `container` is what its container has more."""
    container = {"name": "main", "image": image, "command": ["sleep", "900"]}
    container |= {"resources": {"requests": {"cpu": "10m"}}, "securityContext": {"runAsUser": 0}}
    container |= more.pop("container", {})
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, **more}}


def attacked(site: SiteCommands, folder: Path) -> None:
    """Make all attacks. Raises AssertionError where one works, or fails with its defence off."""
    member = Member(site, folder)
    member.ask("create", "namespace", OPEN)
    python = trials.JAX
    try:
        share = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        with member.running(pod("attacker", image=python, container=share)) as inside:
            _neighbours(member, inside, python)
            _kubelet(member, inside)
        _files(site, member)
        _variable(site, member)
    finally:
        site.kubectl("delete", "namespace", OPEN)


def _neighbours(member: Member, inside: tuple[str, ...], python: str) -> None:
    """Another's share of another GPU: root in a container may make its device node, not open it."""
    own, found = member.told(*inside, "python3", "-c", NEIGHBOURS)
    assert len(own) == 1, own
    assert found == {str(n): OPENED if n in own else DENIED for n in range(4)}
    privileged = {"securityContext": {"privileged": True, "runAsUser": 0}}
    with member.running(pod("privileged", OPEN, python, container=privileged)) as at:
        _, found = member.told(*at, "python3", "-c", NEIGHBOURS)
    assert found == {str(n): OPENED for n in range(4)}


def _kubelet(member: Member, inside: tuple[str, ...]) -> None:
    """The node's own API: without a name, and as the account that every pod has."""
    addresses = member.told("get", "node", NODE, "-o", "jsonpath={.status.addresses}")
    address = next(one["address"] for one in addresses if one["type"] == "InternalIP")
    ours = member.ask("create", "token", "default", "-n", TEAM).strip()
    member.ask("create", "serviceaccount", "trusted", "-n", OPEN)
    trusted = f"--serviceaccount={OPEN}:trusted"
    kind = "clusterrolebinding"
    member.ask("create", kind, OPEN, "--clusterrole=system:kubelet-api-admin", trusted)
    try:
        theirs = member.ask("create", "token", "trusted", "-n", OPEN).strip()
        look = [*inside, "python3", "-c", KUBELET, address, "", ours, theirs]
        wait_for("kubelet sees the right", lambda: member.told(*look)[2] == 200, 300, 5)
        assert member.told(*look) == [401, 403, 200]
    finally:
        member.ask("delete", kind, OPEN)
    readonly = "import socket, sys; sys.exit(socket.socket().connect_ex((sys.argv[1], 10255)))"
    done = member.site.kubectl(*inside, "python3", "-c", readonly, address)
    assert f"exit code {errno.ECONNREFUSED}" in done.stdout


def _files(site: SiteCommands, member: Member) -> None:
    """Another's home through the node, and the node's own network, processes and privileges."""
    on_host(
        site, NODE, "mkdir -p /srv/bedplate/attacks && echo secret > /srv/bedplate/attacks/home"
    )
    mounted: dict[str, Any] = {
        "volumes": [{"name": "host", "hostPath": {"path": "/srv/bedplate"}}],
        "container": {"volumeMounts": [{"name": "host", "mountPath": "/host"}]},
    }
    for what, wrong in {
        "hostPath volumes": mounted,
        "hostNetwork=true": {"hostNetwork": True},
        "hostPID=true": {"hostPID": True},
        "privileged": {"container": {"securityContext": {"privileged": True}}},
    }.items():
        said = member.create(pod("files", **wrong))
        assert "violates PodSecurity" in said, said
        assert what in said, said
    try:
        with member.running(pod("files", OPEN, **mounted)) as inside:
            assert member.ask(*inside, "cat", "/host/attacks/home") == "secret\n"
    finally:
        on_host(site, NODE, "rm -r /srv/bedplate/attacks")


def _variable(site: SiteCommands, member: Member) -> None:
    """All GPUs of the node by the variable of NVIDIA's runtime, without asking for any."""
    every = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}

    def seen(namespace: str) -> list[str]:
        asking = pod("variable", namespace, runtimeClassName="nvidia", container={**every})
        with member.running(asking) as inside:
            found = member.told(*inside, "sh", "-c", LISTED)
        assert "null" in found, found
        return [one for one in found if re.fullmatch(r"nvidia\d+", one)]

    assert seen(TEAM) == []
    setting = f"s/^{VARIABLE} = false$/{VARIABLE} = true/"
    before = on_host(site, NODE, f"cat {TOOLKIT}; sed -i '{setting}' {TOOLKIT}")
    assert f"{VARIABLE} = false" in before
    try:
        assert seen(TEAM) == [f"nvidia{number}" for number in range(4)]
    finally:
        on_host(site, NODE, f"sed -i 's/^{VARIABLE} = true$/{VARIABLE} = false/' {TOOLKIT}")
    assert seen(TEAM) == []
