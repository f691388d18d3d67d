"""A registry of courses as a pod: a teacher pushes, and a student's notebook is what was pushed."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml

from bedplate.components.frameworks import hub_objects, hub_registry
from tests.frameworks.hub import PASSWORD, Browser
from tests.frameworks.test_push import made
from tests.mixes.living import Mix, installed, living
from tests.mixes.pods import mode
from tests.site.cluster import wait_for
from tests.site.hosts import on_host
from tests.substrate.commands import STACKS, SiteCommands
from tests.substrate.demo import outputs
from tests.substrate.internet.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import CompletedProcess

HOST, ADDRESS = "one", "10.213.23.11"
COURSE, SMALL, SMALL_MIB = "intro", "small", 20
CERTIFICATE = ".tls/hub.pem"
#: Below the authority's folder: its certificate alone, as skopeo wants it.
CLIENTS = "clients"
#: What the teacher pushes: a notebook from elsewhere.
NOTEBOOK = "quay.io/jupyter/base-notebook:2026-08-24"
IMAGE = "mycourse"
UNKNOWN = "certificate signed by unknown authority"


def course(name: str, size: str, **more: Any) -> dict[str, Any]:
    """Return a course of ada's whose students have no home."""
    common = {"students": 2, "share": 0.1, "pool": "pool_gpu", "teachers": ["ada"]}
    return {"name": name, **common, "registry": {"size": size}, **more}


COURSES = (course(COURSE, "2Gi"), course(SMALL, f"{SMALL_MIB}Mi"))
SITE = Mix(
    "registry",
    "10.213.23.0/25",
    [HOST],
    [HOST],
    gpu={"model": "t4-16gb", "count": 1},
    settings={
        "bedplate_preset": "classroom",
        "bedplate_hpc_tools": False,
        "bedplate_hub": {"url": f"https://{ADDRESS}", "certificate": CERTIFICATE},
        "bedplate_courses": list(COURSES),
    },
)


@dataclass
class Pushing:
    """The site's registry from outside: who has which token of its hub."""

    site: SiteCommands
    authority: Authority
    told: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.told["hub_registry"])

    @property
    def trusted(self) -> str:
        return str(self.authority.folder / CLIENTS)

    def browser(self, user: str, password: str) -> Browser:
        """Return a user who is signed in."""
        found = Browser(f"{self.told['hub']}/hub")
        found.session.verify = str(self.authority.certificate)
        found.session.trust_env = False  # variables of this machine would come first
        if user not in self.told["hub_passwords"]:
            found.sign_up(user, self.told["hub_codes"][COURSE])
        found.login(user, password)
        return found

    def token(self, browser: Browser, user: str) -> str:
        """Make a token, as a user does on the hub's page."""
        return str(asks(browser, f"users/{user}/tokens", {"note": "skopeo"})["token"])

    def skopeo(self, verb: str, *words: str) -> CompletedProcess[str]:
        """Run skopeo, for which the vendors' registries are the stand-in."""
        assert self.site.internet is not None
        command = self.site.internet.command(["skopeo", "--insecure-policy", verb, *words])
        return self.site.run(f"skopeo {verb}", command, quiet=True, check=False)

    def push(self, source: str, image: str, token: str) -> str:
        """Push an image, and return what went wrong."""
        trust = ["--dest-cert-dir", self.trusted, "--dest-creds", f"any:{token}"]
        done = self.skopeo("copy", *trust, source, f"docker://{self.name}/{image}")
        return done.stdout if done.returncode else ""

    def digest(self, image: str) -> str:
        """Return the digest that anybody reads of a tag, or what is wrong."""
        trust = ["--cert-dir", self.trusted, "--no-creds"]
        words = ("--format", "{{.Digest}}", f"docker://{self.name}/{image}")
        return self.skopeo("inspect", *trust, *words).stdout.strip()


def asks(browser: Browser, path: str, body: Any) -> Any:
    """Ask the hub's API as its page does."""
    token = next(one.value for one in browser.session.cookies if one.name == "_xsrf")
    url, headers = f"{browser.url}/api/{path}", {"X-XSRFToken": token}
    done = browser.session.post(url, json=body, headers=headers, timeout=60)
    done.raise_for_status()
    return done.json() if done.content else None


def certified(site: SiteCommands, folder: Path) -> Authority:
    """Give the hub a certificate by an authority that no host trusts."""
    authority = Authority(folder / "tls")
    authority.context([ADDRESS])
    (site.site / CERTIFICATE).parent.mkdir()
    shutil.copy(authority.folder / "server.crt", site.site / CERTIFICATE)
    (authority.folder / CLIENTS).mkdir()
    shutil.copy(authority.certificate, authority.folder / CLIENTS)
    return authority


def brought_up(site: SiteCommands, key: Path) -> None:
    """Take bare hosts to the hub, as a user does."""
    installed(site)
    for stack in STACKS[1:]:
        site.select(stack)
    where = f"-C stacks/frameworks --stack {site.stack_name}"
    command = f"pulumi config set --secret bedplate:hubKey {where} < {key}"
    site.run("pulumi config", ["sh", "-c", command])
    for stack in STACKS[1:]:
        site.up(stack)


@pytest.mark.prove
def test_a_notebook_starts_from_what_its_teacher_has_pushed(tmp_path: Path) -> None:
    with living(SITE, tmp_path) as site:
        authority = certified(site, tmp_path)
        mode(site, mode="time-slicing", replicas=10)
        brought_up(site, authority.folder / "server.key")
        pushing = Pushing(site, authority, outputs(site))
        ada = pushing.browser("ada", pushing.told["hub_passwords"]["ada"])
        bob = pushing.browser("bob", PASSWORD)
        teacher, student = pushing.token(ada, "ada"), pushing.token(bob, "bob")

        who_pushes(pushing, teacher, student, tmp_path)
        digest = pushing.digest(f"{COURSE}/{IMAGE}:1")
        assert digest.startswith("sha256:")
        the_pod_ends(site)
        assert pushing.digest(f"{COURSE}/{IMAGE}:1") == digest

        reference = f"{pushing.name}/{COURSE}/{IMAGE}@{digest}"
        pull = f"crictl pull {reference} 2>&1 || true"
        assert UNKNOWN in on_host(site, HOST, pull)
        taken_over(site, reference, authority)
        assert UNKNOWN not in on_host(site, HOST, pull)
        a_notebook_of(site, bob, reference)


def who_pushes(pushing: Pushing, teacher: str, student: str, folder: Path) -> None:
    """The course's teacher, below its name, and until its size."""
    of_notebook = f"docker://{NOTEBOOK}"
    words = f"denied: bob is no teacher of course {COURSE}: only its teachers push to {COURSE}/*"
    assert words in pushing.push(of_notebook, f"{COURSE}/{IMAGE}:1", student)
    assert "manifest unknown" in pushing.digest(f"{COURSE}/{IMAGE}:1")
    assert pushing.push(of_notebook, f"{COURSE}/{IMAGE}:1", teacher) == ""
    half = SMALL_MIB * 3 // 5
    for number in range(2):
        made(folder / f"{number}", half)
    assert pushing.push(f"dir:{folder}/0", f"{SMALL}/a:1", teacher) == ""
    words = f"denied: course {SMALL} has {2 * half} MiB of its {SMALL_MIB} MiB: delete images"
    assert words in pushing.push(f"dir:{folder}/1", f"{SMALL}/a:2", teacher)


def the_pod_ends(site: SiteCommands) -> None:
    """End the registry's pod, and wait for the next one."""
    where = ("-n", hub_objects.NAMESPACE)
    of = ("-l", ",".join("=".join(one) for one in hub_objects.app(hub_registry.NAME).items()))
    before = site.kubectl("get", "pods", *where, *of, "-o", "name").stdout
    assert before.count("pod/") == 1
    done = site.kubectl("delete", "pods", *where, *of, "--timeout=60s")
    assert done.returncode == 0, done.stdout
    rollout = ("rollout", "status", f"deployment/{hub_registry.NAME}", *where)
    assert site.kubectl(*rollout, "--timeout=180s").returncode == 0
    assert site.kubectl("get", "pods", *where, *of, "-o", "name").stdout != before


def taken_over(site: SiteCommands, reference: str, authority: Authority) -> None:
    """Have the course offer the image, as an administrator does."""
    path = site.site / "group_vars/all.yml"
    settings = yaml.safe_load(path.read_text())
    settings["bedplate_images"] = {IMAGE: {"image": reference, "pool": "pool_gpu"}}
    settings["bedplate_courses"] = [COURSES[0] | {"frameworks": [IMAGE]}, COURSES[1]]
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    trusted = site.site / ".bedplate/trusted.pem"
    system = Path(site.environment()["SSL_CERT_FILE"]).read_text()
    trusted.write_text(system + authority.certificate.read_text())
    site.plan()
    site.resolve("--ca", str(trusted))
    site.playbook()
    for stack in STACKS[1:]:
        site.up(stack)


def a_notebook_of(site: SiteCommands, student: Browser, reference: str) -> None:
    """The student's server is ready, in the pushed image and no other."""
    profile = f"{COURSE}--{IMAGE}"

    def offers() -> bool:
        with suppress(requests.ConnectionError):  # the hub starts again with the course's image
            return student.profiles() == [profile]
        return False

    wait_for("the course offers the image", offers)
    asks(student, "users/bob/server", {"profile": profile})

    def ready() -> bool:
        url = f"{student.url}/api/users/bob"
        found = student.session.get(url, timeout=60).json()["servers"].get("")
        return bool(found and found["ready"])

    wait_for("bob's notebook is ready", ready, 300)
    found = site.kubectl("get", "pod", "jupyter-bob", "-n", COURSE, "-o", "json").stdout
    (status,) = json.loads(found)["status"]["containerStatuses"]
    assert status["imageID"] == reference
