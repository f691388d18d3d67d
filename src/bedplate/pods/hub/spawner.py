"""KubeSpawner with Kueue's queue: the queue's truth is the pods' own, never the hub's memory.

A hub that starts again finds waiting pods where they are. What it knew of them it has lost: it
takes each up again by its name (`classes.py` asks for that), and makes none a second time.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from jupyterhub.utils import exponential_backoff
from kubernetes_asyncio.client import ApiException
from tornado.web import HTTPError

from bedplate.pods.hub import hours, idle, magic, memory, person, prepare, shares
from bedplate.pods.hub.courses import Course, Settings, settings
from bedplate.pods.hub.kube import Kube
from bedplate.pods.hub.places import Places
from bedplate.pods.hub.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COURSE: Final = "bedplate.io/course"
#: The profile, for a hub that takes the pod up.
CHOSEN: Final = "bedplate.io/profile"
#: A claim of a pod, by its own name for it.
GPU: Final = "gpu"
IDENTITY: Final = "JUPYTERHUB_API_TOKEN"
#: From admission to a notebook that answers: images of 20 GB take their time.
START_WITHIN: Final = 1800
#: The API server answers with these while Kueue's webhook is away.
AWAY: Final = 500
CONFLICT: Final = 409
GONE: Final = 404


class CannotStartError(HTTPError):  # type: ignore[misc]
    """A server does not start, with a sentence for who asked for it."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(status, message)
        self.jupyterhub_message = message


class CourseSpawner(Upstream):
    """Starts a student's pod in the course's namespace, and waits as long as the queue takes."""

    _settings: Settings | None = None
    _places: Places | None = None
    _taken_up: str | None = None
    _where: str = ""
    #: Why servers ended, by user and server: a spawner is made again for each start.
    _ended: ClassVar[dict[tuple[str, str], str]] = {}

    @classmethod
    def known(cls) -> Settings:
        """Return the stack's settings, read once."""
        if CourseSpawner._settings is None:
            CourseSpawner._settings = settings()
        return CourseSpawner._settings

    def places(self) -> Places:
        """Return the reader of Kueue's queues."""
        if CourseSpawner._places is None:
            CourseSpawner._places = Places(self._read)
        return CourseSpawner._places

    async def _read(self, path: str) -> Any:
        """GET a path of the API server."""
        return await Kube(self.api.api_client).get(path)

    # What is offered.

    def _enrolled(self) -> list[Course]:
        groups = frozenset(group.name for group in self.user.groups)
        return self.known().of(self.user.name, groups)

    def courses(self) -> list[Course]:
        """Return the courses of this server's user that take place now."""
        now = datetime.now(UTC)
        return [one for one in self._enrolled() if one.open(now)]

    def timetables(self) -> list[str]:
        """Return a sentence for each course of the user that does not take place now.

        Its sizes have the same hours.
        """
        now = datetime.now(UTC)
        theirs = [one for one in self._enrolled() if not one.of]
        return [one.timetable(now) for one in theirs if not one.open(now)]

    async def profiles(self) -> list[dict[str, Any]]:
        """Return what the user may start now, with the numbers."""
        found = []
        for course in self.courses():
            ((resource, each),) = course.limits.items()
            try:
                room = await self.places().room(course.name, resource)
                told = room.describe(int(each)) if room.active else "the queue is stopped"
            except (ApiException, OSError, TimeoutError) as error:
                self.log.warning("the room of %s cannot be read: %s", course.name, error)
                told = "how many wait cannot be read"
            told = f"shares for runs: {told}" if course.runs else told
            found += [
                {
                    "slug": profile.slug,
                    "display_name": profile.title,
                    "description": f"{profile.about} {told.capitalize()}.",
                    "kubespawner_override": self._override(course, profile),
                }
                for profile in course.profiles
            ]
        return found

    def _override(self, course: Course, profile: Any) -> dict[str, Any]:
        limits = {} if course.claim or course.runs else course.limits
        limits = memory.of_disk(course.disk_mib) | limits
        # Kueue holds what has a queue.
        queue = None if course.runs else shares.QUEUE
        return {
            "namespace": course.name,
            "image": profile.image,
            "environment": {**profile.environment, magic.PROFILE: profile.runs or profile.slug},
            "extra_labels": {COURSE: course.name, shares.QUEUE_LABEL: queue},
            "extra_annotations": {CHOSEN: profile.slug},
            "extra_resource_limits": limits,
            "extra_resource_guarantees": limits,
            "volumes": course.volumes,
            "volume_mounts": course.mounts,
            "lifecycle_hooks": prepare.at_start(course),
            **memory.of_node(course),
            **course.placed,
        }

    async def _chosen(self) -> Course:
        """Take over the chosen profile; refuse what the user may not start now."""
        if not await self.profiles():
            when = self.timetables() or ["Ask your teacher to add you to one."]
            raise CannotStartError(
                " ".join([f"No course of {self.user.name} takes place now.", *when]), 403
            )
        try:
            await self.load_user_options()
        except ValueError as error:
            raise CannotStartError(
                f"This is not offered to {self.user.name} now: {error}", 403
            ) from error
        return self.known().courses[self.namespace]

    async def _counted(self) -> None:
        """Refuse a server with which its user has more of the course than the plan has proved.

        Servers that begin are known here before they have a pod, and after a restart of the hub by
        their pods alone.
        """
        course = self.known().courses[self.namespace]
        path = f"{shares.jobs(course.name)}?labelSelector={shares.LABEL}"
        jobs = (await self._read(path))["items"]
        has = [] if course.runs else person.held([], jobs, self.user.name)
        begun = {
            one.pod_name
            for one in self.user.spawners.values()
            if one is not self and one.active and one.namespace == course.name
        }
        pods = [
            one
            for one in self.pod_reflector.pods.values()
            if one["metadata"]["namespace"] == course.name
            and one["metadata"]["name"] not in {self.pod_name, *begun}
        ]
        servers = len(begun) + len(person.held(pods, [], self.user.name))
        if servers + len(has) < course.notebooks:
            return
        told = [*([f"{servers} server{'s' * (servers > 1)}"] if servers else []), *has]
        raise CannotStartError(
            f"You have {' and '.join(told)} of {course.name} already, and each student may have "
            f"{course.notebooks} at once: stop or release one first."
        )

    async def _in_hours(self) -> None:
        """Refuse a server with a GPU to who has used up the GPU-hours of the week."""
        course = self.known().courses[self.namespace]
        if not course.gpu_hours or course.runs:
            return
        table = await self._read_if_there(hours.TABLE) or {}
        try:
            hours.allows(course, table, self.user.name, datetime.now(UTC))
        except shares.ShareError as error:
            what = f"{error.what[:1].upper()}{error.what[1:]}: {error.got}, {error.allowed}"
            raise CannotStartError(f"{what}. {error.fix[:1].upper()}{error.fix[1:]}.") from error

    # Starting.

    async def begin(self) -> str:
        """Make the pod or take up the one that is there, wait for it, and return its address."""
        course = await self._chosen()
        CourseSpawner._ended.pop((self.user.name, self.name), None)
        # Whatever happens to the hub from here on, the next one looks in the right namespace.
        self.orm_spawner.state = self.get_state()
        self.db.commit()
        await self.watch()
        template = "" if course.runs else course.claim
        pod = claiming(await self.get_pod_manifest(), template)
        await exponential_backoff(
            lambda: self.make(pod, self.k8s_api_request_timeout),
            f"pod {self.namespace}/{self.pod_name} was not made",
            timeout=self.k8s_api_request_retry_timeout,
        )
        url = self.address_of(await self._running())
        await self._listens(url)
        return url

    async def _listens(self, url: str) -> None:
        """Wait until the notebook takes connections: between its own tries the hub waits up to 5 s.

        One that never does is the hub's to report.
        """
        where = urlsplit(url)
        deadline = time.monotonic() + self.http_timeout
        while time.monotonic() < deadline:
            try:
                connected = asyncio.open_connection(where.hostname, where.port)
                _, writer = await asyncio.wait_for(connected, 2)
            except (OSError, TimeoutError):
                await asyncio.sleep(0.2)
            else:
                writer.close()
                return

    async def make(self, pod: Any, request_timeout: float) -> bool:
        """Make the pod or take up the one of this name; False to be asked again."""
        found = await self._found()
        if found is not None:
            if "deletionTimestamp" in found["metadata"]:
                return False
            if found["status"].get("phase") in {"Pending", "Running"}:
                self._take_up(found)
                return True
        try:
            return await self._create(pod, request_timeout)
        except ApiException as error:
            if error.status < AWAY:
                raise CannotStartError(_refusal(error)) from error
            self._where = "The queue does not answer. This is tried again."
            self.log.warning("pod %s is not taken yet: %s", self.pod_name, error.reason)
            return False

    async def _create(self, pod: Any, request_timeout: float) -> bool:
        await self._in_hours()
        await self._counted()
        if not await super().make(pod, request_timeout):
            return False
        try:
            # A share that was asked for in between is there by now.
            await self._counted()
        except CannotStartError:
            await self.stop(now=True)
            raise
        return True

    async def _found(self) -> dict[str, Any] | None:
        return await self._read_if_there(
            f"/api/v1/namespaces/{self.namespace}/pods/{self.pod_name}"
        )

    async def _read_if_there(self, path: str) -> dict[str, Any] | None:
        """Return an object; None where there is none."""
        try:
            found: dict[str, Any] = await self._read(path)
        except ApiException as error:
            if error.status == GONE:
                return None
            raise
        return found

    def _take_up(self, pod: dict[str, Any]) -> None:
        """Go on with a pod that another hub process made: its token is this server's from now on.

        `user.spawn` would know another token by itself, but then leaves the notebook's OAuth client
        without scopes, and nobody could sign in to it.
        """
        (environment,) = (
            one.get("env", []) for one in pod["spec"]["containers"] if one["name"] == "notebook"
        )
        (token,) = (one["value"] for one in environment if one["name"] == IDENTITY)
        self.log.info("pod %s is taken up where it is", self.pod_name)
        self.adopt(token)
        self._taken_up = token

    def start_polling(self) -> None:
        """Begin to poll: `user.spawn` does once the server runs, before it saves its state."""
        if self._taken_up:
            self.api_token, self._taken_up = self._taken_up, None
        super().start_polling()

    async def _running(self) -> dict[str, Any]:
        """Wait until the pod runs: in the queue without an end, after admission for a time."""
        reference = f"{self.namespace}/{self.pod_name}"
        admitted: float | None = None
        while True:
            pod = self.pod_reflector.pods.get(reference) or await self._found()
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                raise CannotStartError(
                    "Your place was given up: the class has ended, or a teacher did it."
                )
            if self.is_pod_running(pod):
                return pod
            if pod["status"].get("phase") in {"Failed", "Succeeded"}:
                raise CannotStartError(
                    f"The pod ended at once: {pod['status'].get('message', 'no reason')}"
                )
            if waits(pod):
                admitted = None
            else:
                admitted = admitted or time.monotonic()
                if time.monotonic() - admitted > START_WITHIN:
                    raise CannotStartError(
                        f"The pod was admitted, but did not start in {START_WITHIN} s."
                    )
            await self._look(pod)
            await asyncio.sleep(0.2 if admitted else 1)

    async def _look(self, pod: dict[str, Any]) -> None:
        """Keep the sentence that the spawn page shows."""
        if not waits(pod):
            node = pod["spec"].get("nodeName")
            self._where = f"It is your turn: starting on {node}." if node else "It is your turn."
            return
        try:
            place = await self.places().place(self.namespace, pod["metadata"]["uid"])
        except (ApiException, OSError, TimeoutError) as error:
            self.log.warning("the place of %s cannot be read: %s", self.pod_name, error)
            self._where = "You are in the queue. Your place cannot be read now."
            return
        if place:
            self._where = (
                f"You are in the queue of {self.namespace}: {place}. Your notebook starts "
                "automatically; you keep your place when you close this page."
            )
        else:
            self._where = self._where or f"Getting a place in the queue of {self.namespace}."

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what the spawn page shows: the place whenever it moves, then the pod's events."""
        shown, event = "", 0
        while True:
            done = self.starting is False
            if self._where and self._where != shown:
                shown = self._where
                yield {"progress": 10 if " queue" in shown else 40, "message": shown}
            for one in self.events[event:] if self.event_reflector else []:
                event += 1
                if one.get("reason") in {"Pulling", "Pulled", "Started", "Failed", "FailedMount"}:
                    yield {"progress": min(90, 50 + 10 * event), "message": one["message"]}
            if done:
                return
            await asyncio.sleep(0.5)

    # Being there.

    async def poll(self) -> int | None:
        """Return None while the server runs. A waiting pod does not, whatever KubeSpawner says.

        It says so of pending pods. A hub that has just started would then wait for the notebook of
        a student in the queue, and delete the pod with its place.
        """
        status: int | None = await super().poll()
        pod = self.pod_reflector.pods.get(f"{self.namespace}/{self.pod_name}")
        if pod is not None and not self.starting and memory.ran_out(pod):
            # JupyterHub stops only what still runs: the pod would keep its share.
            await self.stop(now=True)
            return memory.KILLED
        waiting = pod is not None and pod["status"].get("phase") == "Pending"
        return 0 if status is None and self.starting is None and waiting else status

    async def stop(self, now: bool = False) -> None:
        """Stop the pod; keep why: the service for classes has written it there, or kubelet."""
        try:
            pod = await self._found() or {"metadata": {}}
        except (ApiException, OSError, TimeoutError) as error:
            self.log.warning("why %s is stopped cannot be read: %s", self.pod_name, error)
        else:
            why = pod["metadata"].get("annotations", {}).get(idle.ENDED)
            if why := why or memory.why(pod, self.known().courses.get(self.namespace)):
                CourseSpawner._ended[self.user.name, self.name] = why
        await super().stop(now)

    def ended(self) -> str:
        """Return why the user's last notebook ended, for the page from which one is started."""
        return CourseSpawner._ended.get((self.user.name, self.name), "")


def claiming(pod: Any, template: str) -> Any:
    """Return a pod whose notebook claims by a template; without one as it is.

    KubeSpawner's `extra_container_config` would replace what the notebook has of CPU and memory.
    """
    if template:
        pod.spec.resource_claims = [{"name": GPU, "resourceClaimTemplateName": template}]
        (notebook,) = (one for one in pod.spec.containers if one.name == "notebook")
        notebook.resources.claims = [{"name": GPU}]
    return pod


def waits(pod: dict[str, Any]) -> bool:
    """Tell whether Kueue still holds a pod."""
    return bool(pod["spec"].get("schedulingGates"))


def _refusal(error: Any) -> str:
    """Return what the API server said, in one sentence."""
    try:
        return str(json.loads(error.body)["message"])
    except (KeyError, TypeError, ValueError):
        return str(error.reason)
