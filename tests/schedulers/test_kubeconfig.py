"""`bedplate kubeconfig` on a real API server and its real signer: who has the file is a member."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509

from bedplate.cli.main import main
from bedplate.common import kubeconfig
from bedplate.components.schedulers.kueue import tenancy
from bedplate.lock import write_lock
from tests.schedulers.api import eventually
from tests.schedulers.certificates import Authority
from tests.schedulers.locks import lock_of, queues_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.schedulers.control_plane import ControlPlane

LOCK = lock_of(
    {"pool_train": [{}]},
    {
        "vision": {
            "gpus": {"pool_train": (1, None)},
            "members": ["group:students"],
            "namespaces": ["vision-a", "vision-b"],
        },
        "audio": {"gpus": {"pool_train": (1, None)}, "members": ["bob"]},
    },
)


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """Return the control plane with the teams' namespaces and rights."""
    for one in tenancy.objects(queues_of(LOCK)):
        control_plane.api.apply(one)
    return control_plane


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Path:
    """Return a site with its lock and the administrator's kubeconfig."""
    folder = tmp_path / "site"
    folder.mkdir()
    write_lock(folder, LOCK)
    kubeconfig.write(folder, yaml.safe_dump(plane.as_kubeconfig(plane.admin)))
    return folder


def requests(plane: ControlPlane) -> list[str]:
    """Return the names of the requests for certificates that the API server has."""
    found = plane.api.get("certificatesigningrequests", "certificates.k8s.io/v1")
    return [one["metadata"]["name"] for one in found]


def test_a_member_has_the_rights_of_the_team_and_no_others(
    plane: ControlPlane, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["kubeconfig", str(site), "--user", "alice", "--group", "students", "--hours", "2"]
    assert main(asked) == 0
    path = site / ".bedplate" / "kubeconfigs" / "alice"
    printed = capsys.readouterr().out
    assert printed.startswith(f"Wrote {path}: alice of team vision, namespace vision-a, until ")
    assert path.stat().st_mode & 0o777 == 0o600
    assert requests(plane) == []

    def kubectl(*arguments: str, by: Path = path) -> str:
        return plane.kubectl(f"--kubeconfig={by}", *arguments, check=False).strip()

    eventually(
        lambda: kubectl("auth", "can-i", "create", "jobs"), until=lambda found: found == "yes"
    )
    assert kubectl("auth", "can-i", "create", "jobs", "-n", "vision-b") == "yes"
    made = ("create", "job", "first", "--image=registry.example/none:1")
    assert kubectl(*made) == "job.batch/first created"
    assert [one["metadata"]["name"] for one in plane.api.get("jobs", "batch/v1", "vision-a")] == [
        "first"
    ]
    plane.clear("vision-a")
    assert kubectl("auth", "can-i", "create", "jobs", "-n", "audio") == "no"
    assert kubectl("auth", "can-i", "get", "secrets", "-n", "kube-system") == "no"
    assert 'User "alice" cannot list resource "secrets"' in kubectl(
        "get", "secrets", "-n", "kube-system"
    )
    who = yaml.safe_load(kubectl("auth", "whoami", "-o", "yaml"))["status"]["userInfo"]
    assert (who["username"], who["groups"]) == ("alice", ["students", "system:authenticated"])

    expired = plane.authority.issue("alice", "students", folder=tmp_path, days=(-2, -1))
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other").issue("alice", "students")
    for name, pair in {"expired": expired, "other": other}.items():
        (by := tmp_path / name / "config").parent.mkdir(exist_ok=True)
        by.write_text(yaml.safe_dump(plane.as_kubeconfig(pair)))
        assert "You must be logged in to the server" in kubectl("get", "jobs", by=by), name

    # Once more, when the first one ends soon: the same file, with another key.
    before = path.read_bytes()
    assert main(asked) == 0
    assert path.read_bytes() != before
    assert kubectl("auth", "can-i", "create", "jobs") == "yes"


def test_what_is_printed_as_the_end_is_the_certificates(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bob.kubeconfig"
    assert main(["kubeconfig", str(site), "--user", "bob", "--output", str(path)]) == 0
    (user,) = yaml.safe_load(path.read_text())["users"]
    pem = base64.b64decode(user["user"]["client-certificate-data"])
    found = x509.load_pem_x509_certificate(pem)
    printed = capsys.readouterr().out
    assert f"until {found.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC." in printed
    assert user["user"]["client-key-data"] not in printed
    hours = (found.not_valid_after_utc - found.not_valid_before_utc).total_seconds() / 3600
    assert hours == pytest.approx(12, abs=0.2)


def test_a_time_that_the_api_refuses_is_refused_in_its_words(
    plane: ControlPlane, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubeconfig", str(site), "--user", "bob", "--hours", "0.1"]) == 3
    assert re.search(
        r"no certificate can be requested — the cluster's API — got .*expirationSeconds: "
        r"Invalid value: 360: may not specify a duration less than 600 seconds",
        capsys.readouterr().err,
    )
    assert requests(plane) == []
    assert not (site / ".bedplate" / "kubeconfigs").exists()
