"""Names of GPUs as people write them, `bedplate gpus`, `--version` and the shell's completion."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from importlib.metadata import version
from pathlib import Path

import pytest

from bedplate.catalogue import load_catalogue
from bedplate.cli import completion
from bedplate.cli import main as cli
from bedplate.common.nearest import models_like, write_one

ROOT = Path(__file__).parents[2]
DEMO = "inventories/demo"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
H100 = ["h100-80gb-hbm2e", "h100-nvl-94gb", "h100-pcie-80gb", "h100-sxm5-80gb", "h100-sxm5-94gb"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("h100", H100),
        ("H100 SXM", ["h100-sxm5-80gb", "h100-sxm5-94gb"]),
        ("h200", ["h200-nvl-141gb", "h200-sxm-141gb"]),
        ("t4", ["t4-16gb"]),
        ("T4-16", ["t4-16gb"]),
        ("4090", ["rtx-4090", "rtx-4090-d", "rtx-4090-laptop"]),
        ("RTX4090", ["rtx-4090", "rtx-4090-d", "rtx-4090-laptop"]),
        ("b200-180gb", ["b200"]),
        ("a100-80gb", ["a100-pcie-80gb", "a100-sxm4-80gb"]),
        ("NVIDIA L40S 48GB", ["l40s"]),
        ("rtx-6000-ada-48gb", ["rtx-6000-ada", "rtx-6000-ada-laptop"]),
        ("a100-sxm-40gb", ["a100-sxm4-40gb"]),
        ("A100 80 GB", ["a100-pcie-80gb", "a100-sxm4-80gb"]),
        ("h100-80gb", ["h100-80gb-hbm2e", "h100-pcie-80gb", "h100-sxm5-80gb"]),
        ("NVIDIA H100 80GB HBM3", ["h100-80gb-hbm2e", "h100-pcie-80gb", "h100-sxm5-80gb"]),
        ("a800-40gb", ["a800-40gb-active", "a800-pcie-40gb", "a800-sxm4-40gb"]),
        ("4090 24GB", ["rtx-4090", "rtx-4090-d", "rtx-4090-laptop"]),
        ("a10g", ["a10g"]),
        ("80gb", []),
        ("sxm5-h300", []),
        ("k80", []),
        ("mi300x", []),
        ("rtx", []),
        ("tesla", []),
        ("", []),
    ],
)
def test_a_word_means_no_other_hardware(word: str, found: list[str]) -> None:
    known = [*load_catalogue().gpu_models, "rtx-6000-ada-laptop"]
    assert models_like(word, known) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("NVIDIA H100 80GB HBM3", ["h100-sxm5-80gb"]),
        ("h100-80gb-hbm3", ["h100-sxm5-80gb"]),
        ("NVIDIA H100 PCIe", ["h100-pcie-80gb"]),
        ("NVIDIA-A100-SXM4-80GB", ["a100-sxm4-80gb"]),
        ("Tesla V100-SXM2-16GB", ["v100-sxm2-16gb"]),
        ("NVIDIA GeForce RTX 4090", ["rtx-4090"]),
        ("NVIDIA H100", H100),
    ],
)
def test_the_name_that_nvidia_smi_prints(word: str, found: list[str]) -> None:
    assert load_catalogue().gpus_like(word) == found


def test_every_model_is_found_by_its_own_name_and_no_other_number() -> None:
    known = load_catalogue().gpu_models
    numbered = {name: re.findall(r"\d+", name) for name in known if re.search(r"\d", name)}
    assert len(numbered) > len(known) * 0.9
    for model, (first, *_) in numbered.items():
        close = models_like(model.upper().replace("-", " "), known)
        assert model in close
        assert all(first in numbered[other] for other in close), (model, close)


def test_a_misspelt_variant_is_written_right() -> None:
    assert write_one("h100-pci-80gb", H100) == "write h100-pcie-80gb"
    assert write_one("h100", H100) == "write one of them"
    assert write_one("h100-80gb-hbm3", H100) == "write one of them"


@pytest.mark.parametrize(
    ("words", "models"),
    [
        (["h100"], H100),
        (["10de:2330"], ["h100-sxm5-80gb"]),
        (["spark"], ["gb10"]),
        (["HOPPER"], None),
        ([], None),
    ],
)
def test_gpus(
    words: list[str], models: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["gpus", *words]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["MODEL", "NAME", "MEMORY", "ARCHITECTURE", "CAPABILITY", "PCI", "HOSTS"]
    named = [row.split()[0] for row in rows]
    if models is None:
        every = load_catalogue().gpu_models
        hopper = [name for name in every if every[name].value.architecture == "hopper"]
        models = sorted(hopper if words else every)
    assert named == models
    for row in rows:
        fact = load_catalogue().gpu_models[row.split()[0]].value
        told, elsewhere, _ = row.partition("  aarch64: not installed by this version")
        assert bool(elsewhere) == (fact.host_cpu == "aarch64")
        its = f"{fact.architecture:<12}  {fact.compute_capability:<10}  {' '.join(fact.pci)}"
        assert told.rstrip().endswith(its) or len(fact.architecture) > 12


def test_no_such_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gpus", "k80"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    count = len(load_catalogue().gpu_models)
    assert said.err == (
        f"no such GPU — got k80 / allowed a word of the {count} models' names, or a PCI "
        "identifier — list them all with `bedplate gpus`: what is not there is not supported\n"
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    digest = load_catalogue().digest.removeprefix("sha256:")[:12]
    said = re.fullmatch(
        rf"bedplate {version('bedplate')}, catalogue {digest}, newest fact read (\S+)\n",
        capsys.readouterr().out,
    )
    assert said is not None
    facts = Path(cli.__file__).parents[1] / "catalogue/facts"
    days = {
        day
        for path in facts.glob("*.yml")
        for day in re.findall(r"read: (\d{4}-\d\d-\d\d)", path.read_text())
    }
    assert said[1] == max(days)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_names_the_program(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "bedplate" in capsys.readouterr().out


#: What a site's lock and the catalogue complete.
WORDS = [
    (f"bedplate explain {DEMO} pool_", ["pool_class", "pool_train"]),
    (f"bedplate explain {DEMO} cl", ["cluster"]),
    (f"bedplate explain {DEMO} pool_class nvidia_d", ["nvidia_driver"]),
    (f"bedplate explain {DEMO} cluster kue", ["kueue"]),
    ("bedplate gpus h10", H100),
]


def answered(*command: str) -> list[str]:
    """Return the words that a shell prints which finds our program."""
    found = os.environ | {"PATH": PATH}
    done = subprocess.run(command, cwd=ROOT, env=found, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bedplate ex", ["explain"]),
        ("bedplate plan --ch", ["--check"]),
        ("bedplate init x --gpu l40", ["l40", "l40s"]),
        ("bedplate init x --os ubuntu-22", ["ubuntu-22.04"]),
        ("bedplate mirror st", ["status", "stop"]),
        *WORDS,
    ],
)
def test_bash_completes(line: str, words: list[str]) -> None:
    """A real bash reads the script and asks the real program."""
    script = f"""
        eval "$(bedplate completion bash)"
        COMP_LINE='{line}' COMP_POINT={len(line)} COMP_TYPE=9
        COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _python_argcomplete bedplate
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert answered("bash", "--norc", "-c", script) == words


def needs(shell: str) -> None:
    """Skip a test without its shell; `make test` installs them all and skips none."""
    if not shutil.which(shell):
        pytest.skip(f"no {shell}: `make check` needs no root; `make test` installs it")


@pytest.mark.parametrize(("line", "words"), WORDS)
def test_fish_completes(line: str, words: list[str]) -> None:
    needs("fish")
    script = f"bedplate completion fish | source; complete -C '{line}'"
    assert answered("fish", "--no-config", "-c", script) == words


def test_zsh_completes() -> None:
    """A real zsh on a terminal: the line is finished by the key."""
    needs("zsh")
    ours, its = pty.openpty()
    start = 'autoload -Uz compinit; compinit -u -D; eval "$(bedplate completion zsh)"\n'
    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=ROOT,
        env=os.environ | {"PATH": PATH},
    ) as shell:
        os.close(its)
        os.write(ours, start.encode() + f"bedplate explain {DEMO} pool_cl\t".encode())
        seen = b""
        end = time.monotonic() + 120
        while b"pool_class" not in seen and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536)
        shell.kill()
    os.close(ours)
    assert b"pool_class" in seen


def test_nothing_is_completed_where_there_is_no_plan(tmp_path: Path) -> None:
    assert completion._pools(parsed_args=Namespace(site=tmp_path)) == []
    assert completion._components(parsed_args=Namespace(site=tmp_path, subject="pool_a")) == []


@pytest.mark.parametrize("subject", ["cluster", "pool_class", "pool_train"])
def test_what_is_completed_can_be_explained(
    subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Namespace(site=ROOT / DEMO, subject=subject)
    assert subject in completion._pools(parsed_args=asked)
    words = completion._components(parsed_args=asked)
    assert "gpu" in words or "kubernetes" in words
    for word in words:
        assert cli.main(["explain", str(ROOT / DEMO), subject, word]) == 0
        assert capsys.readouterr().out


def test_a_gpu_of_another_maker_is_planned_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gpus", "mi300x"]) == 3
    assert capsys.readouterr().err == (
        "AMD Instinct MI300X is planned and not installed by this version — got mi300x — to plan "
        "it, write bedplate_accelerator: {vendor: amd, model: mi300x, count: NUMBER}\n"
    )
