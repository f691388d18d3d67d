"""The hub's service `shares`: request, list and release a share of a GPU over HTTP.

Standard library, and KubeSpawner's form of users' names. Who asks is whom the hub says the token is
of; the token needs the scope of the service. A student has shares in the courses that the hub lets
them use, of the course's size and time, as many as the plan has proved with the notebooks, and sees
their own.

    GET    PREFIX/COURSE          the shares of who asks
    POST   PREFIX/COURSE          {"share": "0.1", "time": "1h"}; without a share, the course's.
                                  To run something as the notebook would: "code", a cell, or
                                  "run", ["train.py", "--epochs", "3"]; "directory" and "profile"
    GET    PREFIX/COURSE/NAME     {"output": "what it has printed"}
    DELETE PREFIX/COURSE/NAME
    GET    PREFIX/.push           for the registry of courses: whether a write may be made
"""

from __future__ import annotations

import base64
import http
import json
import logging
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.api import Access, Api, of_pod
from bedplate.pods.hub import hours, notebook, person, placed, push, shares
from bedplate.pods.hub.courses import Course, Settings, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAME: Final = "shares"
#: What a token needs, and what the hub's configuration gives to users and to their notebooks.
SCOPES: Final = (f"access:services!service={NAME}", "access:services")
LARGEST: Final = 64 * 1024
PATIENCE: Final = 10.0
PAUSE: Final = 1.0
#: Seconds for which all who wait in a course get one answer; who is next asks twice a second.
FRESH: Final = 0.4
#: Seconds for which who looks is known by the token: the hub answers one request at a time.
KNOWN: Final = 5.0
TOKEN: Final = re.compile(r"(?:token|bearer) (?P<token>\S+)", re.IGNORECASE)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class User:
    """Who asks, as the hub knows them."""

    name: str
    groups: frozenset[str]


class NotAllowedError(Exception):
    """Who asks may not; `status` is HTTP's."""

    def __init__(self, status: http.HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def user_of(hub: str, token: str) -> User:
    """Return whose a token is. `hub` is the address of the hub's API. Raises NotAllowedError."""
    asked = urllib.request.Request(  # noqa: S310 - the stack's own address
        f"{hub}/user", headers={"Authorization": f"token {token}"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:  # noqa: S310
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        message = "the hub does not know the token"
        raise NotAllowedError(http.HTTPStatus.FORBIDDEN, message) from error
    except (OSError, ValueError) as error:
        message = f"the hub does not answer: {error}"
        raise NotAllowedError(http.HTTPStatus.BAD_GATEWAY, message) from error
    if found.get("kind") != "user" or not set(SCOPES) & set(found.get("scopes") or ()):
        raise NotAllowedError(
            http.HTTPStatus.FORBIDDEN, f"the token is not of a user with the scope {SCOPES[0]}"
        )
    return User(str(found["name"]), frozenset(map(str, found.get("groups") or ())))


@dataclass(frozen=True)
class Service:
    """What is done for a user.

    Attributes:
        call: one request to the API server.
        read: the text at a path of it.
        who: a user by token, or NotAllowedError.
        course: a course of a user by name; None where it is not theirs.
        now: what the clock says.
        slug: a user's name as KubeSpawner writes `{username}`.
    """

    call: shares.Call
    read: shares.Read
    who: Callable[[str], User]
    course: Callable[[str, User], Course | None]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    slug: Callable[[str], str] = str
    #: One request of a person is counted after the other.
    turns: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    #: By course: who lists its shares now, and what was listed when.
    looks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    listed: dict[str, tuple[float, list[shares.Share]]] = field(default_factory=dict)
    #: By token: whose it is, and since when that is known.
    known: dict[str, tuple[float, User]] = field(default_factory=dict)
    #: Why a user may not make a write to a course's registry, by method and path.
    refusal: Callable[[User, str, str], str] = lambda *_: "no course has a registry"

    def pushes(self, header: str, method: str, uri: str) -> None:
        """Return where a write to a course's registry may be made. Raises NotAllowedError.

        `header` has a token of the hub as the password. Of statuses nginx takes these two.
        """
        try:
            token = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")[2]
        except ValueError:
            token = ""
        if not token:
            message = "log in with your name and a token of the hub's page Token"
            raise NotAllowedError(http.HTTPStatus.UNAUTHORIZED, message)
        try:
            refused = self.refusal(self._user(token, looks=True), method, uri)
        except NotAllowedError as error:
            refused = str(error)
            if uri == push.LOGIN:  # of another status `podman login` gives the number alone
                raise NotAllowedError(http.HTTPStatus.UNAUTHORIZED, refused) from error
        if refused:
            log.info("%s %s: %s", method, uri, refused)
            raise NotAllowedError(http.HTTPStatus.FORBIDDEN, refused)

    def answer(
        self, method: str, parts: list[str], header: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what is answered. Raises NotAllowedError, ShareError, or the API's error."""
        found = TOKEN.fullmatch(header.strip())
        if found is None:
            message = "send a token of the hub: Authorization: token TOKEN"
            raise NotAllowedError(http.HTTPStatus.UNAUTHORIZED, message)
        user = self._user(found["token"], looks=method == "GET")
        if len(parts) not in {"GET": (1, 2), "POST": (1,), "DELETE": (2,)}[method]:
            raise NotAllowedError(http.HTTPStatus.NOT_FOUND, "no such address")
        course = parts[0]
        theirs = self.course(course, user)
        if theirs is None:
            message = f"{course} is no course of {user.name}"
            raise NotAllowedError(http.HTTPStatus.FORBIDDEN, message)
        if method == "POST":
            with self.turns[user.name]:
                return self._request(theirs, user, body)
        mine = [one for one in self._shares(course) if one.student == user.name]
        if method == "DELETE":
            shares.release(self.call, course, _own(parts[1], mine))
            self._changed(course)
            return {}
        if len(parts) == 2:
            name = _own(parts[1], mine)
            return {"output": shares.output(self.call, self.read, course, name)}
        return {"shares": [{**asdict(one), "line": str(one)} for one in mine]}

    def _user(self, token: str, *, looks: bool) -> User:
        """Return whose a token is; who asks for a share or ends one, is looked up each time."""
        now = time.monotonic()
        when, user = self.known.get(token, (0.0, None))
        if user is None or not looks or now - when > KNOWN:
            user = self.who(token)
            for key, (before, _) in list(self.known.items()):
                if now - before > KNOWN:
                    self.known.pop(key, None)
            self.known[token] = now, user
        return user

    def _shares(self, course: str) -> list[shares.Share]:
        """Return the shares of a course: each who waits asks again every two seconds."""
        with self.looks[course]:
            when, found = self.listed.get(course, (0.0, []))
            if not when or time.monotonic() - when > FRESH:
                found = shares.shares(self.call, course)
                self.listed[course] = time.monotonic(), found
        return found

    def _changed(self, course: str) -> None:
        """List again for the next who asks: a share has been made or released."""
        with self.looks[course]:
            self.listed.pop(course, None)

    def _request(self, course: Course, user: User, body: Mapping[str, Any]) -> dict[str, Any]:
        text, time = str(body.get("share", "")), str(body.get("time") or "")
        offer, count = person.chosen(course, shares.offers(self.call, course.name), text)
        length = person.length(course, time, self.now())
        profile = notebook.profile(course, str(body.get("profile") or ""))
        asked = shares.Request(
            text=text or f"{offer.gpus * count:g}",
            length=length,
            image=profile.image,
            user=user.name,
            command=notebook.command(body),
            environment={**profile.environment, **notebook.STREAMS},
        )
        person.allows(course, self._held(course, user))
        self._in_hours(course, user)
        job = shares.job(asked, course.name, offer, count)
        job = notebook.like_it(job, course, self.slug(user.name))
        made = shares.submit(self.call, course.name, job, offer, count)
        try:
            # A notebook that the hub has made in between is there by now.
            person.allows(course, self._held(course, user, made.name))
        except shares.ShareError:
            shares.release(self.call, course.name, made.name)
            raise
        finally:
            self._changed(course.name)
        log.info("%s asked for %s in %s: %s", user.name, asked.text, course.name, made.name)
        return {**asdict(made), "time": time or person.span(length)}

    def _in_hours(self, course: Course, user: User) -> None:
        """Refuse a share to who has used up the GPU-hours of the week. Raises ShareError."""
        if course.gpu_hours:
            table: dict[str, Any] = {}
            try:
                table = self.call("GET", hours.TABLE, None)
            except Exception as error:
                if getattr(error, "status", None) != http.HTTPStatus.NOT_FOUND:
                    raise
            hours.allows(course, table, user.name, self.now())

    def _held(self, course: Course, user: User, but: str = "") -> list[str]:
        """Name what a person has of a course: the API server's list, not one that is kept."""
        pods = f"/api/v1/namespaces/{course.name}/pods?labelSelector={person.SERVERS}"
        jobs = f"{shares.jobs(course.name)}?labelSelector={shares.LABEL}"
        listed = [self.call("GET", path, None)["items"] for path in (pods, jobs)]
        # A notebook without a GPU holds no share.
        return person.held([] if course.runs else listed[0], listed[1], user.name, but)


def _own(name: str, mine: list[shares.Share]) -> str:
    """Return the name of a share of who asks. Raises ShareError."""
    if name not in {one.name for one in mine}:
        allowed = ", ".join(one.name for one in mine) or "none"
        raise shares.ShareError("no such share of yours", name, allowed, "list them")
    return name


def server(service: Service, address: tuple[str, int], prefix: str) -> ThreadingHTTPServer:
    """Return the server; `prefix` is the service's part of the hub's address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            status, answer = self._answer()
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if self._parts() == [push.ADDRESS]:
                self.send_header("WWW-Authenticate", 'Basic realm="a token of the hub"')
                self.send_header(push.REASON, json.dumps(answer.get("error", "")))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _do  # noqa: N815 - names of the base class

        def _answer(self) -> tuple[int, dict[str, Any]]:
            try:
                header = self.headers.get("Authorization", "")
                body = self._body()
                if self._parts() == [push.ADDRESS]:
                    service.pushes(header, *(self.headers.get(one, "") for one in push.OF_WRITE))
                    return http.HTTPStatus.OK, {}
                return http.HTTPStatus.OK, service.answer(self.command, self._parts(), header, body)
            except NotAllowedError as error:
                return error.status, {"error": str(error)}
            except shares.ShareError as error:
                return http.HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error)}
            except Exception as error:
                log.exception("%s %s", self.command, self.path)
                return http.HTTPStatus.BAD_GATEWAY, {"error": f"the cluster refuses: {error}"}

        def _parts(self) -> list[str]:
            path = urllib.parse.urlsplit(self.path).path
            if not path.startswith(prefix):
                return []
            return [urllib.parse.unquote(one) for one in path[len(prefix) :].split("/") if one]

        def _body(self) -> dict[str, Any]:
            """Read the body whole, also where it is not used: the connection is kept."""
            said = self.headers.get("Content-Length") or "0"
            length = int(said) if re.fullmatch("[0-9]{1,9}", said) else -1
            # In chunks the next request would begin in the midst of this one's body.
            if length < 0 or "Transfer-Encoding" in self.headers:
                self.close_connection = True
                raise NotAllowedError(http.HTTPStatus.BAD_REQUEST, "no length of the body")
            if length > LARGEST:
                self.close_connection = True
                message = f"too long — got {length} bytes / allowed {LARGEST} — shorten the cell"
                raise NotAllowedError(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
            try:
                found = json.loads(self.rfile.read(length) or b"{}")
            except (ValueError, RecursionError) as error:
                raise NotAllowedError(http.HTTPStatus.BAD_REQUEST, "no JSON") from error
            if not isinstance(found, dict):
                raise NotAllowedError(http.HTTPStatus.BAD_REQUEST, "no JSON object")
            return found

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            log.debug(format, *args)

    return ThreadingHTTPServer(address, Handler)


def course_of(known: Settings) -> Callable[[str, User], Course | None]:
    """Return what finds a course of a user by name; one without a profile runs nothing."""

    def course(name: str, user: User) -> Course | None:
        theirs = {one.name: one for one in known.of(user.name, user.groups) if one.profiles}
        return theirs.get(name)

    return course


def access() -> Access:
    """Return how to ask this pod's API server, or that of a kubeconfig with its files."""
    if (inside := of_pod()) is not None:
        return inside
    import yaml  # KubeSpawner's client brings it

    found = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    files = (cluster["certificate-authority"], user["client-certificate"], user["client-key"])
    ca, certificate, key = map(Path, files)
    return Access(cluster["server"], ca, certificate=certificate, key=key)


def _slug(name: str) -> str:
    """Return a user's name as KubeSpawner writes `{username}`.

    The import takes seconds. Before the service answers it would be too late: a hub whose service
    does not answer within ten seconds ends.
    """
    from kubespawner.slugs import safe_slug

    return str(safe_slug(name, max_length=48))


def main() -> None:
    """Serve, as a service that the hub starts: where and for which hub says the environment."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    hub = os.environ["JUPYTERHUB_API_URL"]
    cluster, known = Api(access(), PATIENCE), settings()
    service = Service(
        cluster.call,
        cluster.text,
        lambda token: user_of(hub, token),
        course_of(known),
        slug=_slug,
        refusal=lambda user, *write: push.refusal(known, user.name, user.groups, *write),
    )
    where = urllib.parse.urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    for course in known.courses:
        placed.watch(cluster, course)
    # On a machine it listens where it is asked for; in a pod its name is the Service's.
    here = where.hostname if where.hostname in {"127.0.0.1", "localhost"} else ""
    prefix = os.environ["JUPYTERHUB_SERVICE_PREFIX"]
    serving = server(service, (here, where.port or 80), prefix)
    threading.Thread(
        target=_until_alone, args=(int(os.environ["BEDPLATE_HUB_PID"]), serving), daemon=True
    ).start()
    serving.serve_forever()


def _until_alone(parent: int, serving: ThreadingHTTPServer) -> None:
    """Stop when the hub is gone, however it ended: the next one starts a service of its own."""
    while os.getppid() == parent:
        time.sleep(PAUSE)
    serving.shutdown()


if __name__ == "__main__":
    main()
