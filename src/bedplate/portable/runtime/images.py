"""Images in the node's runtime, asked for and pulled as kubelet would, each by its digest."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Mapping, NamedTuple, Set

from ..host import Host
from ..message import problem

#: How many images come at once.
AT_ONCE = 4
SECONDS = 900
#: Seconds before a pull is tried again that failed for what passes: many hosts ask one registry.
AGAIN = (5.0, 15.0)
TRANSIENT = re.compile(
    r"429|50[0234]|too many requests|timeout|timed out|connection re(set|fused)|EOF", re.IGNORECASE
)
#: Seconds between looks at the list of images after tags were set.
SETTLING = (0.2, 0.5, 1.0, 2.0, 4.0)
#: containerd's own client: crictl cannot tag. Kubernetes' images have a namespace of their own.
TAG = ("ctr", "--namespace", "k8s.io", "images", "tag", "--force")
#: CRI-O has no client that tags. There the tag is pulled, and refused where it is of other bytes.
TAGS_BY_PULLS = "cri-o"
_RUNTIME = re.compile(r"^RuntimeName:\s*(\S+)$", re.MULTILINE)


class ImageError(Exception):
    """An image that cannot be pulled or tagged; the text says how to fix it."""


class Known(NamedTuple):
    """What the runtime has: tags, and for each the digests it stands for; digests by themselves."""

    tags: Dict[str, Set[str]]
    digests: Set[str]


def known_images(host: Host) -> Known:
    """Return the images that the runtime has.

    Raises:
        ImageError: it does not answer.
    """
    answer = host.run(["crictl", "images", "--output", "json"])
    found = Known({}, set())
    try:
        for image in json.loads(answer.out)["images"]:
            digests = {str(one) for one in image.get("repoDigests") or ()}
            found.digests.update(digests)
            for tag in image.get("repoTags") or ():
                found.tags.setdefault(str(tag), set()).update(
                    one.rpartition("@")[2] for one in digests
                )
    except (ValueError, KeyError, TypeError):
        raise ImageError(
            problem(
                "the container runtime does not list its images",
                "crictl images",
                answer.said,
                "its images as JSON",
                "See that the runtime runs: crictl info",
            )
        ) from None
    return found


def by_digest(name: str, digest: str) -> str:
    """``repository@digest`` of an image's name with a tag; the name itself without a digest."""
    return "{}@{}".format(name.rpartition(":")[0], digest) if digest else name


def ensure_images(host: Host, images: Mapping[str, str], check: bool = False) -> List[str]:
    """Have images (digest, or an empty text, by name with tag) in the runtime; return the lacking.

    Raises:
        ImageError: a pull failed, or gave another digest, or a tag could not be set.
    """
    try:
        known = known_images(host)
    except ImageError:
        if check:  # a bare host has no runtime yet, and no images
            return sorted(images)
        raise
    lacking = [name for name in sorted(images) if not _there(known, name, images[name])]
    if check or not lacking:
        return lacking
    said = _RUNTIME.search(host.run(["crictl", "version"]).out)
    by_pull = said is not None and said.group(1) == TAGS_BY_PULLS
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda name: _have(host, known, name, images[name], by_pull), lacking))
    after = _settled(host, {name: images[name] for name in lacking})
    for name in lacking:
        if _there(after, name, images[name]):
            continue
        fix = "Look at it with: crictl images --digests"
        if by_pull and name in after.tags:
            # Whoever asks for the tag must not get these bytes.
            host.run(["crictl", "rmi", name])
            fix = "Have the registry or mirror serve that image by this tag, or run "
            fix += "'bedplate mirror resolve' for the one that it serves now."
        raise ImageError(
            problem(
                "the image is not known by its tag",
                name,
                ", ".join(sorted(after.tags.get(name, ()))) or "no such tag",
                images[name] or "a tag",
                fix,
            )
        )
    return lacking


def _settled(host: Host, images: Mapping[str, str]) -> Known:
    """What the runtime has once it knows the new tags: it hears of them by an event."""
    for pause in (*SETTLING, None):
        known = known_images(host)
        if pause is None or all(_there(known, name, images[name]) for name in images):
            break
        time.sleep(pause)
    return known


def _there(known: Known, name: str, digest: str) -> bool:
    return name in known.tags and (not digest or digest in known.tags[name])


def _have(host: Host, known: Known, name: str, digest: str, by_pull: bool) -> None:
    wanted = name if by_pull else by_digest(name, digest)
    if not digest or wanted not in known.digests:
        for pause in (*AGAIN, None):
            answer = host.run(["crictl", "pull", wanted], SECONDS)
            if answer.code == 0 or pause is None or not TRANSIENT.search(answer.err + answer.out):
                break
            time.sleep(pause)
        if answer.code != 0:
            raise ImageError(
                problem(
                    "the image cannot be pulled",
                    wanted,
                    answer.said,
                    "an image that its registry or mirror serves",
                    "Check the registry and {}, and try: crictl pull {}".format(
                        "/etc/containers/registries.conf.d"
                        if by_pull
                        else "/etc/containerd/certs.d",
                        wanted,
                    ),
                )
            )
    if digest and not by_pull:
        answer = host.run([*TAG, wanted, name], SECONDS)
        if answer.code != 0:
            raise ImageError(
                problem(
                    "the image gets no tag",
                    name,
                    answer.said,
                    "containerd with its client ctr",
                    "Try it by hand: {}".format(" ".join([*TAG, wanted, name])),
                )
            )
