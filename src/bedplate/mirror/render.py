"""The configuration files of the mirror's two programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from pathlib import Path

NGINX = """\
# The worker reads a cache below its owner's home: it runs as the user who started it.
{user}daemon off;
worker_processes 2;
pid "{run}/nginx.pid";
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  server_tokens off;
  sendfile on;
  tcp_nopush on;
  client_body_temp_path "{run}/body";
  proxy_temp_path "{run}/proxy";
  fastcgi_temp_path "{run}/fastcgi";
  uwsgi_temp_path "{run}/uwsgi";
  scgi_temp_path "{run}/scgi";
  server {{
    listen {address}:{port};
    location = /healthz {{ return 200 "ok\\n"; }}
    location /files/ {{
      limit_except GET {{ deny all; }}
      default_type application/octet-stream;
      types {{ }}
      root "{root}";
    }}
    location /v2/ {{
      # Hosts pull; only who fills the mirror pushes, and not through this address.
      limit_except GET {{ deny all; }}
      proxy_pass http://127.0.0.1:{registry_port};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_max_temp_file_size 0;
    }}
    location / {{ return 404; }}
  }}
}}
"""


def nginx(
    run: Path, root: Path, address: str, port: int, registry_port: int, *, as_root: bool
) -> str:
    """Return nginx's configuration.

    Raises:
        MirrorError: a path holds a character that nginx would not take literally.
    """
    for path in (run, root):
        if set(str(path)) & set('"\\$\n'):
            raise MirrorError(
                "nginx can't serve from this directory",
                str(path),
                "a quote, backslash, dollar or line break in its name",
                "none of them",
                "name another directory in BEDPLATE_CACHE",
            )
    user = "user root;\n" if as_root else ""
    return NGINX.format(
        user=user, run=run, root=root, address=address, port=port, registry_port=registry_port
    )


def registry(data: Path, port: int, *, read_only: bool) -> str:
    """Return the registry's configuration; JSON is YAML."""
    settings = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(data)},
            "maintenance": {
                "readonly": {"enabled": read_only},
                "uploadpurging": {"enabled": False},
            },
        },
        "http": {"addr": f"127.0.0.1:{port}", "relativeurls": True},
    }
    return json.dumps(settings, indent=2) + "\n"
