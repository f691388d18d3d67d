"""Shows notices of the hub in JupyterLab: part of a notebook's server, and of its page.

The hub puts a text here; `notice.js` in the page asks for it and shows it. It is loaded from what
the hub mounts into a notebook, in any image with Jupyter Server 2; the student's own files are not
touched.
"""

from __future__ import annotations

import json
from typing import Any, Final

MODULE: Final = "bedplate_notice"
EXTENSION: Final = "bedplate-notice"
MOST: Final = 2000
#: Below a folder of Jupyter's configuration and of its data.
CONFIGURATION: Final = {"ServerApp": {"jpserver_extensions": {MODULE: True}}}
PACKAGE: Final = {
    "name": EXTENSION,
    "version": "1.0.0",
    "jupyterlab": {
        "extension": True,
        "_build": {"load": "static/notice.js", "extension": "./index"},
    },
}


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": MODULE}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Add the address `bedplate/notice` to a server."""
    from jupyter_server.base.handlers import APIHandler
    from tornado import web

    said = {"text": ""}

    class Notice(APIHandler):  # type: ignore[misc]
        """What the hub says now."""

        @web.authenticated  # type: ignore[untyped-decorator]
        def get(self) -> None:
            """Return it."""
            self.finish(said)

        @web.authenticated  # type: ignore[untyped-decorator]
        def put(self) -> None:
            """Take another one in place of it."""
            text = (self.get_json_body() or {}).get("text", "")
            said["text"] = str(text)[:MOST]
            self.set_status(204)
            self.finish()

    place = server.web_app.settings["base_url"].rstrip("/") + "/bedplate/notice"
    server.web_app.add_handlers(".*$", [(place, Notice)])


def files(script: str) -> dict[str, str]:
    """Return what a notebook mounts, by path; `script` is the text of `notice.js`."""
    lab = f"jupyter/labextensions/{EXTENSION}"
    return {
        "jupyter/jupyter_server_config.d/bedplate.json": json.dumps(CONFIGURATION),
        f"{lab}/package.json": json.dumps(PACKAGE),
        f"{lab}/static/notice.js": script,
    }
