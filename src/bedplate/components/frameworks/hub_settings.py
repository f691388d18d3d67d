"""What the hub is told of the lock: its file of settings, and its secrets. Pure functions."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from bedplate.components.frameworks import hub_objects, volumes
from bedplate.components.schedulers.topology import POOL_LABEL
from bedplate.courses.fractions import FRACTION
from bedplate.lock import builds, claims
from bedplate.lock.taints import tolerations
from bedplate.pods.hub.memory import SHM, shm_volume

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bedplate.lock import Lock
    from bedplate.lock.courses import Course, Hub
    from bedplate.lock.model import Framework

    #: What a profile starts; None is Python alone.
    Runs = Framework | builds.Own | None

GROUP: Final = "group:"
CODE_LENGTH: Final = 10
PASSWORD_LENGTH: Final = 20
OAUTH_SECRET: Final = "oauth-client-secret"  # noqa: S105 - a name


def courses_of(lock: Lock) -> dict[str, Course]:
    """Return the courses by name."""
    return lock.cluster.courses if lock.cluster else {}


def settings(
    lock: Lock, image: Callable[[str], str], refused: Collection[str] = ()
) -> dict[str, Any]:
    """Return the content of the hub's file; `image` finds an image by the catalogue's name.

    Own images that are *refused*, by name, are offered to nobody.
    """
    hub = _hub(lock)
    given = {"oauth": hub.oauth, "lti": hub.lti}.get(hub.sign_in)
    told = given.model_dump() if given else {}
    return {
        "zone": hub.timezone,
        "sign_in": hub.sign_in,
        "sign_in_settings": {**told, "url": hub.url} if told else {},
        "admins": hub.admins,
        "courses": {
            name: _course(lock, name, course, image, refused)
            for name, course in sorted(courses_of(lock).items())
        },
        "service": {
            "hub_url": f"http://{hub_objects.HUB}.{hub_objects.NAMESPACE}:{hub_objects.HUB_PORT}",
            "shares_url": hub_objects.SHARES_URL,
            "proxy_api_url": f"http://proxy-api:{hub_objects.PROXY_API}",
            "state": hub_objects.STATE,
        },
    }


def _hub(lock: Lock) -> Hub:
    if lock.cluster is None or lock.cluster.hub is None:
        raise AssertionError("the stack makes a hub where there are courses alone")
    return lock.cluster.hub


def _course(
    lock: Lock,
    name: str,
    course: Course,
    image: Callable[[str], str],
    refused: Collection[str],
) -> dict[str, Any]:
    data = volumes.of_course(lock, name)
    shm = course.notebook.shm_mib or 0
    found: Sequence[Runs] = builds.of_course(lock, course) or [None]
    several = Counter(build.name for build in found if build)
    return {
        **asked(course),
        "of": course.of or "",
        "sizes": sizes(lock, name),
        "hours": course.hours,
        "idle_timeout": course.idle_timeout_s,
        "students": course.students,
        "shares": course.per_user.shares,
        "longest": course.per_user.time_s or 0,
        "gpu_hours": course.per_user.hours or 0,
        "runs": course.seats if course.runs_at_once else 0,
        "registry_mib": course.registry_mib or 0,
        "placed": placed(lock, course),
        "material": material(course),
        "members": course.members,
        "teachers": course.teachers,
        "memory_mib": course.notebook.memory_mib or 0,
        "cpu_milli": course.notebook.cpu_milli or 0,
        "shm_mib": shm,
        "disk_mib": course.notebook.disk_mib or 0,
        "volumes": [*data["volumes"], hub_objects.magic_volume(), shm_volume(shm)],
        "mounts": [*data["volume_mounts"], hub_objects.MAGIC_MOUNT, dict(SHM)],
        "profiles": [
            {
                "slug": slug(name, build, several),
                "title": f"{name} with {told(build)}" if len(found) > 1 else name,
                "about": about(lock, course, told(build)),
                "image": image_of(lock, build, image),
                "runs": slug(name, runs_of(build, found), several),
                "environment": {
                    **environment(course, build),
                    **package_mirrors(lock),
                    "BEDPLATE_SHARES_URL": f"{hub_objects.SHARES_URL}/services/shares/{name}",
                    "PYTHONPATH": hub_objects.MAGIC_MOUNT["mountPath"],
                    "JUPYTER_CONFIG_PATH": hub_objects.JUPYTER,
                    "JUPYTER_PATH": hub_objects.JUPYTER,
                },
            }
            for build in found
            if not (isinstance(build, builds.Own) and build.name in refused)
        ],
    }


def sizes(lock: Lock, name: str) -> list[str]:
    """Name the further sizes of a course: each is a course of the hub."""
    return sorted(size for size, one in courses_of(lock).items() if one.of == name)


def told(build: Runs) -> str:
    """Return what users call a build, its framework and version; an own image has its name."""
    if isinstance(build, builds.Own):
        return build.name
    return f"{build.name} {build.version}" if build else "Python"


def image_of(lock: Lock, build: Runs, image: Callable[[str], str]) -> str:
    """Return the image of a profile with its digest: an own one as the site names it."""
    if not isinstance(build, builds.Own):
        return image(builds.notebook(build))
    if lock.cluster is None:
        raise AssertionError("a lock with courses has a cluster")
    return lock.cluster.images[build.name].image


def slug(course: str, build: Runs, several: Mapping[str, int]) -> str:
    """Return the name of a profile; a version is in it where the course has two of a framework.

    Notebooks that are stopped keep it: a new version of the framework is no other profile. Names
    of images and of courses may have a hyphen: two of them keep one from being another's.
    """
    if build is None:
        return f"{course}-base"
    if isinstance(build, builds.Own):
        return f"{course}--{build.name}"
    version = f"-{build.version.replace('.', '-')}" if several[build.name] > 1 else ""
    return f"{course}-{build.name}{version}"


def runs_of(build: Runs, found: Sequence[Runs]) -> Runs:
    """Return what a notebook's runs by %%share are started in: of a CPU build, one for GPUs."""
    if build is None or isinstance(build, builds.Own) or build.cuda:
        return build
    return builds.with_gpu(build, [one for one in found if one is not None]) or build


def placed(lock: Lock, course: Course) -> dict[str, Any]:
    """Return what keeps notebooks without a GPU on the pool's nodes, where images and data are.

    Those with a GPU have it of the queue's flavour.
    """
    if not course.runs_at_once:
        return {}
    found: dict[str, Any] = {"node_selector": {POOL_LABEL: course.pool}}
    tolerated = tolerations(lock, [course.pool])
    return found | ({"tolerations": tolerated} if tolerated else {})


def asked(course: Course) -> dict[str, Any]:
    """Return what a student's pod asks for, as the hub's file has it."""
    if course.share.memory_mib is None:
        return {"limits": {course.share.resource: str(course.share.count)}}
    return {"limits": {claims.RESOURCE: "1"}, "claim": claims.template(course)}


def about(lock: Lock, course: Course, has: str) -> str:
    """Return what a student gets, with the numbers."""
    pools, count = [lock.pools[name] for name in course.pools], course.share.count
    model = " or ".join(dict.fromkeys(one.gpu[0].model if one.gpu else "GPU" for one in pools))
    # The smallest part: more is nobody's promise.
    replicas = max(one.sharing.replicas or 0 for one in pools) or None
    each = (
        f"{count} x {model}" if replicas is None else f"{count} of {replicas} shares of a {model}"
    )
    if course.share.memory_mib is not None:
        each = f"{course.share.memory_mib} MiB of a {model}"
    memory = f", {course.share.user_mib} MiB for your program" if course.share.user_mib else ""
    if course.notebook.memory_mib:
        memory += f", {course.notebook.memory_mib} MiB of memory"
    if course.notebook.disk_mib:
        memory += f", {course.notebook.disk_mib} MiB of disk"
    has = f"{has[:1].upper()}{has[1:]}"
    home = f", {course.storage_mib} MiB of home" if course.storage_mib else ""
    if course.at_once:
        home += f", for {course.seats} at a time"
    if course.runs_at_once:
        return f"{has} without a GPU{home}. A run by %%share has {each}{memory}."
    return f"{has} on {each}{memory}{home}."


def material(course: Course) -> list[str]:
    """Return nbgitpuller's command: it fetches the material, and keeps what a student changed."""
    if course.material is None:
        return []
    address, _, branch = course.material.partition("#")
    folder = address.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return ["gitpuller", address, branch, f"{volumes.HOME}/{folder}"]


def environment(course: Course, build: Runs) -> dict[str, str]:
    """Return the variable by which a framework keeps to its share, where it has one.

    What the framework itself takes is no part of it: with that, it would take more than its share.
    An own image has those of all frameworks: it may hold any.
    """
    part = course.share.user_part
    if part is None or build is None:
        return {}
    names = FRACTION if isinstance(build, builds.Own) else {build.name} & set(FRACTION)
    return {FRACTION[name]: f"{part:g}" for name in names}


def package_mirrors(lock: Lock) -> dict[str, str]:
    """Return the variables by which pip and conda in a notebook install from the site's mirrors.

    They come before files of the image or the home; a student may still name another index.
    """
    pip, conda = lock.sources.pip, lock.sources.conda
    found = {"PIP_INDEX_URL": pip} if pip else {}
    if conda:
        found |= {"CONDA_CHANNEL_ALIAS": conda, "CONDA_CHANNELS": "conda-forge"}
    return found


def enrolled(lock: Lock) -> list[str]:
    """Name the courses that have a code: a size has that of its course."""
    return [name for name, one in courses_of(lock).items() if not one.of]


def named(lock: Lock) -> list[str]:
    """Name the users whom the site lists by name: they get accounts of the native sign-in."""
    listed = set(_hub(lock).admins)
    for course in courses_of(lock).values():
        listed |= {*course.members, *course.teachers}
    return sorted(name for name in listed if not name.startswith(GROUP))


def derived(seed: str, purpose: str) -> bytes:
    """Return a secret for one purpose: the same seed gives the same, nobody else finds it."""
    return hmac.new(seed.encode(), purpose.encode(), hashlib.sha256).digest()


def secrets(lock: Lock, seed: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the files of the hub's Secret: `given` are those of the stack's configuration."""
    found = {
        "proxy-token": derived(seed, "proxy token").hex(),
        "cookie-secret": derived(seed, "cookie secret").hex(),
        "crypt-key": derived(seed, "crypt key").hex(),
        **given,
    }
    if _hub(lock).sign_in == "native":
        found |= {f"code-{name}": code(seed, name) for name in enrolled(lock)}
        found |= {f"account-{name}": password(seed, name) for name in named(lock)}
    return found


def code(seed: str, course: str) -> str:
    """Return the code with which students of a course sign up: letters and digits to read out."""
    return base64.b32encode(derived(seed, f"code of {course}")).decode()[:CODE_LENGTH]


def password(seed: str, user: str) -> str:
    """Return the first password of a user whom the site names."""
    made = base64.urlsafe_b64encode(derived(seed, f"password of {user}")).decode()
    return made.replace("-", "x").replace("_", "y")[:PASSWORD_LENGTH]
