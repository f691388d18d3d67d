"""The environment in which `pulumi` works on this machine, by hand as in the demo."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LANGUAGE_HOST = "pulumi-language-python"
# The built tools that are needed on PATH, and the program that tells whether one is there.
PROGRAMS = {
    "pulumi": "pulumi",
    "pulumi-kubernetes": "pulumi-resource-kubernetes",
    "kubernetes": "kubectl",
}


def cache() -> Path:
    """Return the directory of built tools, outside the tree."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BEDPLATE_CACHE") or Path(base) / "bedplate")


def built(tool: str) -> Path | None:
    """Return the folder of a built tool's programs, the newest if there are several."""
    found = sorted(
        (path for path in (cache() / "tools").glob(f"{tool}-[0-9]*/bin") if path.is_dir()),
        key=lambda path: path.stat().st_mtime,
    )
    return found[-1] if found else None


def official() -> Path | None:
    """Return the language host of Pulumi's own bundle, if there is one: ours must not shadow it.

    The engine takes the first on PATH, then the one beside its own program, links to it followed.
    """
    on_path = shutil.which(LANGUAGE_HOST)
    if on_path and Path(on_path).resolve().parent != HERE:
        return Path(on_path)
    ours = built("pulumi")
    program = shutil.which("pulumi") or (ours and shutil.which("pulumi", path=str(ours)))
    found = program and shutil.which(LANGUAGE_HOST, path=str(Path(program).resolve().parent))
    return Path(found) if found else None


def logged_in() -> bool:
    """Say whether the user has chosen a backend: by variable, or by `pulumi login`."""
    if "PULUMI_BACKEND_URL" in os.environ or "PULUMI_ACCESS_TOKEN" in os.environ:
        return True
    own = os.environ.get("PULUMI_CREDENTIALS_PATH") or os.environ.get("PULUMI_HOME")
    credentials = Path(own or Path.home() / ".pulumi") / "credentials.json"
    return credentials.is_file() and '"current"' in credentials.read_text()


def passphrase_file(site: Path) -> Path:
    """Return the file with the passphrase of the site's state; made at its first use."""
    path = site / ".bedplate" / "pulumi-passphrase"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    return path


def environment(site: Path) -> dict[str, str]:
    """Return the variables to add to the user's own, so that `pulumi` and `kubectl` work here.

    What the user has stays: Pulumi's bundle on PATH, a backend that he is logged in to, his
    passphrase. What is missing comes from the cache and from the site's own directory.
    """
    site = site.resolve()
    first = [str(Path(sys.executable).parent)]
    last: list[str] = []
    for tool, program in PROGRAMS.items():
        folder = built(tool)
        if folder is not None and shutil.which(program) is None:
            last.append(str(folder))
    # A shell may still have ours from before the user's own was there.
    users = [folder for folder in os.environ.get("PATH", "").split(":") if folder != str(HERE)]
    if official() is None:
        last.append(str(HERE))
    found = {
        "PATH": ":".join([*first, *users, *last]),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "KUBECONFIG": str(site / ".bedplate" / "kubeconfig"),
    }
    if not logged_in():
        state = site / ".bedplate" / "pulumi"
        state.mkdir(parents=True, exist_ok=True)
        found["PULUMI_BACKEND_URL"] = f"file://{state}"
    if not {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & os.environ.keys():
        found["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(passphrase_file(site))
    return found
