"""`bedplate measure`: from what a program took to a share, with a stand-in of nvidia-smi."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from bedplate.cli import main as cli
from bedplate.planning.measure import proposal
from bedplate.planning.measure.proposal import Card, Run

EXAMPLE = Path(__file__).parents[2] / "inventories/example"
T4 = Card("Tesla T4", usable=15073, whole=16384, reserve=400)
#: Answers as nvidia-smi does: one GPU, and the memory of the programs that the file `apps` names.
#: It notes each answer about programs in the file `read`.
NVIDIA_SMI = """\
#!/bin/sh
cd "${0%/*}"
used=3
case $1 in
*memory.total*)
  while read -r pid mib; do used=$((used + mib)); done <apps
  echo "0, GPU-1, NAME, 15360, $used, MIG" ;;
--query-compute-apps*)
  while read -r pid mib; do echo "$pid, $mib"; done <apps
  printf . >>read ;;
*) exit 2 ;;
esac
"""
#: Takes memory as JAX does: no more than its variable says, and it fails where it needs more.
PROGRAM = """
import os, pathlib, sys, time
needs, apps = int(sys.argv[1]), pathlib.Path(sys.argv[2])
may = float(os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"]) * 15360
if needs > may:
    sys.exit("RESOURCE_EXHAUSTED: Out of memory")
before = len(seen.read_text()) if (seen := apps.with_name("read")).exists() else 0
apps.write_text(f"{PID} {needs}\\n")
until = time.monotonic() + 30
while time.monotonic() < until and len(seen.read_text() if seen.exists() else "") < before + 3:
    time.sleep(0.02)
apps.write_text("")
"""
FAILS = (
    "the program fails at 1 of the GPU — {program} — got exit status 1, no data.csv / "
    "allowed exit status 0 — run it by hand on this GPU and correct what it says"
)
KILLED = FAILS.replace("exit status 1, no data.csv", "ended by signal 9, it printed nothing")
USES_NONE = (
    "no GPU memory was seen — {program} — got 0 MiB / allowed a program that uses the GPU — "
    "see that its framework has a build for CUDA, and that it runs longer than a second"
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with nvidia-smi on PATH and a program."""
    (tmp_path / "apps").write_text("")
    simulated(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM.replace("{PID}", "{os.getpid()}"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def simulated(folder: Path, name: str = "Tesla T4", mig: str = "[N/A]") -> None:
    """Write the stand-in of nvidia-smi."""
    path = folder / "nvidia-smi"
    path.write_text(NVIDIA_SMI.replace("NAME", name).replace("MIG", mig))
    path.chmod(0o755)


def measured(machine: Path, needs: int, *options: str) -> int:
    """Measure the program of a machine."""
    program = [sys.executable, str(machine / "train.py"), str(needs), str(machine / "apps")]
    return cli.main(["measure", *options, "--", *program])


def test_the_smallest_size_that_is_enough_is_proposed() -> None:
    runs = [Run(1, 1300, 9), Run(0.5, 1300, 9), Run(0.1, 1300, 10), Run(0.05, 0, 1, "no memory")]
    best = proposal.chosen(runs, T4)
    assert best is not None
    assert (best.size, proposal.students(best.size)) == (0.1, 10)
    assert proposal.settings(best) == [
        "in the course:  share: 0.1",
        "in its pool:    bedplate_sharing: {mode: time-slicing, replicas: 10}",
    ]


@pytest.mark.parametrize(("peak", "enough"), [(1370, True), (1371, False)])
def test_a_tenth_more_than_was_seen_must_have_room(peak: int, enough: bool) -> None:
    assert T4.share(0.1) == 1507
    assert (proposal.verdict(Run(0.1, peak, 1), T4) == "") is enough


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (0.6, 1), (0.5, 2), (0.3, 3), (1 / 3, 3), (0.1, 10), (0.05, 20)]
)
def test_students_of_a_gpu(size: float, count: int) -> None:
    assert proposal.students(size) == count


def test_what_a_framework_takes_itself_is_no_part_of_its_share() -> None:
    assert T4.part(1) == 0.895
    assert T4.part(0.1) == 0.067
    assert T4.part(0.02) is None


def test_who_needs_more_than_half_gets_a_whole_gpu() -> None:
    assert proposal.settings(Run(1, 9000, 5)) == ["in the course:  share: {gpus: 1}"]


@pytest.mark.parametrize(("size", "room"), [(0.1, "995Mi"), (1, "1 GPU")])
def test_the_plan_takes_what_is_proposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: float, room: str
) -> None:
    """And counts as much memory for it: that of the share less what JAX takes for itself."""
    assert Card("Tesla T4", 15073, 16384, 512).share(0.1) - 512 == 995
    words = [line.partition(":")[2].strip() for line in proposal.settings(Run(size, 900, 9))]
    ignore = shutil.ignore_patterns(".bedplate*")
    site = shutil.copytree(EXAMPLE, tmp_path / "site", ignore=ignore)
    hosts = (site / "hosts.yml").read_text()
    hosts = re.sub(r"# pool_class: .*", "pool_class: {hosts: {class1.example: {}}}", hosts)
    (site / "hosts.yml").write_text(hosts)
    pool = "\n".join(["bedplate_gpu: {model: t4-16gb, count: 4}", *words[1:]])
    (site / "group_vars/pool_class.yml").write_text(f"{pool}\n")
    course = f"{{name: intro, students: 4, pool: pool_class, frameworks: [jax], {words[0]}}}"
    settings = f"bedplate_preset: classroom\nbedplate_courses: [{course}]\n"
    (site / "group_vars/all/courses.yml").write_text(settings)
    assert cli.main(["plan", "--allow-planned", "--today", "2026-11-28", str(site)]) == 0
    line = re.search(r"course +(intro: .*)", capsys.readouterr().out)
    assert line is not None
    assert room in line[1], line[1]


def test_a_program_is_run_at_sizes_until_one_is_too_small(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(machine, 900, "--framework", "jax", "--sizes", "0.05,1,0.1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "GPU 0: Tesla T4, 15073 MiB for programs"
    assert [line.split()[0] for line in lines[1:5]] == ["SIZE", "1", "0.1", "0.05"]
    assert lines[2].split()[1:5] == ["15073", "MiB", "900", "MiB"]
    assert lines[2].endswith("enough")
    assert lines[4].endswith("too small: exit status 1, RESOURCE_EXHAUSTED: Out of memory")
    assert "Proposed: 0.1 of a GPU, 10 students on each" in lines
    assert "  in the course:  share: 0.1" in lines
    assert any(line.startswith("Measured: the memory of the program") for line in lines)
    assert any("10 students compute on one GPU at the same time" in line for line in lines)


def test_each_size_has_the_limits_of_its_share(machine: Path) -> None:
    """Of frameworks, and of MPS, which takes MiB and percent of threads."""
    before = sorted(os.environ)
    (machine / "train.py").write_text(
        "import json, os, pathlib, sys\n"
        f"known = {{k: v for k, v in os.environ.items() if k not in {before}}}\n"
        f"pathlib.Path({str(machine)!r}, known['CUDA_MPS_ACTIVE_THREAD_PERCENTAGE']).write_text("
        "json.dumps(known))\n" + PROGRAM.replace("{PID}", "{os.getpid()}")
    )
    assert measured(machine, 900, "--framework", "jax-0.12", "--sizes", "1,0.125") == 0
    for percent, part, mib in (("100", "0.888", 15073), ("12.5", "0.083", 1884)):
        assert json.loads((machine / percent).read_text()) == {
            "BEDPLATE_PART": part,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent,
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={mib}M",
            "CUDA_VISIBLE_DEVICES": "GPU-1",
            "FLAGS_fraction_of_gpu_memory_to_use": part,
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": part,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }


def test_what_nothing_limits_is_judged_by_what_it_took(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As PyTorch does without MPS: it takes the same at each size."""
    text = (machine / "train.py").read_text()
    (machine / "train.py").write_text(text.replace("if needs > may", "if False"))
    assert measured(machine, 2000, "--sizes", "1,0.2,0.1,0.05") == 0
    out = capsys.readouterr().out
    assert "too small: 2200 MiB with 10 % added" in out
    assert "Proposed: 0.2 of a GPU, 5 students on each" in out
    assert "\n  0.05 " not in out


def test_in_a_container_the_growth_of_the_memory_in_use_is_measured(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There the driver names processes by numbers that are none here: 1 is of another session."""
    text = (machine / "train.py").read_text()
    (machine / "train.py").write_text(text.replace("{os.getpid()}", "1"))
    assert measured(machine, 900, "--sizes", "1,0.1") == 0
    out = capsys.readouterr().out
    assert out.count(" 900 MiB") == 2
    assert "Measured: the growth of the memory in use on the GPU, of all programs on it" in out


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit('no data.csv')", FAILS),
        ("pass", USES_NONE),
        ("import os; os.kill(os.getpid(), 9)", KILLED),
    ],
)
def test_a_program_that_does_not_run_on_the_gpu_is_refused(
    machine: Path, capsys: pytest.CaptureFixture[str], program: str, said: str
) -> None:
    (machine / "train.py").write_text(program)
    assert cli.main(["measure", "--", sys.executable, str(machine / "train.py")]) == 3
    words = f"{sys.executable} {machine / 'train.py'}"
    assert capsys.readouterr().err.splitlines()[-1] == said.format(program=words)


@pytest.mark.parametrize(
    ("size", "needs", "got", "allowed", "fix"),
    [
        ("0.1", 2000, 2200, 1507, "write a larger size"),
        ("1", 14000, 15400, 15073, "measure on a GPU with more memory"),
    ],
)
def test_the_largest_size_must_be_enough(
    machine: Path,
    capsys: pytest.CaptureFixture[str],
    size: str,
    needs: int,
    got: int,
    allowed: int,
    fix: str,
) -> None:
    text = (machine / "train.py").read_text()
    (machine / "train.py").write_text(text.replace("if needs > may", "if False"))
    assert measured(machine, needs, "--sizes", size) == 3
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"the largest size is too small — --sizes — got {got} MiB with 10 % added / "
        f"allowed {allowed} MiB — {fix}, or let the program take less"
    )


def test_a_run_without_an_end_is_ended_with_what_it_started(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "train.py").write_text(
        textwrap.dedent(f"""
            import os, pathlib, subprocess, sys, time
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            pathlib.Path({str(machine / "child")!r}).write_text(str(child.pid))
            time.sleep(600)
        """)
    )
    command = ["measure", "--seconds", "1", "--", sys.executable, str(machine / "train.py")]
    assert cli.main(command) == 3
    assert "got no end after 1 s" in capsys.readouterr().err
    child = int((machine / "child").read_text())
    until = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < until:
        if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}").exists()


def test_an_interrupt_ends_the_program(machine: Path) -> None:
    program = f"import os, pathlib, time; pathlib.Path({str(machine / 'pid')!r})"
    (machine / "train.py").write_text(f"{program}.write_text(str(os.getpid())); time.sleep(600)")
    command = [sys.executable, "-m", "bedplate.cli", "measure", "--", sys.executable]
    process = subprocess.Popen([*command, str(machine / "train.py")], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (machine / "pid").exists() or not (machine / "pid").read_text():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    assert not Path(f"/proc/{(machine / 'pid').read_text()}").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpu", "4"], "no such GPU — --gpu — got 4 / allowed 0 — name one that nvidia-smi -L"),
        (["--framework", "torch"], "unknown framework — --framework — got torch / allowed jax, "),
        (["--sizes", "0.02"], "no share of this size has room for a program — --sizes — got 0.02"),
        (["--sizes", "2"], "argument --sizes: 2 is no part of a GPU: write sizes as 1,0.5"),
        (["--sizes", "half"], "argument --sizes: half is no part of a GPU"),
        (["--sizes", "nan"], "argument --sizes: nan is no part of a GPU"),
        (["--seconds", "0"], "argument --seconds: 0 is no time: write 1 to 86400"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(
    machine: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    try:
        status: object = measured(machine, 900, *options)
    except SystemExit as ended:
        status = ended.code
    assert status == 3
    assert said in capsys.readouterr().err
    assert not (machine / "read").exists()


def test_a_gpu_that_mig_divides_is_refused(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(machine, "NVIDIA A100-SXM4-40GB", "Enabled")
    assert measured(machine, 900) == 3
    assert "the GPU is divided by MIG — GPU 0 — got NVIDIA A100-SXM4-40GB" in (
        capsys.readouterr().err
    )


def test_a_machine_without_a_gpu_is_refused(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert measured(machine, 900) == 3
    assert capsys.readouterr().err == (
        "nvidia-smi does not answer — nvidia-smi — got No devices were found / allowed its list of "
        "GPUs — run it on a machine with an NVIDIA GPU whose driver works\n"
    )


def test_a_program_that_is_not_there_is_refused(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["measure", "--", str(machine / "none")]) == 3
    assert "the program cannot be started — none — got No such file or directory" in (
        capsys.readouterr().err
    )
