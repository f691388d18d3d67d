"""What ships with the package for others to read: pages, templates, the Pulumi projects, programs.

A wheel carries pages, templates and projects below the package; in a checkout they are folders at
its root. Programs are those of pods.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PACKAGE = Path(__file__).parents[1]


def _folder(name: str) -> Path:
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parents[1] / name


def manual() -> Path:
    """Return the list of pages."""
    return _folder("docs") / "index.md"


def templates(kind: str) -> Path:
    """Return the folder of one kind of documents that are rendered on the control side."""
    return _folder("templates") / kind


def stacks() -> Path:
    """Return the folder of the three Pulumi projects."""
    return _folder("stacks")


def collection() -> Path:
    """Return the folder of the Ansible collection: a wheel has it next to the package."""
    inside = _PACKAGE.parent / "ansible_collections" / "bedplate" / "gpu"
    return inside if inside.is_dir() else _PACKAGE.parents[1]


def modules(package: str, *leave: str) -> list[str]:
    """Return the modules of a package, but for those to leave out: `pods/hub/idle.py`."""
    found = sorted((_PACKAGE / package).glob("*.py"))
    return [f"{package}/{path.name}" for path in found if path.name not in leave]


def program(package: str, files_of: Iterable[str]) -> bytes:
    """Return a program for pods as one file that Python runs; equal sources give equal bytes.

    Args:
        package: the folder whose `__main__` is started.
        files_of: its modules and those it imports, as paths below `bedplate`.
    """
    # Every command imports this module, and few write a program.
    import io
    import zipfile

    content = io.BytesIO()
    start = package.replace("/", ".")
    texts = {"__main__.py": f"from bedplate.{start}.__main__ import main\n\nmain()\n"}
    paths = list(files_of)
    folders = {str(folder) for path in paths for folder in Path(path).parents}
    paths += [f"{folder}/__init__.py" for folder in folders]
    found = sorted({str(Path(path)) for path in paths})
    texts |= {f"bedplate/{path}": (_PACKAGE / path).read_text() for path in found}
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in texts.items():
            packed.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return content.getvalue()
