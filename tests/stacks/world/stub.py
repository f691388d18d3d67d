"""The stubs' one program: its first argument is the command that it plays."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.stacks.world import World

# A certificate only in form: its digest is all that is looked at.
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"

world = World.from_environment()
host = os.environ["BEDPLATE_TEST_HOST"]
root = world.root(host)
kubernetes = root / "etc/kubernetes"
settings = json.loads((root / "settings.json").read_text())
name, *arguments = sys.argv[1:]


def fail(text: str, status: int = 1) -> None:
    sys.stderr.write(text + "\n")
    sys.exit(status)


def member(**files: str) -> None:
    (kubernetes / "pki").mkdir(parents=True, exist_ok=True)
    for file, text in {"kubelet.conf": "kubelet", **files}.items():
        (kubernetes / file).write_text(text)
    api = world.api
    (kubernetes / "pki/ca.crt").write_text(CERTIFICATE.format(api["authority"]))
    if "admin.conf" in files:
        url = f"https://{world.address(host)}:2380"
        known = api.get("members", [])
        number = max([2**63, *(one["ID"] for one in known)]) + 1
        api["members"] = [*known, {"ID": number, "name": host, "peerURLs": [url]}]
    api["nodes"][host] = {"control_plane": "admin.conf" in files, "taints": taints()}
    world.write_api(api)


def config() -> dict[str, Any]:
    """Return the first document of kubeadm's configuration."""
    path = next(word for word in arguments if word.startswith("--config="))
    documents = yaml.safe_load_all(Path(path.partition("=")[2]).read_text())
    return dict(next(iter(documents)))


def taints() -> list[dict[str, str]]:
    """Return what kubeadm registers the node with: its own taint, unless it is told otherwise."""
    own = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    registration = config()["nodeRegistration"]
    return registration.get("taints", own if controls() else [])


def controls() -> bool:
    """Tell whether the host becomes a control plane."""
    return arguments[0] == "init" or "controlPlane" in config()


def together(count: int) -> None:
    """Wait until so many joins have begun."""
    deadline = time.monotonic() + 120
    while len(world.journal("kubeadm join")) < count:
        if time.monotonic() > deadline:
            fail(f"{count} joins did not run at the same time")
        time.sleep(0.05)


def refuse_a_name_in_use() -> None:
    """As kubeadm does of a node; etcd would begin as a member that has lost its data."""
    api = world.api
    if arguments[0] == "join" and host in api["nodes"] and not down(host):
        fail(f'a Node with name "{host}" and status "Ready" already exists')
    at = [urlsplit(one["peerURLs"][0]).hostname for one in api.get("members", [])]
    if arguments[0] == "join" and controls() and world.address(host) in at:
        fail("etcd counts this host as a member that has data")


def down(found: str) -> bool:
    """Say whether a node is not Ready; a host that has lost its disk is not its node's any more."""
    there = world.root(found)
    its = json.loads((there / "settings.json").read_text()) if there.exists() else {}
    return bool(its.get("not_ready")) or found in world.api.get("gone", [])


def kubeadm() -> None:
    if arguments[0] == "version":
        print("v" + settings.get("version", "1.36.3"))
    elif arguments[0] in {"init", "join"}:
        if "upload-certs" in arguments:
            print("[upload-certs] …\n" + "c" * 64)
            return
        if (kubernetes / "kubelet.conf").exists():
            fail("[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: already exists")
        refuse_a_name_in_use()
        kubernetes.mkdir(parents=True, exist_ok=True)
        (kubernetes / "bootstrap-kubelet.conf").write_text("half")
        time.sleep(settings.get("join_seconds", 0))
        together(settings.get("joins_together", 0))
        if settings.get("fail"):
            fail(settings["fail"])
        (kubernetes / "bootstrap-kubelet.conf").unlink()
        with (world.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if arguments[0] == "init":
                count = len(world.journal("kubeadm init --config"))
                fresh = {"nodes": {}, "members": [], "authority": f"AAA{count}"}
                world.write_api({**world.api, **fresh})
            admin = {"admin.conf": "apiVersion: v1\nkind: Config\nplanted: Geheimnis\n"}
            member(**admin if controls() else {})
    elif arguments[0] == "reset":
        shutil.rmtree(kubernetes, ignore_errors=True)
        # It asks etcd too, and goes on whatever that says: members are not its business here.
        world.write_api({**world.api, "away": world.api.get("moves", 0)})
    elif "token" in arguments:
        print(
            "kubeadm join x:6443 --token abcdef.0123456789abcdef "
            "--discovery-token-ca-cert-hash sha256:00"
        )
    else:
        fail(f"no such kubeadm command: {arguments}", 64)


def node(found: str) -> dict[str, object]:
    api = world.api
    there = world.root(found)
    its = json.loads((there / "settings.json").read_text()) if there.exists() else {}
    why = its.get("not_ready")
    labels = {"node-role.kubernetes.io/control-plane": ""}
    ready = {"type": "Ready", "status": "False" if down(found) else "True"}
    return {
        "metadata": {
            "name": found,
            "labels": labels if api["nodes"][found]["control_plane"] else {},
        },
        "spec": {"taints": api["nodes"][found].get("taints", [])},
        "status": {
            "conditions": [{**ready, "reason": "KubeletNotReady", "message": why or ""}],
            "allocatable": {"nvidia.com/gpu": str(its.get("gpus", 0))},
            "nodeInfo": {"kubeletVersion": f"v{its.get('runs', '1.36.3')}"},
        },
    }


def kubectl() -> None:
    verb, rest = arguments[1], arguments[2:]
    config = Path(arguments[0].removeprefix("--kubeconfig="))
    here = config if config.is_relative_to(root) else root / config.relative_to("/")
    if not here.exists():
        fail("The connection to the server localhost:8080 was refused")
    api = world.api
    if away := api.get("away"):
        world.write_api({**api, "away": away - 1})
        fail("The connection to the server 192.0.2.1:6443 was refused")
    if verb == "taint":
        key, _, effect = rest[2].rstrip("-").partition(":")
        left = [one for one in api["nodes"][rest[1]]["taints"] if one["key"] != key]
        added = [] if rest[2].endswith("-") else [{"key": key, "effect": effect}]
        api["nodes"][rest[1]]["taints"] = left + added
        world.write_api(api)
    elif rest[0] == "nodes":
        print(json.dumps({"items": [node(found) for found in api["nodes"]]}))
    elif rest[0].startswith("resourceslices"):
        print(json.dumps({"items": [resource_slice(found) for found in api["nodes"]]}))
    elif verb == "get" and rest[0] == "node":
        if rest[1] not in api["nodes"]:
            fail(f'Error from server (NotFound): nodes "{rest[1]}" not found')
        print(f"node/{rest[1]}")
    elif rest[0] == "--raw=/readyz":
        print("ok")
    elif rest[0].startswith("namespaces"):
        print("\n".join(api["upper"]))
    elif verb == "delete":
        api["nodes"].pop(rest[1], None)
        api["gone"] = [one for one in api.get("gone", []) if one != rest[1]]
        world.write_api(api)
    elif verb == "drain":
        time.sleep(api.get("drain_seconds", 0))
    elif verb != "uncordon":
        fail(f"no such kubectl command: {arguments}", 64)


def resource_slice(found: str) -> dict[str, object]:
    """Return what a host's DRA driver has published; its setting `devices` says how much."""
    there = world.root(found)
    its = json.loads((there / "settings.json").read_text()) if there.exists() else {}
    devices = [{"name": f"gpu-{number}"} for number in range(its.get("devices", 0))]
    pool = {"name": found, "generation": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": found, "pool": pool, "devices": devices}
    return {"spec": spec}


def etcdctl() -> None:
    api = world.api
    if api.get("hiccup") in arguments:
        fail("context deadline exceeded")
    if "list" in arguments:
        print(json.dumps({"members": api.get("members", [])}))
    else:
        left = [one for one in api["members"] if f"{one['ID']:x}" != arguments[-1]]
        silent = {*api.get("silent", []), *api.get("gone", [])}
        gone = {one["name"] for one in api["members"]} - {one["name"] for one in left}
        if not gone <= silent and sum(one["name"] not in silent for one in left) <= len(left) / 2:
            fail("etcdserver: unhealthy cluster")
        world.write_api({**api, "members": left})


def crictl() -> None:
    if arguments[0] == "exec":
        etcdctl()
        return
    if "--name=^etcd$" in arguments:
        print("e7cd" if (kubernetes / "admin.conf").exists() else "")
        return
    plugin = settings.get("plugin")
    if arguments[0] == "ps":
        meta = {"attempt": plugin["attempts"] - 1} if plugin else {}
        state = plugin["state"] if plugin else ""
        item = {"id": "c0ffee", "createdAt": "5", "state": state, "metadata": meta}
        print(json.dumps({"containers": [item] if plugin else []}))
        if plugin and plugin.get("restarts"):  # and ends again at once, while nobody looks
            world.set(host, plugin=plugin | {"attempts": plugin["attempts"] + 1})
    else:
        print(plugin["log"])


def getent() -> None:
    found = {"localhost": ("::1", "127.0.0.1")}.get(arguments[1])
    if found is None:
        sys.exit(2)
    print("\n".join(f"{one} STREAM {arguments[1]}" for one in found))


world.note(host, " ".join([name, *arguments]))
PLAYED = {"kubeadm": kubeadm, "kubectl": kubectl, "crictl": crictl, "getent": getent}
if name in PLAYED:
    PLAYED[name]()
elif name == "systemctl" and "keepalived.service" in arguments:
    if arguments[0] == "is-active":
        sys.exit(0 if settings.get("keepalived", True) else 3)
    time.sleep(settings.get("keepalived_seconds", 0))
    world.set(host, keepalived=arguments[0] == "enable")
elif name == "journalctl":
    print(settings.get("driver_log", ""))
elif name.endswith("-save"):
    print(settings.get("iptables", "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT"))
elif name.endswith("-restore"):
    (root / f"{name}.txt").write_text(sys.stdin.read())
