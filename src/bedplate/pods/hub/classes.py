"""The hub's service for classes: hours, warnings, idle servers, who waits after a restart.

Each step compares what is with what the settings and the clock say, and corrects the difference. It
keeps nothing between steps that could be lost: a hub that starts again counts a cell that still
runs from then on, in the student's favour.

What is idle is in `idle.py`. The hub's own activity, by which jupyterhub-idle-culler goes, also
counts the requests of an open page.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from bedplate.pods.hub import idle, person, prepare, shares
from bedplate.pods.hub.courses import Course, Settings, settings
from bedplate.pods.hub.idle import State, moment, state_of
from bedplate.pods.hub.node_use import PORT, READERS
from bedplate.pods.hub.places import KUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVERY: Final = 10
WARN: Final = timedelta(minutes=10)
NOTICE: Final = "bedplate.io/notice"
READ_WITHIN: Final = 5
USER: Final = "hub.jupyter.org/username"
SERVER: Final = "hub.jupyter.org/servername"
CHOSEN: Final = "bedplate.io/profile"
#: Kueue stops what runs and admits nothing, until the next class.
HELD: Final = "HoldAndDrain"
OPEN: Final = "None"
log = logging.getLogger("classes")


class Api(Protocol):
    """The API server."""

    async def get(self, path: str) -> Any:
        """Return the object at a path."""

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Make an object below a path."""

    async def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Merge into the object at a path."""

    async def delete(self, path: str) -> Any:
        """Delete the object at a path."""


class Hub(Protocol):
    """The hub's REST API, and those of the notebooks."""

    async def servers(self) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Return the servers that run, start or stop, by user and server name."""

    async def users(self) -> Mapping[str, frozenset[str]]:
        """Return all users with the groups that they are in."""

    async def start(self, user: str, server: str, profile: str) -> None:
        """Start a server, or take it up where its pod is."""

    async def stop(self, user: str, server: str) -> None:
        """Stop a server."""

    async def activity(self, pod: Mapping[str, Any]) -> State | None:
        """Return what Jupyter says of its kernels and terminals; None without an answer."""

    async def use(self, address: str) -> dict[str, Any]:
        """Return what the reader at an address says of its node. Raises OSError, ValueError."""

    async def notify(self, pod: Mapping[str, Any], text: str) -> None:
        """Show a text in the student's notebook, or none any more."""


class Classes:
    """One step after the other; each survives the failure of the others."""

    def __init__(
        self, api: Api, hub: Hub, known: Settings, slug: Callable[[str], str] = str
    ) -> None:
        self._api, self._hub, self._known, self._slug = api, hub, known, slug
        #: By server, the kernels that run a cell and since when each was seen to.
        self._busy: dict[tuple[str, str], dict[str, datetime]] = {}
        self._readers: dict[str, str] = {}
        self._answers: dict[str, dict[str, Any] | None] = {}
        self._unknown: dict[str, str] = {}

    async def step(self, now: datetime) -> None:
        """Bring all courses to where the clock says they are."""
        servers = await self._hub.servers()
        self._busy = {who: found for who, found in self._busy.items() if who in servers}
        self._answers, self._readers = {}, await self._find_readers()
        for course in self._known.courses.values():
            for part in (
                self._hours(course, now),
                self._pods(course, now, servers),
                self._shares(course, now),
                self._prepare(course, now),
            ):
                try:
                    await part
                except Exception:
                    log.exception(
                        "a step of course %s failed; the next one tries again", course.name
                    )

    async def _hours(self, course: Course, now: datetime) -> None:
        """Hold or release the course's queue."""
        path = f"{KUEUE}/clusterqueues/{course.name}"
        wanted = OPEN if course.open(now) else HELD
        found = (await self._api.get(path))["spec"].get("stopPolicy", OPEN)
        if found != wanted and {found, wanted} <= {OPEN, HELD}:  # another hold is an operator's
            log.info("course %s: stop policy %s becomes %s", course.name, found, wanted)
            await self._api.patch(path, {"spec": {"stopPolicy": wanted}})

    async def _shares(self, course: Course, now: datetime) -> None:
        """End shares on request with the lesson: Kueue would start them again in the next one."""
        if course.open(now):
            return
        path = shares.jobs(course.name)
        listed = (await self._api.get(f"{path}?labelSelector={shares.LABEL}"))["items"]
        for job in listed:
            if "deletionTimestamp" not in job["metadata"] and not shares.ended(job):
                name = job["metadata"]["name"]
                log.info("course %s has ended: so does the share %s", course.name, name)
                # Without a policy the pods of a Job outlive it.
                await self._api.delete(f"{path}/{name}?propagationPolicy=Background")

    async def _prepare(self, course: Course, now: datetime) -> None:
        """Prepare the students' environments before a lesson; clear up once it has begun."""
        path = f"/api/v1/namespaces/{course.name}/pods"
        listed = (await self._api.get(f"{path}?labelSelector={prepare.LABEL}"))["items"]
        if prepare.due(course, now):
            for user in prepare.missing(course, await self._hub.users(), listed):
                log.info("course %s: the environment of %s is prepared", course.name, user)
                await self._api.post(path, prepare.pod(course, user, self._slug(user)))
            return
        for pod in listed:
            if pod["status"].get("phase") == "Failed":
                log.warning("%s/%s failed", course.name, pod["metadata"]["name"])
            if "deletionTimestamp" not in pod["metadata"]:
                await self._api.delete(f"{path}/{pod['metadata']['name']}")

    async def _pods(
        self,
        course: Course,
        now: datetime,
        servers: Mapping[tuple[str, str], Mapping[str, Any]],
    ) -> None:
        path = f"/api/v1/namespaces/{course.name}/pods"
        listed = (await self._api.get(f"{path}?labelSelector={quote(person.SERVERS)}"))["items"]
        ending = await self._ending(course) if listed else {}
        for pod in listed:
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:
                continue
            notes = meta.get("annotations", {})
            who = notes.get(USER, ""), notes.get(SERVER, "")
            if not course.open(now):
                # Kueue stops what runs, but for notebooks without a GPU, which it does not know.
                # Who still waits is sent home too.
                if pod["spec"].get("schedulingGates") or course.runs:
                    await self._api.delete(f"{path}/{meta['name']}")
                continue
            place = f"{path}/{meta['name']}"
            phase = pod["status"].get("phase")
            if who not in servers:
                if phase in {"Pending", "Running"}:
                    log.info("%s has a pod that the hub does not know: it is taken up", who)
                    await self._hub.start(*who, notes.get(CHOSEN, ""))
                else:
                    await self._api.delete(place)
                continue
            runs = phase == "Running" and servers[who].get("ready")
            warning = await self._cull(course, now, pod, who) if runs else ""
            if warning is None:
                continue
            said = (self._end(course, now), warning, *ending.get(who[0], ()))
            text = " ".join(filter(None, said)) or None
            if runs and (text or NOTICE in notes):
                await self._hub.notify(pod, text or "")
            if notes.get(NOTICE) != text:
                await self._api.patch(place, {"metadata": {"annotations": {NOTICE: text}}})

    async def _ending(self, course: Course) -> dict[str, list[str]]:
        """Return by student the warnings of shares on request that are idle."""
        found: dict[str, list[str]] = {}
        path = f"{shares.jobs(course.name)}?labelSelector={shares.LABEL}"
        for job in (await self._api.get(path))["items"]:
            notes = job["metadata"].get("annotations") or {}
            if (end := idle.ends(notes)) is not None and not shares.ended(job):
                text = f"{job['metadata']['name']} is idle and ends at {_clock(course, end)}."
                found.setdefault(notes.get(USER, ""), []).append(text)
        return found

    def _end(self, course: Course, now: datetime) -> str:
        """Say ten minutes before the end that it comes."""
        left = course.left(now)
        if left is None or left > WARN:
            return ""
        return (
            f"{course.name} ends at {_clock(course, now + left)}: save your work. Your files stay."
        )

    async def _cull(
        self, course: Course, now: datetime, pod: Mapping[str, Any], who: tuple[str, str]
    ) -> str | None:
        """Warn of an idle server, then stop it; return the warning, None where it is stopped."""
        state = await self._hub.activity(pod)
        if state is None:
            return ""
        meta, begun = pod["metadata"], self._busy.get(who, {})
        busy = self._busy[who] = {one: begun.get(one, now) for one in state.busy}
        work = idle.work_of(await self._use(pod), meta["uid"])
        if course.runs and work is not None:
            # Without a GPU kernels decide, as a cell waits for its run; and programs.
            work = replace(work, measured=False)
        since = idle.since(state, work, now, _ready(pod), max(busy.values(), default=None))
        still = None if since is None else (now - since).total_seconds()
        notes, limit = meta.get("annotations", {}), course.idle_timeout
        why = idle.ended(limit, share=not course.runs)
        todo, change = idle.changed(notes, still, limit, now, why)
        if change:
            log.info("%s is idle since %s: %s", who, since, todo or "in use again")
            path = f"/api/v1/namespaces/{course.name}/pods/{meta['name']}"
            await self._api.patch(path, {"metadata": {"annotations": change}})
        if todo == "stop":
            await self._hub.stop(*who)
            return None
        end = idle.ends(notes | change)
        return idle.sentence(course.name, _clock(course, end), work) if todo and end else ""

    async def _find_readers(self) -> dict[str, str]:
        """Return the addresses of the readers by node; none where they cannot be listed."""
        try:
            listed = (await self._api.get(READERS))["items"]
        except Exception as error:
            self._say("the readers of GPUs", str(error))
            return {}
        port = self._known.service.get("use_port", PORT)
        return {
            one["spec"]["nodeName"]: f"http://{one['status']['podIP']}:{port}"
            for one in listed
            if one["status"].get("podIP") and one["spec"].get("nodeName")
        }

    async def _use(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what a pod's node says, asked once a step; None without an answer."""
        node = pod["spec"].get("nodeName", "")
        if node not in self._answers:
            found, why = None, "no reader runs there"
            try:
                if node in self._readers:
                    found = await self._hub.use(self._readers[node])
                    why = found["why"]
            except (OSError, ValueError, KeyError, TimeoutError) as error:
                found, why = None, str(error) or type(error).__name__
            self._answers[node] = found
            self._say(node, why)
        return self._answers[node]

    def _say(self, where: str, why: str) -> None:
        """Log once where the use of GPUs is not known."""
        if why and self._unknown.get(where) != why:
            log.warning("%s: the use of GPUs is not known: %s. Kernels decide there", where, why)
        self._unknown[where] = why


def _clock(course: Course, when: datetime) -> str:
    return when.astimezone(course.here()).strftime("%H:%M")


def _ready(pod: Mapping[str, Any]) -> datetime | None:
    for one in pod["status"].get("conditions", []):
        if one["type"] == "Ready" and one["status"] == "True":
            return moment(one["lastTransitionTime"])
    return None


def _notebook(pod: Mapping[str, Any]) -> str:
    """Return the address of a notebook, past the proxy."""
    (notebook,) = (one for one in pod["spec"]["containers"] if one["name"] == "notebook")
    values = {one["name"]: one.get("value", "") for one in notebook.get("env", [])}
    port = notebook["ports"][0]["containerPort"]
    return f"http://{pod['status']['podIP']}:{port}{values['JUPYTERHUB_SERVICE_PREFIX']}"


class Http:
    """The hub and the notebooks over HTTP, with the token of this service."""

    def __init__(self, session: Any, url: str, token: str) -> None:
        self._session, self._url = session, url.rstrip("/")
        self._headers = {"Authorization": f"token {token}"}

    async def servers(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the servers that run, start or stop."""
        return {
            (user["name"], name): server
            for user in await self._listed("state=active&")
            for name, server in (user.get("servers") or {}).items()
        }

    async def users(self) -> dict[str, frozenset[str]]:
        """Return all users with their groups."""
        return {one["name"]: frozenset(one.get("groups", ())) for one in await self._listed()}

    async def _listed(self, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        size = 200
        while True:
            url = f"{self._url}/users?{query}limit={size}&offset={len(found)}"
            users = json.loads(await self._ask("GET", url))
            found += users
            if len(users) < size:
                return found

    async def start(self, user: str, server: str, profile: str) -> None:
        """Start a server."""
        body = json.dumps({"profile": profile} if profile else {})
        await self._ask("POST", self._server(user, server), body)

    async def stop(self, user: str, server: str) -> None:
        """Stop a server."""
        await self._ask("DELETE", self._server(user, server))

    async def activity(self, pod: Mapping[str, Any]) -> State | None:
        """Ask the notebook itself, past the proxy, which would count it as activity."""
        base = f"{_notebook(pod)}api"
        try:
            kernels = json.loads(await self._ask("GET", f"{base}/kernels"))
            terminals = json.loads(await self._ask("GET", f"{base}/terminals"))
        except (OSError, ValueError, TimeoutError) as error:
            log.warning("%s does not say what its kernels do: %s", pod["metadata"]["name"], error)
            return None
        return state_of(kernels, terminals)

    async def use(self, address: str) -> dict[str, Any]:
        """Ask a reader; it gets no token."""
        async with self._session.get(address, timeout=READ_WITHIN) as answer:
            found: dict[str, Any] = json.loads(await answer.text())
            return found

    async def notify(self, pod: Mapping[str, Any], text: str) -> None:
        """Give the text to the notebook's server, whose page asks for it."""
        try:
            body = json.dumps({"text": text})
            await self._ask("PUT", f"{_notebook(pod)}bedplate/notice", body)
        except (OSError, TimeoutError) as error:
            log.info("%s shows no notices: %s", pod["metadata"]["name"], error)

    def _server(self, user: str, server: str) -> str:
        where = f"servers/{quote(server, safe='')}" if server else "server"
        return f"{self._url}/users/{quote(user, safe='')}/{where}"

    async def _ask(self, method: str, url: str, body: str | None = None) -> str:
        async with self._session.request(method, url, data=body, headers=self._headers) as answer:
            text: str = await answer.text()
            if answer.status >= 400:
                raise OSError(f"{method} {url}: {answer.status} {text[:200]}")
            return text


async def main() -> None:
    """Step until the hub ends this process, or is gone."""
    import aiohttp
    from kubernetes_asyncio import client, config
    from kubespawner.slugs import safe_slug

    from bedplate.pods.hub.kube import Kube

    logging.basicConfig(level=logging.INFO, format="[classes] %(message)s")
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()
    time = aiohttp.ClientTimeout(total=30)
    async with client.ApiClient() as api, aiohttp.ClientSession(timeout=time) as session:
        hub = Http(session, os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"])
        known = settings()
        # As KubeSpawner writes `{username}`.
        classes = Classes(Kube(api), hub, known, lambda name: safe_slug(name, max_length=48))
        # A hub that is gone starts another one of this, also if it went while this one began.
        while os.getppid() == int(os.environ["BEDPLATE_HUB_PID"]):
            try:
                await classes.step(datetime.now(UTC))
            except Exception:
                log.exception("a step failed; the next one tries again")
            await asyncio.sleep(known.service.get("classes_every", EVERY))


if __name__ == "__main__":
    asyncio.run(main())
