"""A registry and a file server as a site may have of its own: TLS by its authority, one login."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from bedplate.mirror import processes
from tests.substrate.images import recipes
from tests.substrate.internet.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bedplate.bill.web import Web

USER, PASSWORD = "reader", "right-password-7"
#: The password's hash, as htpasswd -B makes it.
HASHED = "$2y$05$u7oashybSmXB.FnfCPypAu4WtpXLq.L.Cxwxr0fF0L0u8xSHNNS9m"
NGINX = """\
daemon off;
pid {root}/nginx.pid;
error_log {root}/nginx.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {root}/body;
  server {{
    listen {address}:{port} ssl;
    ssl_certificate {tls}/server.crt;
    ssl_certificate_key {tls}/server.key;
    client_max_body_size 0;
    auth_basic files;
    auth_basic_user_file {root}/plain;
    location / {{ root {root}/www; dav_methods PUT; create_full_put_path on; }}
    location /bedplate/moved/ {{ return 302 /sign-in; }}
    location /sign-in {{ auth_basic off; return 200; }}
  }}
}}
"""


@dataclass(frozen=True)
class OwnServers:
    """Both servers, in a folder of theirs.

    Attributes:
        root: the folder: `www` is what the file server has.
        address: where they listen.
        name: what their certificate names: clients ask for it.
        ports: of the file server, and of the registry.
    """

    root: Path
    address: str
    name: str
    ports: tuple[int, int]

    @property
    def files(self) -> str:
        """The file server's address, as `bedplate_sources.files`."""
        return f"https://{self.name}:{self.ports[0]}/bedplate"

    @property
    def registry(self) -> str:
        """The registry, as `bedplate_sources.registry`."""
        return f"{self.name}:{self.ports[1]}/site"

    @property
    def authority(self) -> Authority:
        """Who signs both servers' certificate."""
        return Authority(self.root / "tls")

    def await_answers(self, web: Web) -> None:
        """Wait until both answer; whatever they say will do."""
        for url in (f"{self.files}/", f"https://{self.name}:{self.ports[1]}/v2/"):
            self._await(web, url)

    def _await(self, web: Web, url: str) -> None:
        for _ in range(1200):
            try:
                web.length(url)
            except Exception:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"no answer: {url}")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run both."""
        self.authority.context([self.name])
        (self.root / "www").mkdir()
        self.root.chmod(0o755)
        digest = hashlib.sha1(PASSWORD.encode()).digest()  # noqa: S324 - nginx's form
        hashed = base64.b64encode(digest).decode()
        (self.root / "plain").write_text(f"{USER}:{{SHA}}{hashed}\n")
        (self.root / "htpasswd").write_text(f"{USER}:{HASHED}\n")
        settings, places = self.root / "registry.yml", {"root": self.root, "tls": self.root / "tls"}
        settings.write_text(yaml.safe_dump(self._registry()))
        user = "user root;\n" if os.geteuid() == 0 else ""
        text = NGINX.format(address=self.address, port=self.ports[0], **places)
        (self.root / "nginx.conf").write_text(user + text)
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        registry = recipes.known_tools()["registry"].program("registry")
        assert nginx
        with ExitStack() as stack:
            words = (nginx, "-c", str(self.root / "nginx.conf"))
            stack.enter_context(running(self.root, "nginx", *words))
            words = (str(registry), "serve", str(settings))
            stack.enter_context(running(self.root, "registry", *words))
            yield

    def _registry(self) -> dict[str, object]:
        tls = {name: str(self.root / f"tls/server.{end}") for name, end in TLS.items()}
        return {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(self.root / "registry")}},
            "http": {"addr": f"{self.address}:{self.ports[1]}", "tls": tls},
            # The stand-in's images name another platform, which nobody has.
            "validation": {"manifests": {"indexes": {"platforms": "none"}}},
            "auth": {"htpasswd": {"realm": "own", "path": str(self.root / "htpasswd")}},
        }


TLS = {"certificate": "crt", "key": "key"}


@contextmanager
def running(root: Path, name: str, *words: str) -> Iterator[None]:
    """Run a program until the end."""
    record = root / f"{name}.json"
    processes.start(record, list(words), root / f"{name}.out", {"OTEL_TRACES_EXPORTER": "none"})
    try:
        yield
    finally:
        processes.stop(record)
