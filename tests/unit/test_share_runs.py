"""A cell or a script in a share: the notebook's image, files, environment and directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.hub import magic, notebook, shares
from bedplate.pods.hub.courses import Profile
from tests.unit.test_person import TENTHS, WHOLE, Cluster, asks

if TYPE_CHECKING:
    from collections.abc import Mapping

HOME = {"name": "homes", "mountPath": "/home/jovyan", "subPath": "{username}"}
CLAIM = {"name": "homes", "persistentVolumeClaim": {"claimName": "homes"}}
SHM = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4096Mi"}}
COURSE = {
    "profiles": [
        Profile("intro-jax", "JAX", "", "x/jax:1"),
        Profile(
            "intro-torch",
            "PyTorch",
            "",
            "x/torch:2",
            environment={"PIP_INDEX_URL": "https://pip.example"},
        ),
    ],
    "volumes": [CLAIM, SHM],
    "mounts": [HOME, {"name": "shm", "mountPath": "/dev/shm"}],
    "memory_mib": 8192,
    "shm_mib": 4096,
}


def made(body: Mapping[str, Any], offered: dict[str, Any] = TENTHS, **more: Any) -> Any:
    """Return the Job of what is asked for."""
    cluster = Cluster(offered, [])
    asks(cluster, dict(body), **{**COURSE, **more})
    (job,) = cluster.jobs.values()
    return job


def test_a_cell_runs_as_its_notebook_would() -> None:
    """Not in the image of the course's first profile, and not without the student's files."""
    job = made({"code": "!nvidia-smi", "profile": "intro-torch", "directory": "/home/jovyan/a b"})
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "x/torch:2"
    assert container["command"][:4] == [*notebook.IF_THERE, "/home/jovyan/a b"]
    assert container["command"][-2:] == ["-c", "!nvidia-smi"]
    assert {"name": "PIP_INDEX_URL", "value": "https://pip.example"} in container["env"]
    assert container["volumeMounts"][0] == HOME | {"subPath": "bob"}
    assert pod["volumes"] == [CLAIM, SHM], "/dev/shm is of the size that the course says"
    assert pod["securityContext"]["runAsUser"] == 1000
    assert job["metadata"]["annotations"][shares.ASKED] == "0.1", "the course's share"


def test_without_a_size_it_is_the_courses_share() -> None:
    job = made({"run": ["train.py"]}, WHOLE, limits={"nvidia.com/gpu": "2"})
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["command"] == ["python3", "train.py"]
    assert container["image"] == "x/jax:1"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"code": "1", "profile": "lab-jax"}, "no such profile of intro — got lab-jax / allowed"),
        ({"run": []}, "no script to run — got [] / allowed a file and arguments"),
        ({"run": "train.py"}, "no script to run"),
        ({"run": ["train.py", 3]}, "no command for a share"),
        ({"code": "a\0b"}, "no command for a share"),
        ({"code": {"a": 1}}, "no command for a share"),
        ({"code": "1", "directory": ["/"]}, "no command for a share"),
    ],
)
def test_what_cannot_run_makes_no_job(body: dict[str, Any], said: str) -> None:
    cluster = Cluster(TENTHS, [])
    with pytest.raises(shares.ShareError) as refused:
        asks(cluster, body, **COURSE)
    assert str(refused.value).startswith(said)
    assert cluster.jobs == {}


def test_a_script_runs_in_the_notebooks_directory(tmp_path: Path) -> None:
    """By the shell of the image, also from a directory whose name is an option or has blanks."""
    folder = tmp_path / "-n my course"
    folder.mkdir()
    (folder / "train.py").write_text("import sys, pathlib; print(pathlib.Path().resolve().name)")
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    def runs(directory: str) -> subprocess.CompletedProcess[str]:
        body = {"run": ["train.py"], "directory": directory}
        return subprocess.run(
            notebook.command(body), env=environment, capture_output=True, text=True, check=False
        )

    assert runs(str(folder)).stdout == "-n my course\n"
    gone = runs(str(tmp_path / "gone"))
    assert gone.returncode != 0
    assert str(tmp_path / "gone") in gone.stderr


@pytest.mark.parametrize(
    ("line", "cell", "asked"),
    [
        ("", "1 + 1", {"share": "", "time": "", "code": "1 + 1"}),
        ("0.1 10m", "1", {"share": "0.1", "time": "10m", "code": "1"}),
        ("run train.py --epochs 3", None, {"time": "", "run": ["train.py", "--epochs", "3"]}),
        ("run --for 2h 'my train.py'", None, {"time": "2h", "run": ["my train.py"]}),
        ("run --for 2h", None, None),
        ("run", None, None),
        ("1 2 3", "x", None),
    ],
)
def test_what_the_magic_asks_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    cell: str | None,
    asked: dict[str, Any] | None,
) -> None:
    """The share is released at its end, also where it ended by itself."""
    found: list[tuple[str, str, Any]] = []

    def ask(method: str, path: str = "", body: Any = None) -> dict[str, Any]:
        found.append((method, path, body))
        state = {"name": "share-1", "state": "ended", "line": "share-1: ended"}
        answers = {"POST": {"name": "share-1", "gets": "a GPU", "time": "1h"}}
        answers["GET"] = {"output": "done\n"} if path else {"shares": [state]}
        return answers.get(method, {})

    monkeypatch.setattr(magic, "ask", ask)
    monkeypatch.setenv(magic.PROFILE, "intro-jax")
    magic.share(line, cell)
    told = capsys.readouterr().out
    if asked is None:
        assert found == []
        assert told.strip() in {magic.USAGE, magic.CELL_USAGE}
        return
    here = {"directory": str(Path.cwd()), "profile": "intro-jax"}
    assert found[0] == ("POST", "", asked | here)
    assert found[-1] == ("DELETE", "/share-1", None)
    assert "done\nshare-1: ended" in told


def test_who_is_next_or_starts_is_asked_for_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first line of a run would be seen up to two seconds late."""
    states = [("waiting", 3)] * 6 + [("waiting", 1)] * 4 + [("starting", 0)] * 4 + [("ended", 0)]
    answers = [
        {"name": "a", "state": state, "line": state, "place": [place, 3] if place else None}
        for state, place in states
    ]
    pauses: list[float] = []
    monkeypatch.setattr(magic, "ask", lambda *_: {"shares": [answers[len(pauses)]]})
    monkeypatch.setattr("time.sleep", pauses.append)
    assert [state for state, _ in magic._states("a")] == [state for state, _ in states]
    assert pauses[:6] == [0.25, 0.5, 1, 2, 2, 2]
    assert max(pauses[6:10]) == magic.NEXT
    assert set(pauses[10:]) == {magic.SOON}


def test_what_a_share_prints_is_shown_before_its_job_says_that_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Job says it a second or two later."""
    states = ["waiting", "starting", "starting", "running", "ended"]
    looks = iter(states)
    printed = iter(["", "one\n", "one\n", "one\ntwo\n"])

    def ask(method: str, path: str = "", _body: Any = None) -> dict[str, Any]:
        if method != "GET":
            return {"name": "a", "gets": "a GPU", "time": "1h"}
        if path:
            return {"output": next(printed)}
        state = next(looks)
        return {"shares": [{"name": "a", "state": state, "line": f"a: {state}"}]}

    monkeypatch.setattr(magic, "ask", ask)
    monkeypatch.setattr("time.sleep", lambda _: None)
    magic.share("", "print('one')")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "a: waiting",
        "a: starting",
        "one",
        "a: running",
        "two",
        "a: ended",
    ]


def test_a_line_with_an_open_quote_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    magic.share("run 'train.py")
    assert capsys.readouterr().out == "No closing quotation\n"
