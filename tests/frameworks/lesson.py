"""Runs the notebooks of a lesson in their order, inside an image: `lesson.py FOLDER COMMAND...`.

Each is a process of its own, in the folder, as a kernel runs it: cell by cell, magics included; a
cell that fails ends it. COMMAND runs the code of a share. The service for shares is a stand-in that
admits at once; it and the processes are on this machine alone. One line of JSON is printed: what
each notebook has printed, by its name. Standard library and IPython.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME = "share-1"
#: What the cell has printed in its share.
PRINTED = Path("/tmp/printed")


class Service(BaseHTTPRequestHandler):
    """The service of the hub, as `%share` asks it: one share, which runs when it is asked for."""

    command_line = ()
    process = None

    def log_message(self, *_):
        """Keep quiet."""

    def _do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "POST":
            PRINTED.write_text("")
            asked = json.loads(body)
            type(self).process = subprocess.Popen(
                [*self.command_line, asked["code"]],
                cwd=asked["directory"],
                stdout=PRINTED.open("w"),
                stderr=subprocess.STDOUT,
            )
            answer = {"name": NAME, "gets": "a stand-in", "time": "10m"}
        elif self.path.endswith(NAME):
            answer = {"output": PRINTED.read_text()}
        else:
            state = "running" if self.process.poll() is None else "ended"
            answer = {"shares": [{"name": NAME, "state": state, "line": f"{NAME}: {state}"}]}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _do  # noqa: N815 - names of the base class


def run_one(notebook):
    """Run a notebook's cells; a cell that fails ends the process with 1."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    for cell in json.loads(Path(notebook).read_text())["cells"]:
        if cell["cell_type"] == "code":
            found = shell.run_cell("".join(cell["source"]))
            if not found.success:
                return 1
    return 0


def main(folder, *command):
    """Run all notebooks of a folder; returns 1 at the first that fails."""
    Service.command_line = command
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{service.server_port}/lesson"
    environment = {**os.environ, "BEDPLATE_SHARES_URL": address, "MPLBACKEND": "Agg"}
    said = {}
    for notebook in sorted(Path(folder).glob("*.ipynb")):
        done = subprocess.run(
            [sys.executable, __file__, str(notebook)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        said[notebook.name] = done.stdout
        if done.returncode:
            print(f"{notebook.name}: {done.stdout}\n{done.stderr}", file=sys.stderr)
            return 1
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(run_one(given[0]) if len(given) == 1 else main(*given))
