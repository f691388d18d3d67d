"""A browser that tests drive line by line: a command as JSON on stdin, its answer on stdout.

It runs in an environment of its own, with playwright and the machine's Chromium. Each user has a
browser, as each student has a machine: pages of one browser that are behind others are slowed down.
Cells are run as the lab does it, by the kernel's socket from within its page, but without its
editor, which loses keys on a busy machine.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from playwright.sync_api import BrowserType, Error, Page, sync_playwright

RETRIES = 8
FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-backgrounding-occluded-windows",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
]
PATIENCE = 400_000  # ms; the machine may be busy
PASSWORD = "correct horse battery"
CELL = ".jp-Notebook .jp-Cell .cm-content"
NOTEBOOK = {
    "cells": [{"cell_type": "code", "source": "", "metadata": {}, "outputs": []}],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "nbformat": 4,
    "nbformat_minor": 4,
}
#: The lab's own API, as its page asks it.
ASK = """
async ([method, path, content]) => {
  const token = document.cookie.match(/(?:^|; )_xsrf=([^;]*)/);
  const answer = await fetch(path, {
    method: method,
    headers: {"Content-Type": "application/json", "X-XSRFToken": token ? token[1] : ""},
    body: JSON.stringify(content),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
  return await answer.json();
}
"""
#: Runs code in a kernel: returns what it printed, or nothing where it is not waited for.
RUN = """
([path, code, waits, patience]) => new Promise((resolve, reject) => {
  const name = Math.random().toString(16).slice(2), session = Math.random().toString(16).slice(2);
  const socket = new WebSocket(`ws://${location.host}${path}?session_id=${session}`);
  let text = "";
  const end = (how, what) => { how(what); socket.close(); };
  setTimeout(() => end(reject, new Error(`no answer of the kernel: ${text}`)), patience);
  socket.onerror = () => end(reject, new Error("no socket of the kernel"));
  socket.onopen = () => socket.send(JSON.stringify({
    channel: "shell",
    header: {msg_id: name, msg_type: "execute_request", session: session, username: "",
             version: "5.3", date: new Date().toISOString()},
    parent_header: {}, metadata: {}, buffers: [],
    content: {code: code, silent: false, store_history: true, user_expressions: {},
              allow_stdin: false, stop_on_error: true},
  }));
  socket.onmessage = event => {
    const message = JSON.parse(event.data), content = message.content;
    if (message.parent_header.msg_id !== name) return;
    if (message.msg_type === "stream") text += content.text;
    if (message.msg_type === "error") text += content.traceback.join("\\n");
    if (message.msg_type !== "status") return;
    if (content.execution_state === "idle" || !waits) end(resolve, text);
  };
})
"""

#: Types a line into a new terminal; the program goes on when the page is left.
TYPE = """
([path, line, patience]) => new Promise((resolve, reject) => {
  const socket = new WebSocket(`ws://${location.host}${path}`);
  setTimeout(() => { reject(new Error("no answer of the terminal")); socket.close(); }, patience);
  socket.onerror = () => reject(new Error("no socket of the terminal"));
  let typed = false;
  socket.onmessage = event => {
    const [kind, text] = JSON.parse(event.data);
    if (!typed) socket.send(JSON.stringify(["stdin", line + "\\recho sta''rted\\r"]));
    typed = true;
    if (kind === "stdout" && text.includes("started")) { resolve(); socket.close(); }
  };
})
"""


class Users:
    """What users do in the hub's pages."""

    def __init__(self, chromium: BrowserType, url: str) -> None:
        self._chromium, self._url = chromium, url
        self._pages: dict[str, Page] = {}
        self._kernels: dict[str, str] = {}
        self._count = 0

    def page(self, user: str) -> Page:
        """Return the page of a user."""
        if user not in self._pages:
            browser = self._chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            self._pages[user] = browser.new_context().new_page()
            self._pages[user].set_default_timeout(PATIENCE)
        return self._pages[user]

    def sign_up(self, user: str, code: str) -> str:
        """Sign up, and return what the page says."""
        page = self.page(user)
        page.goto(f"{self._url}/hub/signup")
        page.fill("#code", code)
        page.fill("#username_input", user)
        page.fill("#password_input", PASSWORD)
        page.fill("#confirmation_input", PASSWORD)
        page.click("#signup_submit")
        return page.inner_text(".alert:not(.hidden)")

    def login(self, user: str, password: str = PASSWORD) -> str:
        """Sign in, and return where that leads."""
        page = self.page(user)
        page.goto(f"{self._url}/hub/login")
        page.fill("#username_input", user)
        page.fill("#password_input", password)
        page.click("#login_submit")
        page.wait_for_url(lambda url: "/hub/login" not in url or "?" in url)
        return page.url

    def offers(self, user: str) -> str:
        """Return what the page for starting a server says."""
        page = self.page(user)
        page.goto(f"{self._url}/hub/spawn")
        return page.inner_text("form")

    def start(self, user: str) -> str:
        """Ask for a server, and return what the next page says at first.

        A hub that has just started may answer with a page without the form: a student reloads it.
        """
        page = self.page(user)
        for left in reversed(range(RETRIES)):
            page.goto(f"{self._url}/hub/spawn")
            try:
                page.click("#spawn_form [type=submit]", timeout=PATIENCE / RETRIES)
                break
            except Error as error:
                if not left:
                    raise RuntimeError(page.inner_text("body")) from error
        page.wait_for_url(lambda url: not url.endswith("/hub/spawn"))
        return page.url

    def shows(self, user: str, text: str) -> str:
        """Wait until the spawn page says something, and return the whole of it."""
        page = self.page(user)
        page.wait_for_selector(f"#progress-message:has-text('{text}')")
        return page.inner_text("#progress-message")

    def notebook(self, user: str) -> str:
        """Wait until the page that waited has become the lab, and open a new notebook there.

        The page of a hub that has just started may stay as it is: a student would reload it.
        """
        page = self.page(user)
        for _ in range(RETRIES):
            with contextlib.suppress(Error):
                page.wait_for_url(lambda url: f"/user/{user}/" in url, timeout=PATIENCE / RETRIES)
                page.wait_for_load_state("load", timeout=PATIENCE / RETRIES)
                break
            with contextlib.suppress(Error):  # it may be on its way by now
                page.reload()
        self._count += 1
        name = f"notes-{self._count}.ipynb"
        content = {"type": "notebook", "content": NOTEBOOK}
        page.evaluate(ASK, ["PUT", f"/user/{user}/api/contents/{name}", content])
        for _ in range(RETRIES):
            with contextlib.suppress(Error):
                # What was open before, asks questions.
                page.goto(f"{self._url}/user/{user}/lab/tree/{name}?reset")
                page.locator(CELL).first.wait_for(timeout=PATIENCE / RETRIES)
                return page.url
        raise RuntimeError(f"the lab of {user} shows no notebook")

    def _run(self, user: str, text: str, *, waits: bool) -> str:
        """Run a cell in the user's kernel, which is started once."""
        page, kernels = self.page(user), f"/user/{user}/api/kernels"
        if user not in self._kernels:
            self._kernels[user] = page.evaluate(ASK, ["POST", kernels, {}])["id"]
        path = f"{kernels}/{self._kernels[user]}/channels"
        return str(page.evaluate(RUN, [path, text, waits, PATIENCE]))

    def begin(self, user: str, text: str) -> None:
        """Begin to run a cell."""
        self._run(user, text, waits=False)

    def cell(self, user: str, text: str) -> str:
        """Run a cell, and return its output."""
        return self._run(user, text, waits=True)

    def terminal(self, user: str, line: str) -> None:
        """Start something in the background of a new terminal, as a student types it."""
        page, terminals = self.page(user), f"/user/{user}/api/terminals"
        name = page.evaluate(ASK, ["POST", terminals, {}])["name"]
        page.evaluate(TYPE, [f"/user/{user}/terminals/websocket/{name}", line, PATIENCE])

    def notified(self, user: str, text: str) -> str:
        """Wait until the lab notifies the user of something, and return the notification."""
        shown = self.page(user).locator(f":text('{text}')").last
        shown.wait_for()
        return shown.inner_text()

    def forget(self, user: str) -> None:
        """Know that a user's server, and so the kernel, has gone."""
        del self._kernels[user]

    def visit(self, user: str, path: str) -> list[Any]:
        """Go to a path, and return the status and the address that this ends at."""
        page = self.page(user)
        answer = page.goto(f"{self._url}{path}")
        return [answer.status if answer else None, page.url]

    def picture(self, user: str, path: str) -> None:
        """Keep what a user sees."""
        self.page(user).screenshot(path=path)


def main() -> None:
    """Do what each line says until there are no more."""
    with sync_playwright() as started:
        users = Users(started.chromium, sys.argv[1])
        for line in sys.stdin:
            given = json.loads(line)
            try:
                answer = {"answer": getattr(users, given["do"])(*given["with"])}
            except Exception as error:
                answer = {"error": f"{given}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
