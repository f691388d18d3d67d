"""The registry to which teachers push, next to the hub. Pure functions of the lock. Docs: ADR 41.

One pod: Distribution, and nginx before it, which asks the hub's service for shares before each
write. Distribution ends every night, and frees what was deleted before it starts again.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from bedplate.components.frameworks import hub_objects as hub
from bedplate.components.frameworks import hub_proxy
from bedplate.components.schedulers.kueue.objects import made
from bedplate.pods.hub import push

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bedplate.lock import Lock

NAME: Final = "registry"
#: The catalogue's names of both images.
IMAGE, PROXY_IMAGE = "registry", "registry-proxy"
PORT: Final = 8443
#: Distribution's, which nginx alone reaches.
BEHIND: Final = "127.0.0.1:5000"
#: Of the volume with the hub's state; no course has such a name.
FOLDER: Final = ".bedplate-registry"
DATA: Final = "/var/lib/registry"
SETTINGS: Final = "/etc/bedplate/registry"
TMP: Final = "/tmp"  # noqa: S108 - a volume of the pod's own
ASKED: Final = f"{hub.SHARES_URL}/services/shares/{push.ADDRESS}"
#: Seconds for pushes that are under way at night.
DRAINED: Final = 300
HOUR, DAY = 3600, 86400
DISTRIBUTION: Final[dict[str, Any]] = {
    "version": 0.1,
    "storage": {"filesystem": {"rootdirectory": DATA}, "delete": {"enabled": True}},
    "http": {"addr": BEHIND, "relativeurls": True, "draintimeout": f"{DRAINED}s"},
}


def _error(code: str, message: str) -> str:
    return json.dumps({"errors": [{"code": code, "message": message}]})


#: Reads are not asked about, but for `/v2/`, where a login is tried. The reason of a refusal is
#: JSON already. A push may have a body of any size until it is known whose it is.
NGINX: Final = f"""\
daemon off;
pid {TMP}/nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {TMP}/body; proxy_temp_path {TMP}/proxy; scgi_temp_path {TMP}/scgi;
  fastcgi_temp_path {TMP}/fastcgi; uwsgi_temp_path {TMP}/uwsgi;
  map "$request_method $request_uri" $asks {{ default 1; "~^(GET|HEAD) /v2/[^?]" 0; }}
  server {{
    listen {PORT} ssl;
    ssl_certificate {hub_proxy.FOLDER}/{hub_proxy.CERTIFICATE};
    ssl_certificate_key {hub_proxy.FOLDER}/{hub_proxy.KEY};
    auth_request /ask;
    auth_request_set $reason $upstream_http_{push.REASON.lower().replace("-", "_")};
    error_page 403 = @denied;
    error_page 413 = @large;
    error_page 502 = @away;
    default_type application/json;
    proxy_http_version 1.1;
    proxy_request_buffering off;
    proxy_buffering off;
    proxy_read_timeout 900;
    proxy_set_header Host $http_host;
    location = /ask {{
      internal;
      client_max_body_size 0;
      if ($asks = 0) {{ return 204; }}
      proxy_pass {ASKED};
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header {push.OF_WRITE[0]} $request_method;
      proxy_set_header {push.OF_WRITE[1]} $request_uri;
    }}
    location @denied {{
      auth_request off;
      return 403 '{_error("DENIED", "REASON").replace('"REASON"', "$reason")}';
    }}
    location @large {{
      auth_request off;
      return 413 '{_error("DENIED", "a layer is larger than all images of the course may be")}';
    }}
    location @away {{
      auth_request off;
      return 503 '{_error("UNAVAILABLE", "the registry starts again: try again in some minutes")}';
    }}
    location = /healthy {{ auth_request off; return 204; }}
    location / {{ auth_request off; return 404; }}
    location /v2/ {{ proxy_pass http://{BEHIND}; }}
"""


def courses(lock: Lock) -> dict[str, int]:
    """Return the courses with a registry, and the MiB of each."""
    of = lock.cluster.courses if lock.cluster else {}
    return {name: one.registry_mib for name, one in sorted(of.items()) if one.registry_mib}


def nginx(sizes: Mapping[str, int]) -> str:
    """Return nginx' settings; of a course with so many MiB no layer is larger."""
    its = "    location /v2/{}/ {{ client_max_body_size {}m; proxy_pass http://{}; }}\n"
    return NGINX + "".join(its.format(*one, BEHIND) for one in sizes.items()) + "  }\n}\n"


def command(zone: str) -> list[str]:
    """Return what frees the space of what was deleted, then serves until the next night.

    The image knows no time zones: the hour is that of the zone's winter.
    """
    offset = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)).utcoffset() or timedelta()
    night = int(push.NIGHT * HOUR - offset.total_seconds()) % DAY
    # A minute more: who ended at the very second would begin anew at once.
    left = f"$((({night} - $(date +%s) % {DAY} + {DAY}) % {DAY} + 60))"
    file = f"{SETTINGS}/registry.json"
    text = f"registry garbage-collect {file}; exec timeout {left} registry serve {file}"
    return ["sh", "-c", text]


def objects(lock: Lock, image: Callable[[str], str], state: hub.State) -> list[hub.Object]:
    """Return the Service and what is behind it; `image` finds one by the catalogue's name."""
    zone = lock.cluster.hub.timezone if lock.cluster and lock.cluster.hub else "UTC"
    data = {"nginx.conf": nginx(courses(lock)), "registry.json": json.dumps(DISTRIBUTION)}
    about = "The registry to which teachers push."
    ports = [{"name": "https", "port": 443, "targetPort": PORT}]
    spec = {"selector": hub.app(NAME), "ports": ports, "type": "NodePort"}
    place: hub.Object = {"version": "v1", "namespace": hub.NAMESPACE}
    kept = {"name": "data", "mountPath": DATA, "subPath": FOLDER}
    settings = {"name": "settings", "mountPath": SETTINGS, "readOnly": True}
    tls = {"name": "tls", "mountPath": hub_proxy.FOLDER, "readOnly": True}
    # Not a path of the registry: nginx answers while Distribution frees space.
    health = {"httpGet": {"path": "/healthy", "port": PORT, "scheme": "HTTPS"}}
    pod = hub.deployment(
        NAME,
        "Distribution, and nginx before it.",
        hub.digest(data),
        automountServiceAccountToken=False,
        terminationGracePeriodSeconds=DRAINED,
        initContainers=[hub.owner(image(IMAGE), kept)],
        containers=[
            _container("distribution", image(IMAGE), command(zone), kept, settings),
            {
                **_container(
                    "nginx",
                    image(PROXY_IMAGE),
                    ["nginx", "-e", "stderr", "-c", f"{SETTINGS}/nginx.conf"],
                    *(settings, tls, {"name": "tmp", "mountPath": TMP}),
                ),
                "readinessProbe": {**health, "periodSeconds": 2},
            },
        ],
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": state.claim}},
            {"name": "settings", "configMap": {"name": NAME}},
            {"name": "tls", "secret": {"secretName": hub_proxy.TLS, "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {}},
        ],
        tolerations=hub.tolerations(state),
    )
    configuration = made("ConfigMap", NAME, "Settings of the registry.", data=data, **place)
    return [made("Service", NAME, about, spec=spec, **place), configuration, pod]


def _container(name: str, image: str, run: list[str], *mounts: hub.Object) -> hub.Object:
    return {
        "name": name,
        "image": image,
        "command": run,
        "env": [{"name": "OTEL_TRACES_EXPORTER", "value": "none"}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": hub.restricted(),
        "volumeMounts": list(mounts),
    }


def seen(deployment: hub.Object) -> hub.Object:
    """Return the hub's Deployment with what the registry keeps: the hub counts it."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    place = {"name": "state", "mountPath": str(push.DATA), "subPath": FOLDER}
    container["volumeMounts"].append(place)
    return deployment
