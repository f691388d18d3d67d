"""A user's containerd and Docker configurations stay the user's: what is ours is added, once."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from bedplate.portable import owned, removal
from bedplate.portable.host import Host, Permissions, Result
from bedplate.portable.runtime import containerd as containerd_config
from bedplate.portable.runtime import docker as docker_config

if TYPE_CHECKING:
    from bedplate.portable.files import Change

ROLE = Path(__file__).resolve().parents[2] / "roles" / "container_runtime"

PATH = "/etc/containerd/config.toml"
PATTERN = "/etc/containerd/conf.d/*.toml"
OURS = f'# Managed by Bedplate (role container_runtime).\nversion = 3\nimports = ["{PATTERN}"]\n'
THEIRS = """# our own settings
version = 3
root = "/data/containerd" # a large disk

[plugins.'io.containerd.cri.v1.runtime']
  max_container_log_line_size = 12345
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path), lambda *_: Result(1, "", "no such package"))


@pytest.mark.parametrize(
    "before",
    [
        THEIRS,
        'version = 2\nimports = []\n[grpc]\n  address = "x"\n',
        'version = 2\nimports = ["/etc/mine.toml"]\n[grpc]\n  address = "x"\n',
        'version = 2\nimports = [\n  "/a.toml",\n  "/b.toml",\n]\n[grpc]\n  address = "x"\n',
        'version = 2\nimports = [\n  "/a.toml",\n  "/b.toml"\n]\n',
        '#imports = ["/no.toml"]\nversion = 2',
        'version = 2\n[plugins.mine]\n  imports = ["/other.toml"]\n',
        'imports = ["/first.toml"] # [x]\nversion = 3\n',
        'root = "/x"\n',
        "[grpc]\n",
    ],
)
def test_one_import_is_added_and_nothing_else_changes(before: str) -> None:
    after = containerd_config.with_imports(before, PATTERN)
    was, now = tomllib.loads(before), tomllib.loads(after)
    assert now["imports"] == [*was.get("imports", []), PATTERN]
    assert {**now, "imports": None} == {**was, "imports": None}
    assert containerd_config.with_imports(after, PATTERN) == after
    left = containerd_config.without_import(after, PATTERN)
    assert {**tomllib.loads(left), "imports": None} == {**was, "imports": None}
    assert tomllib.loads(left).get("imports", []) == was.get("imports", [])
    if was.get("imports") != []:
        assert left == before + ("" if before.endswith("\n") else "\n")
    comments = [line for line in before.splitlines() if "#" in line]
    assert [line for line in after.splitlines() if "#" in line and PATTERN not in line] == [
        line for line in comments if "/first.toml" not in line
    ]


def test_a_users_file_is_kept_beside_and_not_watched(host: Host) -> None:
    host.write(PATH, THEIRS)
    outcome = containerd_config.ensure(host, PATH, OURS, PATTERN)
    assert outcome.adopted
    assert outcome.change
    assert host.read(PATH + containerd_config.KEPT) == THEIRS
    assert containerd_config.ensure(host, PATH, OURS, PATTERN).change is None
    host.write(PATH, (host.read(PATH) or "") + "# more of the user's\n")
    assert owned.differences(host) == {}
    assert containerd_config.ensure(host, PATH, OURS, PATTERN).change is None


def test_our_own_file_is_mended_and_watched(host: Host) -> None:
    assert containerd_config.ensure(host, PATH, OURS, PATTERN).change
    assert not host.exists(PATH + containerd_config.KEPT)
    host.write(PATH, OURS + "# edited\n")
    assert owned.differences(host) == {"container_runtime": [f"{PATH}: edited"]}
    held = containerd_config.ensure(host, PATH, OURS, PATTERN, hold=True)
    assert held.pending == [f"{PATH}: another content"]
    assert containerd_config.ensure(host, PATH, OURS, PATTERN, check=True).change
    assert host.read(PATH) == OURS + "# edited\n"
    assert containerd_config.ensure(host, PATH, OURS, PATTERN).change
    assert host.read(PATH) == OURS


def test_a_file_that_cannot_serve_is_refused_and_left(host: Host) -> None:
    off = 'version = 2\ndisabled_plugins = [ "cri" ]\n'
    host.write(PATH, off)
    assert containerd_config.ensure(host, PATH, OURS, PATTERN).problems == [
        (
            "containerd's configuration switches Kubernetes' interface off — "
            "/etc/containerd/config.toml:disabled_plugins — got cri / allowed a file without it, "
            "because drop-ins can only add to that list — Take cri out of disabled_plugins in your "
            "file, and run again."
        )
    ]
    host.write(PATH, 'root = "/x"\n')
    assert containerd_config.ensure(host, PATH, OURS, PATTERN).problems == [
        (
            "containerd's configuration is of a version that it no longer reads — "
            "/etc/containerd/config.toml:version — got none / allowed 2 or newer — "
            "Migrate it: containerd --config /etc/containerd/config.toml config migrate."
        )
    ]
    assert host.read(PATH) == 'root = "/x"\n'
    host.write(PATH, '# disabled_plugins = ["cri"]\nversion = 2\n')
    assert containerd_config.ensure(host, PATH, OURS, PATTERN).problems == []


ONE_FILE = "/etc/containerd/bedplate.toml"


def test_an_earlier_import_of_ours_gives_way_and_the_users_stays(host: Host) -> None:
    def imports(pattern: str, instead_of: str) -> list[str]:
        containerd_config.ensure(host, PATH, OURS, pattern, instead_of=instead_of)
        found: list[str] = tomllib.loads(host.read(PATH) or "")["imports"]
        return found

    host.write(PATH, THEIRS)
    assert imports(PATTERN, ONE_FILE) == [PATTERN]
    assert imports(ONE_FILE, PATTERN) == [ONE_FILE]
    assert imports(PATTERN, ONE_FILE) == [PATTERN]
    host.remove(PATH + containerd_config.KEPT)
    assert imports(ONE_FILE, PATTERN) == [PATTERN, ONE_FILE]


def test_before_2_0_nothing_may_stand_beside_ours(host: Host) -> None:
    mine = OURS.replace("version = 3", "version = 2").replace(PATTERN, ONE_FILE)

    def ensure(text: str) -> containerd_config.Outcome:
        host.write(PATH, text)
        return containerd_config.ensure(
            host, PATH, mine, ONE_FILE, instead_of=PATTERN, merged=False
        )

    cri = '[plugins."io.containerd.grpc.v1.cri".registry]\n'
    assert ensure(f'version = 2\nimports = ["/etc/mine.toml"]\n{cri}').problems == [
        (
            "containerd's configuration would be replaced in part, because containerd merges no "
            'tables before 2.0 — /etc/containerd/config.toml — got plugins."io.containerd.grpc.v1'
            ".cri\", /etc/mine.toml / allowed a file without Kubernetes' interface and without "
            "imports — Take that out of your file, or choose containerd 2.0 or newer."
        )
    ]
    assert host.read(PATH) == f'version = 2\nimports = ["/etc/mine.toml"]\n{cri}'
    assert ensure("version = 3\n").problems == [
        (
            "containerd's configuration is of a version that it does not read yet — "
            "/etc/containerd/config.toml:version — got 3 / allowed 2, before containerd 2.0 — "
            "Write your file again for version 2, or choose a newer containerd."
        )
    ]
    assert not ensure(f'version = 2\n# {cri}[plugins.mine]\n  a = "/data"\n').problems
    assert tomllib.loads(host.read(PATH) or "")["imports"] == [ONE_FILE]


CERTS = "/etc/containerd/certs.d"
REGISTRY = "plugins.'io.containerd.cri.v1.images'.registry"
OLD_CRI = 'plugins."io.containerd.grpc.v1.cri"'
OLD_REGISTRY = f"{OLD_CRI}.registry"


@pytest.mark.parametrize(
    ("tables", "got"),
    [
        (f'[{REGISTRY}.mirrors."docker.io"]\nendpoint = ["https://m.example"]\n', "mirrors"),
        (f'[{OLD_REGISTRY}.mirrors]\n  "docker.io" = {{endpoint = []}}\n', "mirrors"),
        (f'[{OLD_REGISTRY}]\n  mirrors = {{"docker.io" = {{}}}}\n', "mirrors"),
        (f'[{OLD_REGISTRY}.configs."m.example".tls]\n  ca_file = "/ca"\n', "configs.*.tls"),
        (f'[{OLD_REGISTRY}.configs]\n  "m.example".tls = {{ca_file = "/ca"}}\n', "configs.*.tls"),
        (
            f"[{OLD_CRI}]\nregistry={{mirrors = {{a = 1}}, configs = {{a = {{tls = {{}}}}}}}}\n",
            "configs.*.tls, mirrors",
        ),
        (f"[{OLD_CRI}]\n  registry = {{config_path = '/x'}}\n", "config_path /x"),
        (f'[{REGISTRY}]\n  config_path = "{CERTS}:/mine"\n', f"config_path {CERTS}:/mine"),
    ],
)
def test_another_way_to_registries_is_refused_beside_a_wished_mirror(
    host: Host, tables: str, got: str
) -> None:
    theirs = "version = 2\n" + tables
    tomllib.loads(theirs)
    host.write(PATH, theirs)
    outcome = containerd_config.ensure(host, PATH, OURS, PATTERN, config_path=CERTS)
    assert outcome.problems == [
        (
            "containerd's configuration has another way to registries than the requested one — "
            f"{PATH}:registry — got {got} / allowed no mirrors, no certificates, and no "
            f"config_path but {CERTS} — Move them to {CERTS}/<registry>/hosts.toml, or ask for no "
            "mirror (container_runtime_mirror) and no registry of courses, and run again."
        )
    ]
    assert host.read(PATH) == theirs
    assert not containerd_config.ensure(host, PATH, OURS, PATTERN).problems


@pytest.mark.parametrize(
    "tables",
    [
        f'[{REGISTRY}]\n  config_path = ""\n[{REGISTRY}.mirrors]\n[{REGISTRY}.configs]\n',
        f'[{OLD_REGISTRY}]\n  config_path = "{CERTS}"\n  mirrors = {{ }}\n',
        f'[{OLD_REGISTRY}.configs."m.example".auth]\n  password = "x"\n',
        f'# [{REGISTRY}.mirrors."docker.io"]\n',
        '[plugins.mine.registry.mirrors."docker.io"]\n[plugins.mine]\nconfig_path = "/x"\n',
    ],
)
def test_what_containerd_takes_beside_a_mirror_is_no_problem(host: Host, tables: str) -> None:
    host.write(PATH, "version = 2\n" + tables)
    assert not containerd_config.ensure(host, PATH, OURS, PATTERN, config_path=CERTS).problems


def test_a_drop_in_of_the_users_is_looked_at_too(host: Host) -> None:
    mirrors = f'[{REGISTRY}.mirrors."docker.io"]\n'
    host.write("/etc/containerd/conf.d/50-bedplate.toml", "# Managed by Bedplate\n" + mirrors)
    host.write("/etc/containerd/conf.d/90-mine.txt", mirrors)
    ensure = containerd_config.ensure
    assert not ensure(host, PATH, OURS, PATTERN, config_path=CERTS).problems
    host.write("/etc/containerd/conf.d/90-mine.toml", mirrors)
    (problem,) = ensure(host, PATH, OURS, PATTERN, config_path=CERTS).problems
    assert "/etc/containerd/conf.d/90-mine.toml:registry — got mirrors / " in problem


@pytest.mark.parametrize("mirror", ["", "http://registry.example:5000"])
@pytest.mark.parametrize("template", ["50-bedplate.toml.j2", "bedplate.toml.j2"])
def test_our_settings_say_where_registries_are_only_for_a_mirror(
    template: str, mirror: str
) -> None:
    loader = DataLoader()
    variables = {
        **loader.load_from_file(str(ROLE / "defaults" / "main.yml"), trusted_as_template=True),
        **loader.load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True),
        "container_runtime_mirror": mirror,
        "__container_runtime_restrict_oom": False,
        "__container_runtime_apparmor": True,
    }
    text = trust_as_template((ROLE / "templates" / template).read_text())
    found = tomllib.loads(Templar(loader=loader, variables=variables).template(text))["plugins"]
    old, new = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"
    registry = found[old if old in found else new].get("registry")
    assert registry == ({"config_path": CERTS} if mirror else None)


WISH: dict[str, Any] = {
    "runtimes": {"nvidia": {"path": "/usr/local/bin/nvidia-container-runtime", "args": []}}
}
RUNC = {"default-runtime": "runc"}


def test_dockers_file_gets_our_keys_only(host: Host) -> None:
    theirs: dict[str, Any] = {
        "live-restore": True,
        "runtimes": {"kata": {"path": "/kata"}},
        "log-level": "warn",
    }
    text = json.dumps(theirs, indent="\t")
    host.write(docker_config.PATH, text)
    outcome = docker_config.ensure(host, WISH)
    after = json.loads(host.read(docker_config.PATH) or "")
    assert after == {**theirs, "runtimes": {**theirs["runtimes"], **WISH["runtimes"]}}
    assert list(after) == list(theirs)
    assert outcome.changes[0].after == json.dumps(WISH, indent="\t") + "\n"
    assert "\n\t" in (host.read(docker_config.PATH) or "")
    assert host.read(docker_config.PATH + docker_config.KEPT) == text
    assert docker_config.ensure(host, WISH).changes == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Docker keeps to its default where the key is gone: it is told another.
        ({}, {"default-runtime": "runc"}),
        ({"default-runtime": "kata"}, {"default-runtime": "kata"}),
        ({"features": {"buildkit": True}}, {"features": {"buildkit": True}, **RUNC}),
    ],
)
def test_what_is_not_wished_any_more_of_ours_goes_out_of_dockers_file(
    host: Host, before: dict[str, Any], after: dict[str, Any]
) -> None:
    def ensure(wish: dict[str, Any], **how: bool) -> docker_config.Outcome:
        return docker_config.ensure(host, wish, otherwise=RUNC, **how)

    def says() -> Any:
        return json.loads(host.read(docker_config.PATH) or "{}")

    host.write(docker_config.PATH, json.dumps(before))
    wide = {**WISH, "features": {"cdi": True}, "default-runtime": "nvidia"}
    assert ensure(wide).now == wide
    assert ensure(WISH, hold=True).pending
    assert ensure(WISH, check=True).changes
    (change,) = ensure(WISH).changes
    assert '"cdi": true' in (change.before or "")
    assert "cdi" not in change.after
    assert says() == {**after, **WISH}
    outcome = ensure(WISH)
    assert not outcome.changes
    assert outcome.now["default-runtime"] == after["default-runtime"]
    # What somebody else has said since is theirs.
    ensure(wide)
    host.write(docker_config.PATH, json.dumps({**says(), "default-runtime": "crun"}))
    ensure(WISH)
    assert says()["default-runtime"] == "crun"
    ensure(wide)
    reset(host)
    assert says() == {**before, "default-runtime": "crun"}


def test_dockers_file_waits_on_a_node_and_is_refused_when_broken(host: Host) -> None:
    assert docker_config.ensure(host, WISH, hold=True).pending == [
        "/etc/docker/daemon.json: runtimes"
    ]
    assert docker_config.ensure(host, WISH, check=True).changes
    assert not host.exists(docker_config.PATH)
    host.write(docker_config.PATH, "[1, 2")
    assert docker_config.ensure(host, WISH).problems == [
        (
            "Docker's configuration is not JSON — /etc/docker/daemon.json — got Expecting ',' "
            "delimiter: line 1 column 6 (char 5) / allowed one JSON object — Fix your file, and "
            "run again."
        )
    ]


SECRET = "hunter2"
WITH_AUTH = f"""version = 2
imports = ["/etc/mine/*.toml"]

[{OLD_REGISTRY}.configs."registry.example".auth]
  password = "{SECRET}"
"""
WITH_PROXY = json.dumps({"proxies": {"http-proxy": f"http://me:{SECRET}@192.0.2.1"}})


def adopt(host: Host, path: str) -> list[Change]:
    """Have what is ours in a user's file at ``path``."""
    if path == docker_config.PATH:
        return docker_config.ensure(host, WISH).changes
    change = containerd_config.ensure(host, path, OURS, PATTERN).change
    return [change] if change else []


@pytest.mark.parametrize(
    ("path", "text"), [(PATH, WITH_AUTH), (docker_config.PATH, WITH_PROXY)], ids=["toml", "json"]
)
def test_a_users_secrets_stay_unread(host: Host, path: str, text: str) -> None:
    host.write(path, text, 0o640)
    (change,) = adopt(host, path)
    assert SECRET not in (change.before or "") + change.after
    assert change.after
    copy = path + ".before-bedplate"
    before = host.permissions(path)
    assert before
    assert before.mode == 0o640
    assert host.permissions(copy) == before
    assert owned.load(host)[path]["mode"] == owned.load(host)[copy]["mode"] == "0640"
    assert not [name for found in owned.differences(host).values() for name in found]
    removal.files(host, [], check=False)
    assert host.read(path) == text
    assert host.permissions(path) == before
    assert not host.exists(copy)


@pytest.mark.parametrize(
    ("path", "text"), [(PATH, THEIRS), (docker_config.PATH, "{}\n")], ids=["toml", "json"]
)
def test_a_copy_of_an_earlier_run_is_recorded_and_goes_with_a_reset(
    host: Host, path: str, text: str
) -> None:
    host.write(path, text)
    adopt(host, path)
    host.remove(owned.RECORD)
    assert adopt(host, path) == []
    removal.files(host, [], check=False)
    assert not host.exists(path + ".before-bedplate")
    assert host.exists(path)  # which nobody knows to have been made by us


def test_owner_and_mode_of_a_file_are_kept(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr("os.chown", lambda _path, user, group: given.append((user, group)))
    host.write(PATH, THEIRS, like=Permissions(0o600, 1234, 5678))
    assert given == [(1234, 5678)]
    host.write(docker_config.PATH, "{}")
    assert given == [(1234, 5678)]


def reset(host: Host) -> removal.Outcome:
    outcome = removal.files(host, [], check=True)
    assert removal.files(host, [], check=False) == outcome
    return outcome


MORE = '\n[plugins.mine]\n  root = "/data"\n'


def test_a_reset_leaves_what_the_user_wrote_after_us_into_containerds_file(host: Host) -> None:
    host.write(PATH, THEIRS)
    adopt(host, PATH)
    host.write(PATH, (host.read(PATH) or "") + MORE)
    assert adopt(host, PATH) == []
    assert f"{PATH}: what was added is taken out" in reset(host).changes
    assert host.read(PATH) == THEIRS + MORE


def test_a_file_that_took_the_place_of_ours_is_not_removed_with_it(host: Host) -> None:
    adopt(host, PATH)
    host.write(PATH, THEIRS)
    adopt(host, PATH)
    reset(host)
    assert host.read(PATH) == THEIRS


@pytest.mark.parametrize(
    ("edited", "left"),
    [
        (f'imports = ["{PATTERN}", "/mine.toml"]\n', 'imports = ["/mine.toml"]\n'),
        (f"imports = ['/a', '{PATTERN}', '/b']\n", "imports = ['/a', '/b']\n"),
        (f'imports = [\n  "/a",\n  "{PATTERN}",\n]\n', 'imports = [\n  "/a",\n  \n]\n'),
        (f'imports = ["{PATTERN}"] # mine\n', "imports = [] # mine\n"),
        (f'# imports = ["{PATTERN}"]\n', f'# imports = ["{PATTERN}"]\n'),
    ],
)
def test_our_import_is_found_among_the_users(edited: str, left: str) -> None:
    assert containerd_config.without_import(edited, PATTERN) == left


def test_a_reset_leaves_what_the_user_wrote_after_us_into_dockers_file(host: Host) -> None:
    def edit(**more: Any) -> None:
        have = json.loads(host.read(docker_config.PATH) or "{}")
        host.write(docker_config.PATH, json.dumps({**have, **more}))

    edit(**{"default-runtime": "runc"})
    docker_config.ensure(host, WISH)
    edit(debug=True, runtimes={**WISH["runtimes"], "kata": {"path": "/kata"}})
    docker_config.ensure(host, {**WISH, "default-runtime": "nvidia", "features": {"cdi": True}})
    assert f"{docker_config.PATH}: what was added is taken out" in reset(host).changes
    assert json.loads(host.read(docker_config.PATH) or "") == {
        "default-runtime": "runc",
        "debug": True,
        "runtimes": {"kata": {"path": "/kata"}},
    }


def test_a_file_of_dockers_that_came_with_us_goes_if_nothing_else_is_in_it(host: Host) -> None:
    docker_config.ensure(host, WISH)
    assert reset(host).changes == [f"{docker_config.PATH}: removed"]
    assert not host.exists("/etc")
    docker_config.ensure(host, WISH)
    host.write(docker_config.PATH, json.dumps({**WISH, "debug": True}))
    reset(host)
    assert json.loads(host.read(docker_config.PATH) or "") == {"debug": True}


@pytest.mark.parametrize("text", ["{", json.dumps({"runtimes": {"nvidia": {"path": "/mine"}}})])
def test_where_ours_cannot_be_told_apart_the_file_stays_and_is_named(host: Host, text: str) -> None:
    docker_config.ensure(host, WISH)
    host.write(docker_config.PATH, text)
    assert reset(host).kept == [f"{docker_config.PATH}: edited since"]
    assert host.read(docker_config.PATH) == text


def test_what_the_user_says_too_is_not_ours_to_take(host: Host) -> None:
    host.write(docker_config.PATH, json.dumps({"features": {"cdi": True}}))
    docker_config.ensure(host, {**WISH, "features": {"cdi": True}})
    host.write(docker_config.PATH, (host.read(docker_config.PATH) or "") + "\n")
    reset(host)
    assert json.loads(host.read(docker_config.PATH) or "") == {"features": {"cdi": True}}
