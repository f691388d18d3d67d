"""The configuration of nginx, which serves a mirror's files and images as they lie on disk."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bedplate.mirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bedplate.mirror.address import Address
    from bedplate.mirror.images import Images

#: The media types of manifests, each with its location in nginx.
KINDS = {
    "index": "application/vnd.oci.image.index.v1+json",
    "manifest": "application/vnd.oci.image.manifest.v1+json",
    "docker-list": "application/vnd.docker.distribution.manifest.list.v2+json",
    "docker-manifest": "application/vnd.docker.distribution.manifest.v2+json",
}
#: What a repository, a tag and a digest are made of: nothing that nginx reads as its own.
ASKED = re.compile(r"[\w./:@+-]+")
#: Connections of each of two workers, and the files that a worker opens for them.
CONNECTIONS, FILES = 16384, 40000

NGINX = """\
# The worker reads a cache below its owner's home: it runs as the user who started it.
{user}daemon off;
worker_processes 2;
worker_rlimit_nofile {files};
pid "{run}/nginx.pid";
error_log stderr warn;
# Who sends half a header holds a connection until the time is over: there are enough for others.
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  server_tokens off;
  sendfile on;
  tcp_nopush on;
  client_header_timeout 10s;
  client_body_timeout 10s;
  reset_timedout_connection on;
  client_body_temp_path "{run}/body";
  proxy_temp_path "{run}/proxy";
  fastcgi_temp_path "{run}/fastcgi";
  uwsgi_temp_path "{run}/uwsgi";
  scgi_temp_path "{run}/scgi";
  map_hash_bucket_size 1024;
  map_hash_max_size 65536;
  map $uri $manifest {{ include "{run}/manifests.map"; }}
  map $manifest $manifest_kind {{ include "{run}/kinds.map"; }}
  server {{
    listen {listen};
{tls}    location = /healthz {{ return 200 "{token}\\n"; }}
    location /files/ {{
      limit_except GET {{ deny all; }}
      default_type application/octet-stream;
      types {{ }}
      root "{root}";
    }}
    # Images, as the registry's layout has them on disk: hosts pull, no one pushes.
    location = /v2/ {{
      default_type application/json;
      return 200 "{{}}";
    }}
    location ~ "^/v2/.+/blobs/sha256:(?<two>[0-9a-f]{{2}})(?<rest>[0-9a-f]{{62}})$" {{
      limit_except GET {{ deny all; }}
      default_type application/octet-stream;
      types {{ }}
      add_header Docker-Content-Digest "sha256:$two$rest";
      alias "{blobs}/$two/$two$rest/data";
    }}
    location ~ "^/v2/.+/manifests/" {{
      if ($manifest = "") {{ return 404; }}
      rewrite ^ /manifest/$manifest_kind/$manifest last;
    }}
{kinds}    location / {{ return 404; }}
  }}
}}
"""
KIND = """\
    location ~ "^/manifest/{kind}/sha256:(?<two>[0-9a-f]{{2}})(?<rest>[0-9a-f]{{62}})$" {{
      internal;
      default_type {media};
      types {{ }}
      add_header Docker-Content-Digest "sha256:$two$rest";
      alias "{blobs}/$two/$two$rest/data";
    }}
"""
TLS = """\
    ssl_certificate "{certificate}";
    ssl_certificate_key "{key}";
    ssl_protocols TLSv1.2 TLSv1.3;
"""


@dataclass(frozen=True)
class Served:
    """What nginx is to serve, and how.

    Attributes:
        run: the directory of its process.
        root: the mirror's.
        address: where it listens.
        token: what it answers for its health: no other server does.
        certificate, key: for https.
        as_root: whether root starts it.
        files: how many files a worker may open.
    """

    run: Path
    root: Path
    address: Address
    token: str
    certificate: Path | None = None
    key: Path | None = None
    as_root: bool = False
    files: int = FILES


def nginx(served: Served, blobs: Path) -> str:
    """Return nginx's configuration.

    Raises:
        MirrorError: a path holds a character that nginx would not take literally.
    """
    paths = (served.run, served.root, served.certificate, served.key)
    for path in filter(None, paths):
        if set(str(path)) & set('"\\$\n'):
            raise MirrorError(
                "nginx can't serve from this directory",
                str(path),
                "a quote, backslash, dollar or line break in its name",
                "none of them",
                "name another directory in BEDPLATE_CACHE",
            )
    secure = served.certificate is not None
    return NGINX.format(
        user="user root;\n" if served.as_root else "",
        files=served.files,
        connections=min(CONNECTIONS, served.files // 2),
        run=served.run,
        root=served.root,
        listen=served.address.place + (" ssl" if secure else ""),
        tls=TLS.format(certificate=served.certificate, key=served.key) if secure else "",
        token=served.token,
        blobs=blobs,
        kinds="".join(
            KIND.format(kind=kind, media=media, blobs=blobs) for kind, media in KINDS.items()
        ),
    )


def maps(images: Images) -> Mapping[str, str]:
    """Return the files that say which manifest is asked for by which path, and of which kind."""
    digests = {
        f"/v2/{repository}/manifests/{reference}": digest
        for repository, reference, digest in images.references()
    }
    kinds = {digest: _kind(images, digest) for digest in set(digests.values())}
    return {
        "manifests.map": _lines(
            (path, digest) for path, digest in digests.items() if kinds[digest]
        ),
        "kinds.map": _lines(kinds.items()),
    }


def _lines(entries: Iterable[tuple[str, str]]) -> str:
    found = [pair for pair in sorted(entries) if all(ASKED.fullmatch(one) for one in pair)]
    return 'default "";\n' + "".join(f'"{name}" "{value}";\n' for name, value in found)


def _kind(images: Images, digest: str) -> str:
    """Return the kind of a manifest; empty where it is none, or is not there."""
    try:
        content = json.loads(images.blob(digest).read_bytes())
        media = content.get("mediaType") or KINDS["index" if "manifests" in content else "manifest"]
    except (OSError, ValueError, AttributeError):
        return ""
    return next((kind for kind, one in KINDS.items() if one == media), "")
