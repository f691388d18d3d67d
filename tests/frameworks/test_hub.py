"""The hub's part of a class: sign-up, queue, sizes, a hub that dies, hours, idle servers, %share.

Kubelets and notebooks are doubles. Runs in shares are in test_runs.py, limits per person in
test_person.py, other ways to sign in in test_hub_sign_in.py, real browsers in classroom.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import requests

from bedplate.accounting.store import NAMESPACE
from bedplate.components.frameworks import hub_images, hub_objects
from bedplate.components.schedulers.accounting_objects import objects
from bedplate.components.schedulers.topology import HOST
from bedplate.lock.claims import RESOURCE
from bedplate.pods.hub import hours, magic, memory, node_use, placed, push
from bedplate.pods.hub.node_use import USE
from tests.frameworks.claims import (
    claimed,
    counted,
    refuses_others,
    takes_a_share,
    unguarded,
)
from tests.frameworks.hub import (
    ACCOUNT,
    PASSWORD,
    SHARE,
    Browser,
    KubeletLogs,
    RunningHub,
    course,
    hub_of,
    lesson,
)
from tests.frameworks.programs import Programs
from tests.schedulers.api import ApiError, eventually
from tests.schedulers.kueue import API
from tests.schedulers.processes import Process, free_port
from tests.schedulers.workloads import pod_spec
from tests.site.cluster import conditions
from tests.unit import test_gpu_simulation as simulated
from tests.unit.test_gpu_simulation import LIBRARIES, install_driver, kernel, modprobe, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.schedulers.kubelets import Span

host = simulated.host
CODE = "LEARN-MORE"
TEAMS = {
    "intro": {"gpus": {"pool_class": (2, 0)}, "members": ["ada"]},
    "intro-large": {"gpus": {"pool_class": (1, 0)}},
    "lab": {"gpus": {"pool_class": (1, 0)}, "members": ["bea"]},
    "crowd": {"gpus": {"pool_class": (5, 0)}, "members": ["ada"]},
}
#: Students and MiB of each: of the first two one GPU of 15 GiB has room for all, or of one whole.
BY_CLAIM = {"seminar": (2, 6144), "studio": (1, 3072), "thesis": (1, 0)}
CROWD = [f"s{number:02}" for number in range(1, 51)]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Run programs of pods until the test ends."""
    found = Programs(tmp_path / "of-pods")
    yield found
    found.end()


@pytest.fixture(scope="module")
def hub() -> Iterator[RunningHub]:
    """Start a control plane, Kueue, and the hub of three courses, with two, one and five shares.

    One has a larger size for one at a time.
    """
    courses = {
        "intro": course("intro", **sized()),
        "intro-large": course("intro-large", of="intro"),
        "lab": course("lab", members=["bea"], gpu_hours=2),
        "crowd": course("crowd", members=CROWD),
    }
    with hub_of(TEAMS, courses, gpus=9, by_claim=BY_CLAIM) as found:
        found.secret("code-intro", CODE)
        found.secret("account-ada", "a-password-of-ada")
        found.secret("account-bea", "a-password-of-bea")
        for one in objects("", {}, hours={"lab": ("lab", 2)}):
            if one["kind"] != "Deployment":
                found.plane.api.apply(one)
        found.start()
        yield found


def sized() -> dict[str, Any]:
    """Return what notebooks of a course have of their node, as the stack writes it."""
    volumes, mounts = [memory.shm_volume(768)], [dict(memory.SHM)]
    return {
        "memory_mib": 1536,
        "cpu_milli": 250,
        "shm_mib": 768,
        "volumes": volumes,
        "mounts": mounts,
    }


def alive(hub: RunningHub, course: str, **labels: str) -> list[dict[str, Any]]:
    """Return a course's pods with these labels, those that end left out."""
    return [
        one
        for one in hub.plane.api.get("pods", "v1", course)
        if "deletionTimestamp" not in one["metadata"]
        and labels.items() <= one["metadata"]["labels"].items()
    ]


def pods(hub: RunningHub, course: str = "intro") -> dict[str, str]:
    """Return the UIDs of a course's pods by name, those that end left out."""
    found = [one["metadata"] for one in alive(hub, course)]
    return {one["name"]: one["uid"] for one in found}


def states(hub: RunningHub) -> dict[str, str]:
    """Return what each user's server does."""
    return {
        name: "ready" if one["ready"] else one["pending"] for name, one in hub.servers().items()
    }


def test_a_course_s_code_lets_in_and_nothing_else_does(hub: RunningHub) -> None:
    bob = Browser(hub.url)
    assert "This code is of no course" in bob.sign_up("bob", "LEARN-LESS").text
    assert "This name is taken" in bob.sign_up("ada", CODE).text
    assert "Invalid username or password" in bob.login("bob").text
    bob.sign_up("bob", CODE.lower())
    assert bob.login("bob").url.endswith("/hub/spawn")
    offered = ["intro-jax", "intro-large-jax"]
    assert bob.profiles() == offered, "a course of others is offered, or no size"
    page = bob.session.get(f"{hub.url}/spawn", timeout=60).text
    assert "0 of 2 in use: starts at once" in page.lower()
    bea = Browser(hub.url)
    assert "Invalid username or password" in bea.login("bea", PASSWORD).text
    bea.login("bea", "a-password-of-bea")
    assert bea.profiles() == ["lab-jax"]
    hub.refuses("bob", "lab-jax", "This is not offered to bob now")
    assert hub.plane.api.get("pods", "v1", "lab") == []


def test_who_waits_keeps_the_place_when_the_hub_is_killed(hub: RunningHub) -> None:
    """Two run, two wait; the hub is killed and starts again: the same pods in the same order."""
    for name in ("carol", "dave", "eve"):
        Browser(hub.url).sign_up(name, CODE)
    for count, name in enumerate(("bob", "carol", "dave", "eve"), 1):
        hub.api("POST", f"users/{name}/server", {"profile": "intro-jax"})
        queued = eventually(
            lambda count=count: (
                (found := hub.plane.api.get("workloads", API, "intro")) and len(found) == count
            )
        )
        assert queued
        _next_second(hub, "intro")
    wanted = {"bob": "ready", "carol": "ready", "dave": "spawn", "eve": "spawn"}
    eventually(lambda: states(hub) == wanted)
    hub.shows("dave", "place 1 of 2")
    hub.shows("eve", "place 2 of 2")
    before, started = pods(hub), dict(hub.standin.routes)
    hub.stop(signal.SIGKILL)
    hub.start()
    eventually(lambda: states(hub) == wanted)
    assert pods(hub) == before
    hub.shows("eve", "place 2 of 2")
    assert "/user/bob" in started
    assert "/user/bob" in hub.standin.routes
    hub.api("DELETE", "users/bob/server")
    eventually(lambda: states(hub) == {"carol": "ready", "dave": "ready", "eve": "spawn"})
    assert pods(hub) == {name: uid for name, uid in before.items() if name != "jupyter-bob"}
    hub.shows("eve", "place 1 of 1")
    # The notebook that was queued over the restart has a token that the hub takes.
    (dave,) = (
        one
        for one in hub.plane.api.get("pods", "v1", "intro")
        if one["metadata"]["name"] == "jupyter-dave"
    )
    environment = {one["name"]: one.get("value") for one in dave["spec"]["containers"][0]["env"]}
    assert hub.api("GET", "user", token=environment["JUPYTERHUB_API_TOKEN"])["name"] == "dave"


def _next_second(hub: RunningHub, course: str) -> None:
    """Wait until who comes next is later for Kueue too, which orders by whole seconds."""
    newest = max(
        one["metadata"]["creationTimestamp"] for one in hub.plane.api.get("workloads", API, course)
    )
    eventually(lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > newest)


def test_a_student_leaves_the_queue_and_takes_one_share_only(hub: RunningHub) -> None:
    hub.api("DELETE", "users/eve/server")
    eventually(lambda: "jupyter-eve" not in pods(hub) and "eve" not in states(hub))
    hub.api("POST", "users/carol/servers/second", {"profile": "intro-jax"})
    eventually(lambda: "second" not in hub.api("GET", "users/carol")["servers"])
    assert set(pods(hub)) == {"jupyter-carol", "jupyter-dave"}


def test_a_student_has_a_server_of_each_size(hub: RunningHub) -> None:
    """Beside the notebook that is promised, while the one larger share is free; others wait."""

    def servers(name: str) -> dict[str, bool]:
        listed = hub.api("GET", f"users/{name}")["servers"]
        return {server: one["ready"] for server, one in listed.items()}

    hub.api("POST", "users/carol/servers/second", {"profile": "intro-large-jax"})
    eventually(lambda: servers("carol") == {"": True, "second": True})
    (large,) = pods(hub, "intro-large")
    assert set(pods(hub)) == {"jupyter-carol", "jupyter-dave"}
    hub.api("POST", "users/carol/servers/third", {"profile": "intro-large-jax"})
    eventually(lambda: set(servers("carol")) == {"", "second"})
    hub.api("POST", "users/dave/servers/second", {"profile": "intro-large-jax"})
    eventually(lambda: len(pods(hub, "intro-large")) == 2)
    assert servers("dave") == {"": True, "second": False}, "two have the one larger share"
    hub.api("DELETE", "users/carol/servers/second")
    eventually(lambda: servers("dave") == {"": True, "second": True})
    assert large not in pods(hub, "intro-large")
    hub.api("DELETE", "users/dave/servers/second")
    eventually(lambda: pods(hub, "intro-large") == {})


def test_a_named_server_has_the_share_of_another_course(hub: RunningHub) -> None:
    """A user of several courses has servers of several sizes beside each other, one of each."""
    hub.api("POST", "users/ada/server", {"profile": "lab-jax"})
    hub.api("POST", "users/ada/servers/large", {"profile": "crowd-jax"})

    def servers() -> dict[str, bool]:
        return {name: one["ready"] for name, one in hub.api("GET", "users/ada")["servers"].items()}

    eventually(lambda: servers() == {"": True, "large": True})
    assert set(pods(hub, "lab")) == {"jupyter-ada"}
    (large,) = pods(hub, "crowd")
    assert large.startswith("jupyter-ada--large")
    hub.api("DELETE", "users/ada/servers/large")
    eventually(lambda: pods(hub, "crowd") == {})
    assert set(pods(hub, "lab")) == {"jupyter-ada"}, "the other one goes on"
    hub.api("DELETE", "users/ada/server")
    eventually(lambda: pods(hub, "lab") == {} and "ada" not in hub.servers())


def test_a_notebook_that_took_too_much_memory_ends_alone_and_says_why(hub: RunningHub) -> None:
    """What kubelet reports of it is written here: these kubelets are doubles and end nothing."""
    api = hub.plane.api
    path = api.path("pods", "v1", "intro", "jupyter-dave")
    (status,) = api.call("GET", path)["status"]["containerStatuses"]
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    killed = {**status, "lastState": ended, "restartCount": 1}
    api.patch(path, {"status": {"containerStatuses": [killed]}}, "status")
    eventually(lambda: states(hub).get("dave") is None and set(pods(hub)) == {"jupyter-carol"})
    assert states(hub)["carol"] == "ready", "the neighbour goes on"
    dave = Browser(hub.url)
    dave.login("dave")
    page = dave.session.get(f"{hub.url}/spawn", timeout=60).text
    assert "Your notebook used more than its 1.5 GiB of memory and was ended." in page
    hub.api("POST", "users/dave/server", {"profile": "intro-jax"})
    eventually(lambda: states(hub).get("dave") == "ready")


def test_a_student_s_pod_has_no_rights_and_is_made_by_the_hub_alone(hub: RunningHub) -> None:
    api = hub.plane.api
    pod = next(
        one for one in api.get("pods", "v1", "intro") if one["metadata"]["name"] == "jupyter-carol"
    )
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountToken" not in str(spec.get("volumes"))
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["runAsNonRoot"] is True
    resources = container["resources"]
    size = str(1536 * 2**20)
    assert resources["limits"] == {SHARE: "1", "memory": size}
    assert resources["requests"] == {SHARE: "1", "memory": size, "cpu": "250m"}
    # What it keeps in /dev/shm is memory of this pod, and cannot be more than half of it.
    (shm,) = (one for one in spec["volumes"] if one["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "768Mi"}
    mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert mounted["/dev/shm"] == "shm"
    # A teacher may make pods there, but none that the hub would take for a student's.
    forged = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "jupyter-eve",
            "namespace": "intro",
            "labels": {"component": "singleuser-server"},
        },
        "spec": pod_spec(0),
    }
    ada = api.acting_as("ada")
    with pytest.raises(ApiError, match="pod of a student is not made by the hub"):
        ada.create(forged)
    # The hub itself may neither read secrets nor make pods elsewhere.
    hubs = api.acting_as(ACCOUNT)
    for path in (api.path("secrets", "v1", "intro"), api.path("pods", "v1", "kube-system")):
        with pytest.raises(ApiError, match="forbidden"):
            hubs.call("GET", path)
    token = {one["name"]: one.get("value") for one in container["env"]}["JUPYTERHUB_API_TOKEN"]
    assert hub.api("GET", "user", token=token)["name"] == "carol"
    for path in ("users/dave", "users/dave/server", "users"):
        method = "DELETE" if path.endswith("server") else "GET"
        with pytest.raises(Exception, match=r"40[34]"):
            hub.api(method, path, token=token)
    assert "jupyter-dave" in pods(hub)


def test_idle_servers_stop_and_busy_ones_go_on(hub: RunningHub) -> None:
    """Where no reader says more, kernels decide: a cell that runs for an hour is no idleness."""
    old = "2020-01-01T00:00:00Z"
    hub.standin.kernels = [{"id": "k", "execution_state": "busy", "last_activity": old}]
    hub.settings["courses"]["intro"]["idle_timeout"] = 2
    hub.stop(signal.SIGTERM)
    looked = "GET /hub/api/users?state"
    before = hub.log.read_text().count(looked)  # by hubs that knew of no such time
    hub.start()
    eventually(lambda: hub.log.read_text().count(looked) > before + 3)
    eventually(lambda: states(hub) == {"carol": "ready", "dave": "ready"})
    hub.standin.kernels = [{"id": "k", "execution_state": "idle", "last_activity": old}]
    eventually(lambda: states(hub) == {} and pods(hub) == {})
    del hub.settings["courses"]["intro"]["idle_timeout"]
    hub.standin.kernels = []


def test_a_quiet_training_lives_and_a_sleeper_is_warned_then_stopped(
    hub: RunningHub, host: Callable[[str, int], Path], programs: Programs
) -> None:
    """Kernels say the same of both: a cell that runs. The GPU, and what else runs, decide."""
    limit, api = 9, hub.plane.api
    root = host("t4-16gb", 1)
    install_driver(root)
    assert modprobe.main(["nvidia"]) == 0
    (nvml,) = (root / LIBRARIES).glob("libnvidia-ml.so.*")
    port = free_port()
    where = ["--address", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, node_use.__file__, *where, "--proc", str(programs.folder)]
    reader = Process([*command, "--nvml", str(nvml)], hub.folder / "reader.log", dict(os.environ))
    for node in (one["metadata"]["name"] for one in api.get("nodes", "v1")):  # as a DaemonSet does
        meta = {"name": node, "namespace": USE, "labels": {"app.kubernetes.io/name": USE}}
        spec = {**pod_spec(0), "nodeName": node}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    hub.standin.kernels = [
        {"id": "k", "execution_state": "busy", "last_activity": "2020-01-01T00:00:00Z"}
    ]
    hub.settings["courses"]["intro"]["idle_timeout"] = limit
    hub.settings["service"]["use_port"] = port
    hub.stop(signal.SIGTERM)
    hub.standin.notices.clear()
    reader.start()
    try:
        hub.start()
        for name in ("carol", "dave"):
            hub.api("POST", f"users/{name}/server", {"profile": "intro-jax"})
        of = eventually(lambda: pods(hub), until=lambda found: len(found) == 2)
        programs.start(of["jupyter-dave"], "sleep 10000")  # the notebook's server
        training = programs.start(of["jupyter-dave"], "sleep 10000 > /dev/null")
        # Each second it would take two to four percent of such a core when the machine is busy.
        programs.start(of["jupyter-carol"], "while :; do date; sleep 30; done > /dev/null")
        paths.write(paths.PLANTED, f"process 0 {training} 512 40\n")
        kernel.show()
        eventually(lambda: states(hub), until=lambda now: now.get("dave") == "ready")
        warned = eventually(lambda: hub.standin.notices.get("/user/carol/"))
        assert warned[0].startswith("intro stops this server at "), warned
        assert "its GPU is not used and no program runs" in warned[0]
        eventually(lambda: states(hub) == {"dave": "ready"})
        carol = Browser(hub.url)
        carol.login("carol")
        page = carol.session.get(f"{hub.url}/spawn", timeout=60).text
        assert "did nothing for 9 seconds" in page

        def watched() -> float:
            return float(requests.get(f"http://127.0.0.1:{port}/", timeout=30).json()["watched"])

        eventually(watched, until=lambda seconds: seconds > 4 * limit)
        assert states(hub) == {"dave": "ready"}
        assert "/user/dave/" not in hub.standin.notices
        programs.stop(training)
        paths.write(paths.PLANTED, "")
        kernel.show()
        eventually(lambda: states(hub) == {} and pods(hub) == {})
        assert hub.standin.notices["/user/dave/"]
    finally:
        reader.stop()
        del hub.settings["courses"]["intro"]["idle_timeout"], hub.settings["service"]["use_port"]
        hub.standin.kernels = []


def test_the_end_of_a_class_is_announced_and_stops_all(hub: RunningHub) -> None:
    """Ten minutes before, servers say so; at the end nothing runs or waits until the next class."""
    minute = timedelta(minutes=1)
    of_class = [hub.settings["courses"][name] for name in ("intro", "intro-large")]
    for one in of_class:
        one["hours"] = lesson(-60 * minute, 5 * minute)
    hub.stop(signal.SIGTERM)
    hub.start()
    for name in ("bob", "carol", "dave"):
        hub.api("POST", f"users/{name}/server", {"profile": "intro-jax"})
    eventually(lambda: sorted(states(hub).values()) == ["ready", "ready", "spawn"])

    def notices() -> list[str]:
        listed = hub.plane.api.get("pods", "v1", "intro")
        return [one["metadata"]["annotations"].get("bedplate.io/notice", "") for one in listed]

    eventually(lambda: all("intro ends at" in one for one in notices()))
    made = hub.api("POST", "users/eve/tokens", {"scopes": ["access:services!service=shares"]})
    address = f"{hub.settings['service']['shares_url']}/services/shares/intro"
    headers = {"Authorization": f"token {made['token']}"}

    def asks() -> bool:
        with suppress(requests.ConnectionError):  # the service may be slower than the hub
            return requests.post(address, json={"share": "1"}, headers=headers, timeout=60).ok
        return False

    eventually(asks)
    assert len(hub.plane.api.get("jobs", "batch/v1", "intro")) == 1
    eventually(lambda: [one for one in hub.standin.notices.values() if "ends at" in one[-1]])
    for one in of_class:
        one["hours"] = lesson(-60 * minute, -5 * minute)
    hub.stop(signal.SIGTERM)
    hub.start()
    eventually(lambda: pods(hub) == {} and states(hub) == {})
    eventually(lambda: hub.plane.api.get("jobs", "batch/v1", "intro") == [])
    eventually(
        lambda: hub.plane.api.get("clusterqueues", API, None, "intro")["spec"]["stopPolicy"],
        until=lambda policy: policy == "HoldAndDrain",
    )
    hub.refuses("bob", "intro-jax", "No course of bob takes place now. intro takes")
    bob = Browser(hub.url)
    bob.login("bob")
    page = bob.session.get(f"{hub.url}/spawn", timeout=60).text
    assert "No course takes place now" in page
    (hours,) = hub.settings["courses"]["intro"]["hours"][-1:]
    assert re.search(rf"{hours} \(time of UTC\)\. The next lesson starts on \w+, \d", page)
    assert 'type="submit"' not in page, "a button that starts nothing"
    assert "intro-large takes place" not in page, "a sentence for each size"
    for one in of_class:
        del one["hours"]
    hub.stop(signal.SIGTERM)
    hub.start()
    hub.api("POST", "users/bob/server", {"profile": "intro-jax"})
    eventually(lambda: states(hub) == {"bob": "ready"})


def test_environments_are_prepared_before_a_lesson(hub: RunningHub) -> None:
    """One pod for each student, without a GPU; once the lesson is on, they are gone."""
    minute = timedelta(minutes=1)
    lab, fetch = hub.settings["courses"]["lab"], ["gitpuller", "https://git.example/lab", "", "lab"]
    home = {"name": "homes", "mountPath": "/home/jovyan", "subPath": "{username}"}
    lab |= {"volumes": [{"name": "homes", "emptyDir": {}}], "mounts": [home], "material": fetch}
    lab["hours"] = lesson(5 * minute, 60 * minute)
    hub.stop(signal.SIGTERM)
    hub.start()
    eventually(lambda: set(pods(hub, "lab")) == {"prepare-ada", "prepare-bea"})
    eventually(
        lambda: all(
            one["status"]["phase"] == "Running" for one in hub.plane.api.get("pods", "v1", "lab")
        )
    )
    (container,) = hub.plane.api.get("pods", "v1", "lab")[1]["spec"]["containers"]
    assert container["command"] == fetch
    assert container["volumeMounts"] == [{**home, "subPath": "bea"}]
    assert SHARE not in str(container["resources"])
    lab["hours"] = lesson(-5 * minute, 60 * minute)
    hub.stop(signal.SIGKILL)
    hub.start()
    eventually(lambda: pods(hub, "lab") == {})
    hub.api("POST", "users/bea/server", {"profile": "lab-jax"})
    (pod,) = eventually(lambda: alive(hub, "lab", **hub_objects.STUDENTS))
    hook = pod["spec"]["containers"][0]["lifecycle"]["postStart"]["exec"]["command"]
    assert hook[-len(fetch) :] == fetch
    eventually(lambda: states(hub).get("bea") == "ready")
    hub.api("DELETE", "users/bea/server")
    eventually(lambda: "bea" not in hub.servers() and pods(hub, "lab") == {})


def test_a_class_by_claims_is_queued_as_any_other(hub: RunningHub) -> None:
    """Shares of two sizes lie on one GPU; who comes next has a place, and the first that is free.

    The end of the class takes the claims with it.
    """
    api, names = hub.plane.api, ("carla", "dan", "erik")
    hub.api("POST", "users", {"usernames": list(names)})
    hub.api("POST", "groups/course-seminar")
    hub.api("POST", "groups/course-seminar/users", {"users": list(names)})
    hub.api("POST", "users/ada/server", {"profile": "studio-jax"})
    for count, name in enumerate(names, 1):
        hub.api("POST", f"users/{name}/server", {"profile": "seminar-jax"})
        eventually(lambda count=count: len(api.get("workloads", API, "seminar")) == count)
        _next_second(hub, "seminar")
    wanted = {"ada": "ready", "carla": "ready", "dan": "ready", "erik": "spawn"}
    eventually(lambda: wanted.items() <= states(hub).items())
    share = ("gpu-0", "6Gi")
    assert claimed(api, "seminar") == {"jupyter-carla": share, "jupyter-dan": share}
    assert claimed(api, "studio") == {"jupyter-ada": ("gpu-0", "3Gi")}
    hub.shows("erik", "place 1 of 1")
    assert (
        counted(api, hub.kueue.lock, "seminar")
        == [("pool-claims.claims.seminar", RESOURCE, 1, 0.375)] * 2
    )
    hub.api("DELETE", "users/carla/server")
    eventually(lambda: states(hub).get("erik") == "ready")
    assert claimed(api, "seminar") == {"jupyter-dan": share, "jupyter-erik": share}
    hub.settings["courses"]["seminar"]["hours"] = lesson(-timedelta(hours=1), -timedelta(minutes=5))
    hub.stop(signal.SIGTERM)
    hub.start()
    eventually(lambda: pods(hub, "seminar") == {} and claimed(api, "seminar") == {})
    assert claimed(api, "studio") == {"jupyter-ada": ("gpu-0", "3Gi")}, "another course goes on"
    # With her notebook gone, its share is to be had on request: by a claim, through the queue.
    hub.api("DELETE", "users/ada/server")
    eventually(lambda: pods(hub, "studio") == {})
    token = hub.api("POST", "users/ada/tokens", {"scopes": ["access:services!service=shares"]})
    address = f"{hub.settings['service']['shares_url']}/services/shares/studio"
    headers = {"Authorization": f"token {token['token']}"}
    asked = {"share": "3Gi", "time": "1h"}
    told = requests.post(address, json=asked, headers=headers, timeout=60).json()
    assert told["gets"] == f"1 {RESOURCE}, 0.1875 of a GPU, 3Gi"
    eventually(lambda: list(claimed(api, "studio").values()) == [("gpu-0", "3Gi")])
    requests.delete(f"{address}/{told['name']}", headers=headers, timeout=60).raise_for_status()
    eventually(lambda: claimed(api, "studio") == {})
    hub.api("POST", "users/ada/server", {"profile": "thesis-jax"})
    eventually(lambda: claimed(api, "thesis") == {"jupyter-ada": ("gpu-0", "15Gi")})
    eventually(lambda: states(hub).get("ada") == "ready")
    hub.api("DELETE", "users/ada/server")
    eventually(lambda: claimed(api, "thesis") == {})


def test_who_is_not_the_hub_claims_nothing(hub: RunningHub) -> None:
    """Neither a teacher nor the hub itself in another way; without the policies a teacher does."""
    refuses_others(hub.plane.api, "ada", ACCOUNT)
    with unguarded(hub.plane.api, hub.kueue.lock):
        takes_a_share(hub.plane.api, "ada")


def test_images_are_kept_on_the_nodes_of_a_pool(hub: RunningHub) -> None:
    api, images = hub.plane.api, ["x/y:1", "x/z:1"]
    made = hub_images.daemon("pool_class", images, ["pool-class-0"])
    api.apply(made)

    def kept() -> list[list[str]]:
        listed = api.get("pods", "v1", hub_objects.NAMESPACE)
        return [
            [container["image"] for container in one["spec"]["containers"]]
            for one in listed
            if one["status"]["phase"] == "Running" and one["spec"]["nodeName"] == "pool-class-0"
        ]

    eventually(lambda: kept() == [images])
    api.delete(api.path_of(made))
    eventually(lambda: kept() == [])


def test_who_has_used_the_hours_of_the_week_gets_neither_notebook_nor_share(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the recorder's table, with the right that the stack gives the hub's account."""
    Browser(hub.url).login("bea", "a-password-of-bea")
    use = hub.api("POST", "users/bea/tokens", {"scopes": ["access:services!service=shares"]})
    address = f"{hub.settings['service']['shares_url']}/services/shares/lab"
    monkeypatch.setenv(magic.ADDRESS, address)
    monkeypatch.setenv(magic.TOKEN, use["token"])

    def does(line: str) -> str:
        magic.share(line)
        return str(capsys.readouterr().out)

    eventually(lambda: "No shares." in does("list"))
    api, until = hub.plane.api, hours.week(datetime.now(UTC))[1]
    used = {"until": until.isoformat(), "used": {"lab": {"bea": 2.5}}}
    table = {"name": hours.NAME, "namespace": NAMESPACE}
    data = {hours.CONTENT: json.dumps(used)}
    api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": table, "data": data})
    spent = "of lab are left in this week"
    assert f"no GPU-hours {spent} — got 2.50 used since Monday / allowed 2" in does("request 1")
    again = f"Start it again from {hours.when(until)} on."
    hub.refuses("bea", "lab-jax", f"{spent}: 2.50 used since Monday, 2 for each person. {again}")
    assert (pods(hub, "lab"), does("list")) == ({}, "No shares.\n")
    api.delete(api.path("configmaps", "v1", NAMESPACE, hours.NAME))


def test_the_registry_of_courses_takes_tokens_of_the_hub(hub: RunningHub) -> None:
    address = f"{hub.settings['service']['shares_url']}/services/shares/{push.ADDRESS}"
    write = dict(zip(push.OF_WRITE, ("POST", "/v2/lab/a/blobs/uploads/"), strict=True))
    reasons = {"ada": "course lab has no registry", "bea": "bea is no teacher of course lab"}
    for user, reason in reasons.items():
        Browser(hub.url).login(user, f"a-password-of-{user}")
        token = hub.api("POST", f"users/{user}/tokens", {"note": "podman"})["token"]

        def asks(user: str = user, token: str = token) -> tuple[int, str]:
            try:
                done = requests.get(address, auth=(user, token), headers=write, timeout=60)
            except requests.ConnectionError:  # the service may be slower than the hub
                return 0, ""
            return done.status_code, done.headers[push.REASON]

        status, said = eventually(asks, until=lambda found: found[0] > 0)
        assert (status, reason in said) == (403, True)


def test_a_notebook_asks_for_a_share_of_its_own(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hub's own service and tokens: with the scope, in one's own course, and no further."""
    Browser(hub.url).login("bea", "a-password-of-bea")
    address = f"{hub.settings['service']['shares_url']}/services/shares"
    use = "access:services!service=shares"

    def does(line: str, course: str = "lab", scope: str = use, cell: str | None = None) -> str:
        made = hub.api("POST", "users/bea/tokens", {"scopes": [scope]})
        monkeypatch.setenv(magic.ADDRESS, f"{address}/{course}")
        monkeypatch.setenv(magic.TOKEN, made["token"])
        magic.share(line, cell)
        return str(capsys.readouterr().out)

    eventually(lambda: "No shares." in does("list"))
    refused = does("request 8 7d")
    assert "larger than a share of lab — got 8 / allowed 1, which the course gives" in refused
    assert "type %share request 1\n" in refused
    refused = does("request 1 7d")
    assert re.search(r"got 7d / allowed up to \d+m: the lesson ends at \d\d:\d\d — write", refused)
    told = does("request 1 10m")
    assert "running, until" in told
    name = told.partition(":")[0]
    assert name in does("list")
    # It is the one that the plan counted: there is no second, and no notebook next to it.
    assert f"one share more than lab gives — got {name} already" in does("request 1")
    hub.refuses("bea", "lab-jax", f"You have {name} of lab already, and each student may have 1")
    assert pods(hub, "lab").keys() == {
        one["metadata"]["name"]
        for one in hub.plane.api.get("pods", "v1", "lab")
        if "batch.kubernetes.io/job-name" in one["metadata"]["labels"]
    }
    assert "intro is no course of bea" in does("list", "intro")
    refused = does("list", scope="read:users!user")
    assert "the token is not of a user with the scope access:services!service=shares" in refused
    (made,) = hub.plane.api.get("jobs", "batch/v1", "lab")
    annotations = made["metadata"]["annotations"]
    assert annotations["hub.jupyter.org/username"] == "bea"
    assert annotations["bedplate.io/user"] == ACCOUNT
    assert does(f"release {name}") == f"{name}: released\n"
    # A cell in a share of its own: what it prints comes back, and an interrupt ends the share.
    asked, ask = Counter[str](), magic.ask

    def interrupted(method: str, path: str = "", body: Any = None) -> dict[str, Any]:
        found = ask(method, path, body)
        asked["running"] += any(one["state"] == "running" for one in found.get("shares", ()))
        if asked["running"] == 2:
            raise KeyboardInterrupt
        return found

    with KubeletLogs(hub.plane, "pool-class-0"), monkeypatch.context() as patched:
        patched.setattr(magic, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            does("1 10m", cell="!nvidia-smi -L")
    told = capsys.readouterr().out
    name = told.partition(":")[0]
    # Its first output may come before its Job says that it runs.
    log = rf"log of /containerLogs/lab/{name}-\w+/share\n"
    assert re.search(rf"{log}({name}: starting.*\n)?{name}: running, until", told), told
    assert does("list") == "No shares.\n"
    # A notebook's own token has the scope: that which the hub puts into the pod.
    hub.api("POST", "users/bea/server", {"profile": "lab-jax"})
    (pod,) = eventually(lambda: alive(hub, "lab", **hub_objects.STUDENTS))
    environment = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    monkeypatch.setenv(magic.TOKEN, environment["JUPYTERHUB_API_TOKEN"])
    magic.share("list")
    assert capsys.readouterr().out == "No shares.\n"
    magic.share("request 1 10m")
    refused = capsys.readouterr().out
    assert "one share more than lab gives — got your notebook already / allowed 1 for" in refused
    assert hub.plane.api.get("jobs", "batch/v1", "lab") == []
    eventually(lambda: states(hub).get("bea") == "ready")
    hub.api("DELETE", "users/bea/server")
    eventually(lambda: "bea" not in hub.servers())
    # A hub that is killed takes its service with it, and the next one has one again.
    hub.stop(signal.SIGKILL)
    hub.start()
    eventually(lambda: "No shares." in does("list"))


@pytest.mark.parametrize("through", [10, pytest.param(50, marks=pytest.mark.prove)])
def test_a_class_of_fifty_goes_through_five_shares_in_order(hub: RunningHub, through: int) -> None:
    """Hub and Kueue die while 5 run and 45 wait: nobody is lost, doubled or early.

    The last test of the file: where not all are let through, the others are left waiting.
    """

    def crowd() -> dict[str, str]:
        return {name: state for name, state in states(hub).items() if name in CROWD}

    hub.api("POST", "users", {"usernames": CROWD})
    for name in CROWD:
        hub.api("POST", f"users/{name}/server", {"profile": "crowd-jax"})
    wanted = {"ready": 5, "spawn": 45}
    eventually(lambda: Counter(crowd().values()) == wanted)
    eventually(lambda: set(pods(hub, "crowd")) == {f"jupyter-{one}" for one in CROWD})
    before = pods(hub, "crowd")
    ready = [one for one in hub.plane.api.get("pods", "v1", "crowd") if "nodeName" in one["spec"]]
    changed = [[of["manager"] for of in one["metadata"]["managedFields"]] for one in ready]
    assert any(placed.MANAGER in managers for managers in changed), "all waited for Kueue's turn"
    assert {one["spec"]["nodeSelector"][HOST] for one in ready} == {"pool-class-0"}
    hub.stop(signal.SIGKILL)
    hub.kueue.process.stop(signal.SIGKILL)
    hub.kueue.start(hub.kueue.lock)
    hub.start()
    eventually(lambda: Counter(crowd().values()) == wanted)
    assert pods(hub, "crowd") == before
    admitted: dict[str, tuple[str, str]] = {}
    while len(admitted) < through:
        left = len(CROWD) - len(admitted)
        eventually(lambda left=left: list(crowd().values()).count("ready") == min(5, left))
        for work in hub.plane.api.get("workloads", API, "crowd"):
            if since := conditions(work).get("QuotaReserved"):
                (owner,) = work["metadata"]["ownerReferences"]
                admitted.setdefault(owner["name"], (work["metadata"]["creationTimestamp"], since))
        for name in [name for name, state in crowd().items() if state == "ready"]:
            hub.api("DELETE", f"users/{name}/server")
    if through == len(CROWD):
        eventually(lambda: pods(hub, "crowd") == {})
        assert set(admitted) == set(before)
    # Kueue orders by whole seconds: who came in an earlier one, was admitted no later.
    came = sorted(admitted.values())
    assert [since for _, since in came] == sorted(since for _, since in came)
    spans = hub.kubelets.spans.values()
    ran = [one for one in spans if one.namespace == "crowd" and one.name in before]
    names = [one.name for one in ran]
    assert len(set(names)) == len(names), "a student had two pods"
    assert set(admitted) <= set(names)
    assert all(sum(holds(one, other.start) for one in ran) <= 5 for other in ran)


def holds(one: Span, moment: float) -> bool:
    """Tell whether a pod has its share at a moment."""
    return one.start <= moment and (one.end is None or moment < one.end)
