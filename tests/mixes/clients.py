"""A client that writes to the API and asks a Service all the time, and a Service for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from tests.mixes.pods import IMAGE, Pods
from tests.site.hosts import on_host

if TYPE_CHECKING:
    from tests.mixes.living import Mix
    from tests.substrate.commands import SiteCommands

SECONDS = 240.0
LABEL = {"app": "web"}
#: Answers each request; one that is to end goes on while the nodes still send it some.
SERVER = """
$s = IO::Socket::INET->new(Listen => 64, LocalPort => 8080, ReuseAddr => 1) or die $!;
while ($c = $s->accept) {
  while (defined($l = <$c>)) { last if $l =~ /^\\r?\\n$/ }
  print $c "HTTP/1.0 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok";
  close $c;
}
"""
#: Writes to the API and asks the Service, each ten times a second over a new connection, until a
#: file tells it to end. Notes what was acknowledged, each request that failed, and the longest gap.
CLIENT = """
import base64, http.client, json, os, ssl, sys, tempfile, threading, time

given = json.load(open("/root/client.json"))
context = ssl.create_default_context(cadata=base64.b64decode(given["ca"]).decode())
for name in ("cert", "key"):
    with open("/root/client." + name, "wb") as file:
        file.write(base64.b64decode(given[name]))
context.load_cert_chain("/root/client.cert", "/root/client.key")
last = {}
said = {"api": {"done": [], "failed": []}, "service": {"done": [], "failed": []}}

def write(number):
    name = "w-%d" % number
    connection = http.client.HTTPSConnection(given["api"], timeout=5, context=context)
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/api/v1/namespaces/written/configmaps", body, headers)
    return name, connection.getresponse()

def ask(number):
    connection = http.client.HTTPConnection(given["service"], 80, timeout=5)
    connection.request("GET", "/")
    return number, connection.getresponse()

def go(kind, request):
    number = 0
    while given[kind] and not os.path.exists("/root/client.end"):
        number, began = number + 1, time.time()
        try:
            what, answer = request(number)
            answer.read()
            if answer.status not in (200, 201):
                raise OSError("status %d" % answer.status)
            said[kind]["done"].append(what)
            last[kind], gap = time.time(), time.time() - last.get(kind, time.time())
            said[kind]["gap"] = max(gap, said[kind].get("gap", 0.0))
        except Exception as error:
            took = time.time() - began
            if not said[kind]["done"]:
                continue  # kube-proxy may not know of the Service yet
            said[kind]["failed"].append([time.strftime("%H:%M:%S"), round(took, 2), repr(error)])
        time.sleep(max(0.0, 0.1 - (time.time() - began)))

threads = [threading.Thread(target=go, args=one) for one in (("api", write), ("service", ask))]
[one.start() for one in threads]
[one.join() for one in threads]
json.dump(said, open("/root/client.new", "w"))
os.rename("/root/client.new", "/root/client.said")
"""


def served(site: SiteCommands) -> str:
    """Have a Service of two pods, of which a budget lets one go at a time; return its address."""
    container = {
        "name": "web",
        "image": IMAGE,
        "command": ["perl", "-MIO::Socket::INET", "-e", SERVER],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "8"]}}},
    }
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": LABEL}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
    pod = {
        "containers": [container],
        "affinity": {"podAntiAffinity": apart},
        "terminationGracePeriodSeconds": 10,
    }
    named = {"metadata": {"name": "web"}}
    chosen = {"selector": {"matchLabels": LABEL}}
    template = {"metadata": {"labels": LABEL}, "spec": pod}
    Pods(site).apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "written"}},
        {"apiVersion": "apps/v1", "kind": "Deployment", **named}
        | {"spec": {"replicas": 2, **chosen, "template": template}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **named}
        | {"spec": {"minAvailable": 1, **chosen}},
        {"apiVersion": "v1", "kind": "Service", **named}
        | {"spec": {"selector": LABEL, "ports": [{"port": 80, "targetPort": 8080}]}},
    )
    done = site.kubectl("rollout", "status", "deployment/web", f"--timeout={SECONDS:.0f}s")
    assert done.returncode == 0, done.stdout
    return site.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}").stdout


def begin(site: SiteCommands, host: str, mix: Mix, service: str = "") -> None:
    """Have the client run on a worker, as nothing of the cluster's."""
    config = yaml.safe_load((site.site / ".bedplate/kubeconfig").read_text())
    user = config["users"][0]["user"]
    given = {
        "ca": config["clusters"][0]["cluster"]["certificate-authority-data"],
        "cert": user["client-certificate-data"],
        "key": user["client-key-data"],
        "api": f"{mix.address}:6443",
        "service": service,
    }
    on_host(
        site,
        host,
        f"umask 077\ncat > /root/client.json <<'END'\n{json.dumps(given)}\nEND\n"
        f"cat > /root/client.py <<'END'\n{CLIENT}\nEND\n"
        "systemd-run --unit=client --quiet python3 /root/client.py",
    )


def ended(site: SiteCommands, host: str) -> dict[str, dict[str, Any]]:
    """End the client, and return what it was answered."""
    script = "touch /root/client.end; until [ -e /root/client.said ]; do sleep 0.5; done"
    return dict(json.loads(on_host(site, host, f"{script}; cat /root/client.said")))
