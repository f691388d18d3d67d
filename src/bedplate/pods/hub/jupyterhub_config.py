"""JupyterHub's configuration, from the stack's settings and secrets."""

# mypy: disable-error-code="name-defined"
from __future__ import annotations

import os
import sys
from pathlib import Path

from bedplate.pods.hub import sign_in
from bedplate.pods.hub.courses import settings
from bedplate.pods.hub.spawner import CourseSpawner

YEAR = 365 * 24 * 3600
known = settings()
service = known.service
secrets = Path(os.environ.get("BEDPLATE_HUB_SECRETS", "/etc/bedplate/secrets"))
state = Path(service.get("state", "/srv/jupyterhub"))
files = Path(__file__).parent

c = get_config()  # noqa: F821 - JupyterHub gives it
sign_in.configure(c, known, secrets)

# The hub, the proxy beside it, and what survives a restart.
c.JupyterHub.bind_url = service.get("bind", "http://:8000")
c.JupyterHub.hub_bind_url = service.get("hub_bind", "http://:8081")
c.JupyterHub.hub_connect_url = service["hub_url"]
c.ConfigurableHTTPProxy.api_url = service["proxy_api_url"]
c.ConfigurableHTTPProxy.auth_token = sign_in.read(secrets, "proxy-token")
c.ConfigurableHTTPProxy.should_start = False
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False
c.JupyterHub.db_url = f"sqlite:///{state}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret = bytes.fromhex(sign_in.read(secrets, "cookie-secret"))
c.CryptKeeper.keys = [bytes.fromhex(sign_in.read(secrets, "crypt-key"))]
# A proxy that was started again has no routes: they are compared this often.
c.JupyterHub.last_activity_interval = service.get("routes_every", 15)
c.JupyterHub.template_paths = [str(files / "pages")]
c.JupyterHub.shutdown_on_logout = False
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}

# Who waits, waits in Kueue's queue. The hub has no limit of its own and no time-out.
c.JupyterHub.spawner_class = CourseSpawner
c.JupyterHub.active_server_limit = 0
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.allow_named_servers = True
c.JupyterHub.named_server_limit_per_user = 4
c.Spawner.start_timeout = YEAR
c.Spawner.http_timeout = 120
c.Spawner.poll_interval = service.get("poll_every", 10)
c.Spawner.default_url = "/lab"
c.Spawner.consecutive_failure_limit = 0

# Pods of students: no rights, no token, one label for the queue.
c.KubeSpawner.profile_list = CourseSpawner.profiles
c.KubeSpawner.namespace = next(iter(known.courses))
c.KubeSpawner.pod_name_template = "jupyter-{user_server}"
c.KubeSpawner.common_labels = {"app.kubernetes.io/managed-by": "bedplate-hub"}
c.KubeSpawner.extra_labels = {"kueue.x-k8s.io/queue-name": "default"}
c.KubeSpawner.image_pull_policy = "IfNotPresent"
c.KubeSpawner.automount_service_account_token = False
c.KubeSpawner.service_account = None
c.KubeSpawner.enable_user_namespaces = False
c.KubeSpawner.allow_privilege_escalation = False
c.KubeSpawner.container_security_context = {
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# Without requests a pod gets next to nothing of a busy node: kernels then never answer.
c.KubeSpawner.cpu_guarantee = 0.02
c.KubeSpawner.mem_guarantee = "128M"
c.KubeSpawner.uid = 1000
c.KubeSpawner.gid = 100
c.KubeSpawner.fs_gid = None
c.KubeSpawner.storage_pvc_ensure = False
c.KubeSpawner.extra_pod_config = {"enableServiceLinks": False}
c.KubeSpawner.delete_grace_period = 5
c.KubeSpawner.k8s_api_request_timeout = 10
c.KubeSpawner.k8s_api_request_retry_timeout = 300
c.KubeSpawner.start_timeout = YEAR
c.KubeSpawner.port = service.get("notebook_port", 8888)
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]

# What services of ours need to find settings and cluster.
inherited = {
    name: os.environ[name]
    for name in (
        "PYTHONPATH",
        "BEDPLATE_HUB",
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
    )
    if name in os.environ
} | {"BEDPLATE_HUB_PID": str(os.getpid())}

# The service that holds hours, stops idle servers and takes up who waits.
c.JupyterHub.services = [
    {
        "name": "classes",
        "command": [sys.executable, str(files / "classes.py")],
        "environment": inherited,
    }
]
c.JupyterHub.load_roles = [
    {
        "name": "classes",
        "scopes": ["list:users", "read:users:groups", "read:servers", "servers", "access:servers"],
        "services": ["classes"],
    }
]

# The service for shares on request: users may use it, and so may the tokens of their notebooks.
if "shares_url" in service:
    c.JupyterHub.services.append(
        {
            "name": "shares",
            "url": service["shares_url"],
            "command": [sys.executable, str(files / "share_service.py")],
            "environment": inherited,
        }
    )
    use = "access:services!service=shares"
    c.JupyterHub.load_roles += [
        {"name": "user", "scopes": ["self", use]},
        {"name": "server", "scopes": ["users:activity!user", "access:servers!server", use]},
    ]
