"""Files for a course's own image, from its requirements and the notebook of a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.cli import main as cli
from bedplate.common.errors import BedplateError
from bedplate.planning.containerfiles.course import Added, added
from tests.unit.containerfiles.test_containerfiles import build_of, site

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["site"]
BUILD = build_of("pytorch", "2.14.0", "cu126")
HASHED = f"tabulate==0.9.0 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}"
FROZEN = f"""\ufeff# pip freeze
jupyterhub==5.5.0
torch==2.14.0+cu126   # with CUDA

pandas>=2 ; python_version >= "3.10"
pywin32==311; sys_platform == "win32"
tabulate==0.9.0 \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
"""


def asked(folder: Path, text: str) -> Path:
    """Write a file of requirements."""
    path = folder / "requirements.txt"
    path.write_text(text, newline="")
    return path


def refused(folder: Path, text: str) -> list[tuple[str, int | None, str | None]]:
    """Return what is wrong, with its line and what was found."""
    with pytest.raises(BedplateError) as error:
        added(BUILD, asked(folder, text))
    return [(one.what, one.line, one.got) for one in error.value.problems]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_a_notebook_has_is_left_out(tmp_path: Path, end: str) -> None:
    found = added(BUILD, asked(tmp_path, FROZEN.replace("\n", end)))
    assert [" ".join(line.split()) for line in found.lines] == [
        'pandas>=2 ; python_version >= "3.10"',
        HASHED,
    ]
    assert found.there == (
        "jupyterhub==5.5.0",
        "torch==2.14.0+cu126",
        'pywin32==311; sys_platform == "win32"',
    )
    assert added(BUILD, asked(tmp_path, "Torch\ntorchvision")) == Added(
        ("torchvision",), ("Torch",)
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("torch==2.11.0", "version is not the decided one"),
        ("torch==2.14.0+cu130", "version is not the decided one"),
        ("torch[opt]<2.14", "version is not the decided one"),
        ("JupyterHub==4.1.0", "version is not the decided one"),
        ("-e git+https://example.org/a#egg=a", "line is an option of pip"),
        ("--extra-index-url https://example.org/simple", "line is an option of pip"),
        ("-r more.txt", "line is an option of pip"),
        ("numpy @ file:///home/conda/feedstock_root/numpy", "package is not from an index"),
        ("mine @ git+https://example.org/mine", "package is not from an index"),
        ("./wheels/mine.whl", "line names no package"),
        ("pandas=2.2.3=py312", "line names no package"),
    ],
)
def test_a_line_is_refused_at_its_place(tmp_path: Path, line: str, what: str) -> None:
    (found,) = refused(tmp_path, f"pandas\n\n{line}\n")
    assert found[:2] == (what, 3)


def test_all_lines_are_refused_at_once_with_what_is_decided(tmp_path: Path) -> None:
    with pytest.raises(BedplateError) as error:
        added(BUILD, path := asked(tmp_path, "torch==2.11.0\n-r more.txt\n"))
    first, second = str(error.value).splitlines()
    assert first == (
        f"{path}:1:1: version is not the decided one — --requirements — got torch==2.11.0 / "
        "allowed torch==2.14.0, which the notebook has — leave the line out; or name this version "
        "in the course's frameworks, and plan again"
    )
    assert second.startswith(f"{path}:2:1: line is an option of pip — --requirements — got -r more")


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    nothing = "requirements add nothing"
    assert refused(tmp_path, "# none\n") == [(nothing, None, "no package")]
    assert refused(tmp_path, "torch==2.14.0\n") == [(nothing, None, "torch==2.14.0")]
    path = tmp_path / "windows.txt"
    path.write_text("pandas\n", encoding="utf-16")
    with pytest.raises(BedplateError, match="got bytes that are not UTF-8 / allowed UTF-8"):
        added(BUILD, path)
    with pytest.raises(BedplateError, match="requirements cannot be read"):
        added(BUILD, tmp_path / "none.txt")


def test_the_command_writes_a_folder_on_the_notebook_of_a_build(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, file = tmp_path / "images", asked(tmp_path, "torch\npandas\n")
    command = ["frameworks", str(site), "--output", str(output), "--requirements"]
    assert cli.main([*command, f"mycourse={file}"]) == 3
    builds = "pytorch-2.14.0-cu126, pytorch-2.14.0-cu130"
    assert capsys.readouterr().err == (
        f"requirements are for one build — --on — got 2 builds / allowed {builds} — "
        "name one of these\n"
    )
    assert not output.exists()
    on = ["--on", "pytorch-2.14.0-cu126"]
    assert cli.main([*command, f"mycourse={file}", *on]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"Wrote {output / 'mycourse'}: 1 requirement on pytorch-2.14.0-cu126.",
        "Left out, because the notebook has it or Linux does not need it: torch.",
    ]
    folder = output / "mycourse"
    assert sorted(path.name for path in folder.iterdir()) == ["Containerfile", "requirements.in"]
    text = (folder / "Containerfile").read_text()
    assert "\nFROM images.bedplate.internal/notebook-pytorch:2.14.0-cu126\n" in text
    assert "--constraint ../pytorch-2.14.0-cu126/notebook.lock requirements.in" in text
    assert 'pool: pool_old, cuda: "12.6"}}' in text
    assert (output / "pytorch-2.14.0-cu126/notebook.in").is_file()
    assert (folder / "requirements.in").read_text().splitlines()[1:] == [
        "--index-url https://mirror.example/simple",
        "# Packages that go with the framework, in its variant.",
        "--extra-index-url https://download.pytorch.org/whl/cu126",
        "pandas",
    ]
    for wrong in (f"My_course={file}", str(file), "mycourse="):
        with pytest.raises(SystemExit, match="3"):
            cli.main([*command, wrong, *on])
    for words in (["--requirements", f"mycourse={file}"], on):
        with pytest.raises(SystemExit, match="3"):
            cli.main(["frameworks", str(site), *words])
