"""`bedplate init`: what it writes is a site that plans; what it cannot write, it refuses whole."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from packaging.requirements import Requirement

from bedplate.cli import main as cli
from bedplate.common.errors import RefusedError
from bedplate.planning.starting import environment, hosts
from bedplate.resolver.outcome import Kind
from bedplate.resolver.plan import plan

if TYPE_CHECKING:
    from bedplate.lock import Lock

ROOT = Path(__file__).parents[2]
SAID = Path(__file__).with_name("init_refused.txt")
TODAY = date(2026, 11, 25)
FARM = ["--hosts", "cp=cp[1:3].example", "--hosts", "gpu=gpu[01:16].example"]
POOLS = ["--hosts", "cp=192.0.2.1", "--hosts", "train=192.0.2.[11:26]", "--hosts", "class=a,b"]


def init(folder: Path, *arguments: str) -> int:
    """Run `bedplate init`."""
    return cli.main(["init", str(folder), *arguments])


def planned(folder: Path) -> Lock:
    """Return the lock of what was written. Raises RefusedError or SiteError."""
    return plan(folder / "inventory", TODAY).plan.lock


@pytest.mark.parametrize(
    ("given", "endpoint", "bound"),
    [
        (["--one-machine", "192.0.2.5"], None, True),
        (["--one-machine", "192.0.2.5"], "api.lab.example:6443", False),
        (["--one-machine", "ws.example"], None, False),
        (FARM, "192.0.2.99:6443", False),
    ],
)
def test_an_address_as_the_endpoint_of_one_control_plane_is_said_to_stay(
    given: list[str],
    endpoint: str | None,
    *,
    bound: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It can never move to another control plane; a name can."""
    more = ["--endpoint", endpoint] if endpoint else []
    assert init(tmp_path / "lab", *given, "--gpu", "l40s:4", *more) == 0
    said = capsys.readouterr().out
    written = (tmp_path / "lab/inventory/group_vars/all/bedplate.yml").read_text()
    assert ("begin again with --endpoint NAME:6443" in said) == bound
    assert ("# It never changes" in written) == bound


@pytest.mark.parametrize(
    ("arguments", "names", "models", "endpoint"),
    [
        (
            ["--gpu", "h100-sxm5-80gb:8"],
            ["cp1.example", "cp2.example", "cp3.example", "gpu01.example", "gpu02.example"],
            {"pool_gpu": ("h100-sxm5-80gb", 8)},
            "k8s.example:6443",
        ),
        (
            [*FARM, "--gpu", "h100-sxm5-80gb:8", "--endpoint", "192.0.2.99:6443"],
            [f"cp{n}.example" for n in (1, 2, 3)] + [f"gpu{n:02}.example" for n in range(1, 17)],
            {"pool_gpu": ("h100-sxm5-80gb", 8)},
            "192.0.2.99:6443",
        ),
        (
            [*POOLS, "--gpu", "train=h100-sxm5-80gb:8", "--gpu", "pool_class=l40s:4"],
            ["a", "b", "cp1", *(f"train{n:02}" for n in range(1, 17))],
            {"pool_train": ("h100-sxm5-80gb", 8), "pool_class": ("l40s", 4)},
            "192.0.2.1:6443",
        ),
        (
            [*POOLS, "--gpu", "train=a100-pcie-80gb:8", "--gpu", "l40s:4", "--os", "debian-12"],
            ["a", "b", "cp1", *(f"train{n:02}" for n in range(1, 17))],
            {"pool_train": ("a100-pcie-80gb", 8), "pool_class": ("l40s", 4)},
            "192.0.2.1:6443",
        ),
        (
            ["--hosts", "cp=k8s-1", "--hosts", "gpu=g1,g2", "--user", "ubuntu", "--gpu", "l40s:2"],
            ["g1", "g2", "k8s-1"],
            {"pool_gpu": ("l40s", 2)},
            "k8s-1:6443",
        ),
        (
            ["--one-machine", "192.0.2.5", "--gpu", "l40s:4"],
            ["gpu1"],
            {"pool_gpu": ("l40s", 4)},
            "192.0.2.5:6443",
        ),
        (
            ["--one-machine", "ws.example", "--gpu", "rtx-4090:4", "--os", "ubuntu-22.04"],
            ["ws.example"],
            {"pool_gpu": ("rtx-4090", 4)},
            "ws.example:6443",
        ),
    ],
)
def test_what_is_written_plans(
    arguments: list[str],
    names: list[str],
    models: dict[str, tuple[str, int]],
    endpoint: str,
    tmp_path: Path,
) -> None:
    assert init(tmp_path / "site", *arguments) == 0
    lock = planned(tmp_path / "site")
    assert sorted(lock.hosts) == names
    found = {pool: (its.gpu[0].model, its.gpu[0].count) for pool, its in lock.pools.items()}
    assert found == models
    assert lock.cluster.kubernetes is not None
    assert lock.cluster.kubernetes.endpoint == endpoint
    user = arguments[arguments.index("--user") + 1] if "--user" in arguments else "root"
    assert {host.user for host in lock.hosts.values()} == {user}


def test_no_gpu_is_invented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pool whose GPUs nobody named has none, and says who knows them."""
    assert init(tmp_path / "site", *POOLS, "--gpu", "class=l40s:4") == 0
    said = capsys.readouterr().out
    assert "pool_train: the GPUs of its hosts were not named (--gpu)\n" in said
    assert "pool_class: 4 x l40s in each host\n" in said
    path = "inventory/group_vars/pool_train.yml"
    assert f"\n  name the GPUs in {path}\n" in said
    assert "\n  ansible-playbook -i inventory bedplate.gpu.discover    # or reads them" in said
    written = (tmp_path / "site" / path).read_text()
    assert yaml.safe_load(written) is None
    with pytest.raises(RefusedError, match=r"pool's GPUs cannot be counted.*gpu\.discover"):
        planned(tmp_path / "site")
    asked = written.replace("# bedplate_gpu", "bedplate_gpu")
    asked = asked.replace("MODEL,", "h100-sxm5-80gb,").replace("COUNT}", "8}")
    (tmp_path / "site" / path).write_text(asked)
    assert planned(tmp_path / "site").pools["pool_train"].gpu[0].count == 8


@pytest.mark.parametrize(
    ("arguments", "first", "ways"),
    [
        (
            ["--gpu", "h100-sxm5-80gb:8"],
            "ubuntu-24.04, Fabric Manager, downloads from the vendors",
            "--os debian-12 or debian-13; bedplate_sources.mode: mirror",
        ),
        (
            ["--gpu", "l40s:4", "--os", "debian-12"],
            "downloads from the vendors",
            "bedplate_sources.mode: mirror",
        ),
    ],
)
def test_what_no_test_has_installed_is_named_as_the_plan_names_it(
    arguments: list[str],
    first: str,
    ways: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert init(tmp_path / "site", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    wanted = (
        f"No test of this project has installed on real hosts: {first}. You would be the first."
    )
    assert wanted in lines
    assert f"Its tests have, with simulated GPUs: {ways}." in lines
    notices = plan(tmp_path / "site/inventory", TODAY).plan.notices
    untried = {item for one in notices if one.kind is Kind.UNTRIED for item in one.items}
    words = {one.removeprefix("os ") for one in untried if not one.endswith("vendor-repo")}
    assert set(first.split(", ")) == words


@pytest.mark.parametrize(
    ("record", "requirement", "folder"),
    [
        (None, "bedplate==1.2", ""),
        ({"url": "file:///a%20b/bedplate", "dir_info": {"editable": True}}, "", "/a b/bedplate"),
        (
            {"url": "file:///w/b-1.2.whl", "archive_info": {"hashes": {"sha256": "ab"}}},
            "bedplate @ file:///w/b-1.2.whl#sha256=ab",
            "",
        ),
        (
            {"url": "https://x.example/b.git", "vcs_info": {"vcs": "git", "commit_id": "c0"}},
            "bedplate @ git+https://x.example/b.git@c0",
            "",
        ),
    ],
)
def test_the_requirement_is_what_was_installed(
    record: dict[str, object] | None, requirement: str, folder: str
) -> None:
    """Never a name that no index has: the first to claim it would be installed."""
    text = None if record is None else json.dumps(record)
    assert environment.origin("1.2", text) == (requirement, folder)
    if requirement:
        assert Requirement(requirement).name == "bedplate"


def test_what_its_comments_offer_plans_too(tmp_path: Path) -> None:
    assert init(tmp_path / "site", "--gpu", "l40s:4") == 0
    path = tmp_path / "site/inventory/group_vars/all/bedplate.yml"
    text = path.read_text()
    offered = re.search(r"# bedplate_driver: \{policy: lts\} # or: (.*)", text)
    assert offered is not None
    policies = offered[1].split(", ")
    assert len(policies) == 2
    for policy in policies:
        path.write_text(text.replace(offered[0], f"bedplate_driver: {{policy: {policy}}}"))
        planned(tmp_path / "site")


def test_its_first_plan_warns_of_no_preference_that_nobody_wrote(tmp_path: Path) -> None:
    """The catalogue has packages of no LTS branch for Debian that an index has confirmed."""
    assert init(tmp_path / "site", "--gpu", "l40s:4", "--os", "debian-12") == 0
    notices = plan(tmp_path / "site/inventory", TODAY).plan.notices
    assert not [one for one in notices if "policy" in str(one)]


def test_the_written_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new/lab"
    assert init(folder, "--one-machine", "192.0.2.5", "--gpu", "l40s:4", "--user", "me") == 0
    written = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    assert f"Wrote {len(written)} files to {folder}." in capsys.readouterr().out
    assert folder.stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in folder.parent.iterdir()) == ["lab"], "nothing aside is left"

    stacks = {p.parent.name for p in (ROOT / "stacks").glob("*/Pulumi.yaml")}
    assert stacks == {"cluster", "schedulers", "frameworks"}
    for stack in stacks:
        for name in ("Pulumi.yaml", "__main__.py"):
            path = f"stacks/{stack}/{name}"
            assert written[path].read_bytes() == (ROOT / path).read_bytes()

    ours, its = configparser.ConfigParser(), configparser.ConfigParser()
    ours.read(ROOT / "ansible.cfg")
    its.read(written["ansible.cfg"])
    assert its["defaults"].pop("inventory") == "inventory"
    assert its["defaults"].pop("stdout_callback") == "bedplate.gpu.brief"
    assert {k: dict(v) for k, v in its.items()} == {k: dict(v) for k, v in ours.items()}

    access = yaml.safe_load(written["inventory/group_vars/all/ansible.yml"].read_text())
    assert access == {"ansible_user": "me", "ansible_become": True}
    assert "requirements.txt" not in written, "a checkout changes"
    readme = written["README.md"].read_text()
    assert readme.startswith("# lab\n")
    assert len(readme.splitlines()) <= 15
    used = set(re.findall(r"^ +bedplate ([a-z]+)", readme, re.MULTILINE))
    assert used == {"plan", "mirror", "report"}
    assert used < set(re.findall(r"^    ([a-z]+)", cli.parser().format_help(), re.MULTILINE))


def test_the_folder_around_the_site_is_no_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and not one for each of Pulumi's files that Ansible would read."""
    assert init(tmp_path / "lab", "--one-machine", "192.0.2.5") == 0
    inventory = tmp_path / "lab" / "inventory"
    for wrong, got in {
        tmp_path / "lab": "the folder that bedplate init made, with the site in it",
        inventory / "hosts.yml": "a file",
    }.items():
        assert cli.main(["plan", str(wrong)]) == 3
        (first, *_) = capsys.readouterr().err.splitlines()
        assert first.startswith(f"no such site — {wrong} — got {got} / allowed an inventory direct")
        assert first.endswith(f" {inventory}")


def test_a_folder_in_which_a_shell_stands_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inode = tmp_path.stat().st_ino
    assert init(Path(), "--one-machine", "192.0.2.5") == 0
    assert tmp_path.stat().st_ino == inode
    assert (tmp_path / "README.md").read_text().startswith(f"# {tmp_path.name}\n")


def test_everything_wrong_is_said_at_once_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words are those of this command, FOLDER being the folder."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/mine").touch()
    wrong = ["--os", "ubuntu-26.04", "--gpu", "h100:8", "--gpu", "class=k80:4", "--user", "A B"]
    groups = ["--hosts", "cp=cp[1:2]", "--hosts", "gpu=10.0.1.[250:260]", "--hosts", "gpu"]
    assert init(tmp_path / "site", *wrong, *groups, "--endpoint", "k8s") == 3
    said = capsys.readouterr()
    assert said.out == ""
    written = SAID.read_text(encoding="utf-8").replace("FOLDER", str(tmp_path / "site"))
    assert said.err == written
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hosts", "gpu=g1"], "no control plane — --hosts — got no cp"),
        (["--hosts", "cp=c1"], "no pool of GPU hosts — --hosts — got none"),
        (["--hosts", "cp=c[1:3]", "--hosts", "gpu=g1"], "no endpoint for several control planes"),
        (["--one-machine", "a,b"], "wrong hosts — --one-machine — got a,b / allowed one host"),
        (["--one-machine", "localhost"], "address is of this machine alone — --one-machine"),
        (["--one-machine", "127.0.0.1"], "got 127.0.0.1 / allowed an address that the cluster's"),
        (["--one-machine", "gpu[1:2]"], "got gpu[1:2] / allowed one host"),
        (["--hosts", "cp=c1", "--hosts", "a=g1", "--hosts", "b=g1"], "got g1 in a and in b"),
        (["--hosts", "cp=c1", "--hosts", "a=g1", "--hosts", "pool_a=g2"], "group is named twice"),
        (
            ["--one-machine", "a", "--gpu", "gb10:1"],
            "got gb10, whose hosts are aarch64 / allowed a GPU of x86_64 hosts",
        ),
        (["--one-machine", "a", "--gpu", "dgx-spark:1"], "allowed gb10 — write gb10"),
        (["--one-machine", "a", "--gpu", "mi300x:8"], "allowed a model of NVIDIA's — write bedp"),
        (["--one-machine", "a", "--os", "rocky-9.4"], "ubuntu-24.04 — write rocky-9"),
        (["--one-machine", "a", "--os", "Debian"], "ubuntu-24.04 — write debian-12 or debian-13"),
        (["--one-machine", "a", "--gpu", "l40s"], "wrong GPUs — --gpu — got l40s / allowed MODEL"),
        (["--one-machine", "a", "--gpu", "l40s:65"], "got l40s:65 / allowed MODEL:COUNT, COUNT"),
        (["--one-machine", "a", "--gpu", "l40s:1", "--gpu", "l4:1"], "GPUs are given twice"),
    ],
)
def test_refused(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path / "site", *arguments) == 3
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_command_to_paste_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path / "my site", "--one-machine", "192.0.2.5") == 0
    assert f"\n  cd '{tmp_path}/my site'\n" in capsys.readouterr().out


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty"])
def test_a_write_that_fails_leaves_nothing(
    there: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each write and each move fails once: what was there before is all that is there after."""
    target = tmp_path / "site"
    plain = {"write_text": Path.write_text, "rename": Path.rename}
    failed = 0
    for name, done in plain.items():
        for fatal in range(1, 100):
            count = iter(range(1, 1000))

            def full(path: Path, *rest: object, fatal=fatal, count=count, done=done) -> object:
                if next(count) == fatal:
                    raise OSError(28, "No space left on device")
                return done(path, *rest)

            def write_text(path: Path, text: str, encoding: str, full=full) -> object:
                return full(path, text, encoding)

            monkeypatch.setattr(Path, name, write_text if name == "write_text" else full)
            if there:
                target.mkdir()
            status = init(target, "--one-machine", "192.0.2.5")
            monkeypatch.undo()
            if status == 0:
                shutil.rmtree(target)
                break
            failed += 1
            assert "[Errno 28] No space left on device" in capsys.readouterr().err
            left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
            assert left == (["site"] if there else [])
            if there:
                target.rmdir()
    assert failed == 13 + (5 if there else 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cp1.example", [("cp1.example", None, 1)]),
        ("a, b", [("a", None, 1), ("b", None, 1)]),
        ("gpu[01:16]", [("gpu[01:16]", None, 16)]),
        ("r[1:2]n[a:c].x", [("r[1:2]n[a:c].x", None, 6)]),
        ("192.0.2.1,n2", [("n2", None, 1), ("p1", "192.0.2.1", 1)]),
        ("192.0.2.[9:11]", [(f"p{n}", f"192.0.2.{n + 8}", 1) for n in (1, 2, 3)]),
        ("2001:db8::5", [("p1", "2001:db8::5", 1)]),
    ],
)
def test_hosts(text: str, found: list[tuple[str, str | None, int]]) -> None:
    its, problems = hosts.entries(text, "p", "--hosts")
    assert problems == []
    assert [(entry.name, entry.address, len(entry.hosts)) for entry in its] == found


@pytest.mark.parametrize(
    "text",
    ["", "a,,b", "gpu[1:", "gpu[3:1]", "192.0.2.300", "192.0.2.[1:300]", "A1", "a b", "g[x]"],
)
def test_no_hosts(text: str) -> None:
    _, problems = hosts.entries(text, "p", "--hosts")
    assert [problem.what for problem in problems] == ["wrong hosts"]


def test_ansible_reads_the_ranges(tmp_path: Path) -> None:
    assert init(tmp_path / "site", *FARM, "--endpoint", "k8s.example:6443") == 0
    program = str(Path(sys.executable).with_name("ansible-inventory"))
    graph = subprocess.run(
        [program, "--graph"], cwd=tmp_path / "site", capture_output=True, text=True, check=True
    ).stdout
    assert "gpu01.example" in graph
    assert "gpu16.example" in graph


def test_an_endpoint_of_ipv6_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = [*FARM, "--gpu", "h100-sxm5-80gb:8", "--endpoint", "[2001:db8::1]:6443"]
    assert init(tmp_path / "site", *asked) != 0
    assert capfd.readouterr().err.startswith("endpoint of IPv6 — --endpoint — got [2001:db8::1]")
