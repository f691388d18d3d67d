"""Images in the node's runtime, asked for and pulled as kubelet would."""

import json
from typing import List, NamedTuple

from ..host import Host
from ..message import problem


class ImageError(Exception):
    """An image that cannot be asked for or pulled; the text says how to fix it."""


class Outcome(NamedTuple):
    """Whether the image was (or would be) pulled, and the digests under which it is known."""

    changed: bool
    digests: List[str]


def known_digests(host: Host, image: str) -> List[str]:
    """The repository digests of ``image`` in the runtime; empty if it isn't there."""
    answer = host.run(["crictl", "inspecti", "--output", "json", image])
    if answer.code != 0:
        return []
    try:
        return sorted(json.loads(answer.out)["status"]["repoDigests"])
    except (ValueError, KeyError, TypeError):
        return []


def ensure_image(host: Host, image: str, check: bool = False) -> Outcome:
    """Have ``image`` (a name with a tag or a digest) in the runtime.

    Raises:
        ImageError: the pull failed, or gave another digest than the name says.
    """
    digests = known_digests(host, image)
    if digests:
        return Outcome(False, digests)
    if check:
        return Outcome(True, [])
    answer = host.run(["crictl", "pull", image], 600)
    digests = known_digests(host, image)
    if answer.code != 0 or not digests:
        raise ImageError(
            problem(
                "the image cannot be pulled",
                image,
                answer.said,
                "an image that its registry or mirror serves",
                f"Check the name and /etc/containerd/certs.d, and try: crictl pull {image}",
            )
        )
    return Outcome(True, digests)
