"""A share that is logged in to: the real sshd as the pod runs it, without root, as its user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bedplate.pods.hub import share_ssh
from bedplate.pods.hub.shares import Offer, Request, ShareError, job
from tests.packages import unpacked
from tests.schedulers.api import eventually
from tests.schedulers.processes import Process, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMITS = {
    "CUDA_MPS_PIPE_DIRECTORY": "/mps/pipe of two words",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.100",
}


def key(folder: Path, name: str) -> Path:
    """Make a pair of keys and return the private one."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
    subprocess.run(command, check=True)
    return folder / name


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of Debian's OpenSSH server, unpacked."""
    return unpacked(["openssh-server", "libwrap0"], tmp_path_factory.mktemp("sshd") / "packages")


@pytest.fixture
def login(sshd: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Return what starts a share with a script and logs in to it with a key."""
    folder = Path(tempfile.mkdtemp(prefix="bedplate-ssh-"))
    folder.chmod(0o755)
    started: list[Process] = []
    mine = key(folder, "mine")
    program = folder / "root"
    shutil.copytree(sshd, program, symlinks=True)
    for path in program.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)

    def run(
        change: Callable[[str], str] = str, with_key: str = "mine", command: str = "env"
    ) -> subprocess.CompletedProcess[str]:
        home = folder / "home"
        home.mkdir()
        os.chown(home, share_ssh.NUMBER, share_ssh.NUMBER)
        made = _job((folder / "mine.pub").read_text())
        template = made["spec"]["template"]
        accounts = template["metadata"]["annotations"][share_ssh.ACCOUNTS]
        (folder / "passwd").write_text(accounts.replace(share_ssh.HOME, str(home)))
        (container,) = template["spec"]["containers"]
        port = free_port()
        environment = {one["name"]: one["value"] for one in container["env"]} | {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(next(program.rglob("libwrap.so.0")).parent),
            "BEDPLATE_SSHD": str(program / "usr/sbin/sshd"),
            "BEDPLATE_SSH_PORT": str(port),
        }
        # As in the pod: the accounts are mounted over the image's, and nothing runs as root.
        bound = f'mount --bind {folder / "passwd"} /etc/passwd && exec "$@"'
        number = str(share_ssh.NUMBER)
        user = ["setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--no-new-privs"]
        *shell, script = container["command"]
        inside = ["sh", "-c", bound, "sh", *user, *shell, change(script)]
        process = Process(["unshare", "--mount", *inside], folder / "sshd.log", environment)
        process.start()
        started.append(process)
        log = folder / "sshd.log"
        eventually(lambda: "Server listening" in log.read_text() or not process.running)
        assert process.running, log.read_text()
        options = ["StrictHostKeyChecking=no", f"UserKnownHostsFile={folder / 'known'}"]
        options += ["BatchMode=yes", "IdentitiesOnly=yes"]
        words = ["ssh", "-F", "none", "-p", str(port), "-i", str(folder / with_key)]
        words += [part for one in options for part in ("-o", one)]
        done = subprocess.run(
            [*words, f"{share_ssh.USER}@127.0.0.1", command],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert mine.exists()
        return done

    run.folder = folder  # type: ignore[attr-defined]
    yield run
    for one in started:
        one.kill()
    shutil.rmtree(folder)


def _job(public: str) -> dict[str, Any]:
    request = Request("0.1", 60, "image", environment=LIMITS)
    made = job(request, "vision", Offer("nvidia.com/gpu.shared", 0.1, 1024, 1), 1)
    return share_ssh.with_login(made, share_ssh.public_key(public))


def test_a_login_has_the_limits_of_the_container(login: Any) -> None:
    """Also where a value has blanks; and it is the share's user, without the key in its sight."""
    done = login(command="env; id -un")
    assert done.returncode == 0, done.stderr
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert {name: found.get(name) for name in LIMITS} == LIMITS
    assert share_ssh.USER in done.stdout.splitlines()
    assert share_ssh.KEY not in found


def test_without_the_environment_of_the_user_the_limits_are_gone(login: Any) -> None:
    """The defence off: what the test above would miss."""
    done = login(lambda script: script.replace("PermitUserEnvironment yes", ""))
    assert done.returncode == 0, done.stderr
    assert not any(name in done.stdout for name in LIMITS)


def test_another_key_is_refused(login: Any) -> None:
    key(login.folder, "other")
    done = login(with_key="other")
    assert done.returncode != 0
    assert "Permission denied (publickey)" in done.stderr


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "a private key"),
        ("ssh-ed25519 " + "A" * 68 + "\nssh-ed25519 " + "A" * 68, "2 lines"),
        ('command="sh" ssh-ed25519 ' + "A" * 68, "1 lines"),
        ("", "0 lines"),
    ],
)
def test_what_is_no_public_key_is_refused(text: str, got: str) -> None:
    with pytest.raises(ShareError, match=f"no public key of SSH — got {got}"):
        share_ssh.public_key(text)
