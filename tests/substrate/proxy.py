"""An HTTP proxy on this machine that answers out of a folder, whichever host is asked for.

A name that no resolver knows is reached through it alone: what arrives has gone this way.
"""

from __future__ import annotations

import functools
import http.server
import threading
import urllib.parse
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Reserved for names that do not exist (RFC 2606).
BEHIND = "http://mirror.invalid"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve what is asked for with its whole address, as proxies are asked."""

    def translate_path(self, path: str) -> str:
        """Return the file that an address stands for; of one without a host there is none."""
        parts = urllib.parse.urlsplit(path)
        return super().translate_path(parts.path if parts.netloc else "/not-by-a-proxy")

    def log_message(self, *_arguments: object) -> None:
        """Say nothing: tests look at what came."""


@contextmanager
def proxy(folder: Path) -> Iterator[dict[str, str]]:
    """Run a proxy with the files of `folder`; yield the variables that name it."""
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"), address)
        finally:
            server.shutdown()


def written(variables: Mapping[str, str]) -> str:
    """Return what role host_proxy writes into a host's file."""
    return "".join(f"{name}={value}\n" for name, value in variables.items())
