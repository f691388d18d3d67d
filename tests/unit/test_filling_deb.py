"""The demo's own Debian packages: their maker's names and paths, equal bytes each time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from bedplate.portable.unpack import unpack_deb
from tests.substrate.images import deb, recipes

ROLE = Path(__file__).parents[2] / "roles/nvidia_container_toolkit/tasks/install.yml"


def test_a_package_has_its_makers_name_and_the_same_bytes_again(tmp_path: Path) -> None:
    program = tmp_path / "ctk"
    program.write_bytes(b"\x7fELF")
    made = []
    for one in ("a", "b"):
        made.append(tmp_path / f"{one}.deb")
        deb.pack(made[-1], "nvidia-ctk-base", "1.2.3-1", [("usr/bin/nvidia-ctk", program)])
    assert made[0].read_bytes() == made[1].read_bytes()
    command = ["dpkg-deb", "--field", str(made[0]), "Package", "Version", "Architecture"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told == "Package: nvidia-ctk-base\nVersion: 1.2.3-1\nArchitecture: amd64\n"
    (tmp_path / "new").mkdir()
    assert unpack_deb(str(made[0]), str(tmp_path / "new")) == ["usr/bin/nvidia-ctk"]


def test_the_role_links_what_the_packages_have() -> None:
    """Each program comes with the package that NVIDIA's packaging puts it into."""
    tasks = yaml.safe_load(ROLE.read_text())
    (task,) = (one for one in tasks if "bedplate.gpu.archives" in one)
    archives = {one["name"]: one for one in task["bedplate.gpu.archives"]["archives"]}
    made = {file.artifact: file for file in recipes.files(recipes.known_tools()) if file.deb}
    assert set(made) == set(archives)
    for name, file in made.items():
        assert archives[name]["layout"] == "deb"
        programs = {f"{file.into}/{program}" for program in file.files}
        assert set(archives[name]["links"].values()) == programs, name
        assert Path(file.name).name.startswith(f"{file.deb}_")
