"""Images in a node's runtime: pulled by digest, then tagged; what fails says why."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from bedplate.portable.host import Host, Result
from bedplate.portable.runtime import images
from bedplate.portable.runtime.images import ImageError, ensure_images

if TYPE_CHECKING:
    from collections.abc import Sequence

PAUSE, OTHER = "registry.k8s.io/pause:3.10.2", "registry.k8s.io/etcd:3.6.8-0"
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class Runtime:
    """containerd as crictl and ctr see it: repository digests, and tags of them."""

    def __init__(self, *, serves: bool = True, tags: bool = True) -> None:
        self.serves, self.can_tag = serves, tags
        self.images: dict[str, set[str]] = {}
        self.busy = self.unheard = 0
        self.ran: list[tuple[str, ...]] = []
        self.lock = threading.Lock()

    def __call__(
        self, argv: Sequence[str], _timeout: float, _environment: dict[str, str] | None = None
    ) -> Result:
        with self.lock:
            return self._run(list(argv))

    def _run(self, argv: list[str]) -> Result:
        self.ran.append(tuple(argv))
        if argv[:2] == ["crictl", "images"]:
            tagged = any(self.images.values())
            self.unheard -= tagged
            listed = [
                {"repoDigests": [digest], "repoTags": sorted(tags)}
                for digest, tags in self.images.items()
                if not (tagged and self.unheard >= 0)
            ]
            return Result(0, json.dumps({"images": listed}), "")
        if argv[:2] == ["crictl", "pull"]:
            if self.busy:
                self.busy -= 1
                return Result(1, "", "unexpected status: 429 Too Many Requests")
            if not self.serves:
                return Result(1, "", f"{argv[2]}: not found")
            if "@" in argv[2]:
                self.images.setdefault(argv[2], set())
            else:
                self.images[f"{argv[2].rpartition(':')[0]}@{TWO}"] = {argv[2]}
            return Result(0, "", "")
        if argv[0] == "ctr" and self.can_tag:
            source, tag = argv[-2:]
            for tags in self.images.values():
                tags.discard(tag)
            self.images[source].add(tag)
            return Result(0, "", "")
        return Result(127, "", "ctr: command not found")

    def verbs(self) -> list[str]:
        """Name what was asked beside listing and the runtime's name."""
        return [
            argv[1] if argv[0] == "crictl" else "tag"
            for argv in self.ran
            if argv[1] not in ("images", "version")
        ]


class Crio(Runtime):
    """CRI-O as crictl sees it: a tag comes by its pull, with the bytes that the registry has."""

    def _run(self, argv: list[str]) -> Result:
        if argv == ["crictl", "version"]:
            return Result(0, "Version:  0.1.0\nRuntimeName:  cri-o\nRuntimeVersion:  1.36.1\n", "")
        if argv[:2] == ["crictl", "rmi"]:
            self.ran.append(tuple(argv))
            for tags in self.images.values():
                tags.discard(argv[2])
            return Result(0, "", "")
        return super()._run(argv)


def test_an_image_is_pulled_by_digest_and_gets_its_tag() -> None:
    runtime = Runtime()
    assert ensure_images(Host("/", runtime), {PAUSE: ONE}) == [PAUSE]
    assert runtime.images == {f"registry.k8s.io/pause@{ONE}": {PAUSE}}
    assert ("crictl", "pull", f"registry.k8s.io/pause@{ONE}") in runtime.ran
    runtime.ran.clear()
    assert ensure_images(Host("/", runtime), {PAUSE: ONE}) == []
    assert runtime.verbs() == []


def test_a_tag_of_other_bytes_is_moved_to_the_right_ones() -> None:
    runtime = Runtime()
    runtime.images = {f"registry.k8s.io/pause@{TWO}": {PAUSE}}
    assert ensure_images(Host("/", runtime), {PAUSE: ONE, OTHER: TWO}) == [OTHER, PAUSE]
    assert runtime.images[f"registry.k8s.io/pause@{ONE}"] == {PAUSE}
    assert runtime.images[f"registry.k8s.io/pause@{TWO}"] == set()


def test_without_a_digest_the_tag_is_pulled() -> None:
    runtime = Runtime()
    assert ensure_images(Host("/", runtime), {PAUSE: ""}) == [PAUSE]
    assert runtime.verbs() == ["pull"]


def test_where_no_client_tags_the_tag_is_pulled_and_compared() -> None:
    runtime = Crio(tags=False)
    assert ensure_images(Host("/", runtime), {PAUSE: TWO}) == [PAUSE]
    assert runtime.verbs() == ["pull"]
    assert ("crictl", "pull", PAUSE) in runtime.ran


def test_other_bytes_do_not_keep_a_tag_that_was_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "SETTLING", ())
    runtime = Crio(tags=False)
    with pytest.raises(ImageError) as caught:
        ensure_images(Host("/", runtime), {PAUSE: ONE})
    assert str(caught.value) == (
        f"the image is not known by its tag — {PAUSE} — got {TWO} / allowed {ONE} — Have the "
        "registry or mirror serve that image by this tag, or run 'bedplate mirror resolve' for the "
        "one that it serves now."
    )
    assert runtime.verbs() == ["pull", "rmi"]
    assert runtime.images == {f"registry.k8s.io/pause@{TWO}": set()}


def test_a_pull_that_fails_names_the_file_of_its_runtime() -> None:
    with pytest.raises(ImageError, match=r"registry and /etc/containers/registries\.conf\.d, and"):
        ensure_images(Host("/", Crio(serves=False)), {PAUSE: ONE})


def test_check_mode_only_looks() -> None:
    runtime = Runtime()
    assert ensure_images(Host("/", runtime), {PAUSE: ONE}, check=True) == [PAUSE]
    assert runtime.verbs() == []


UNSERVED = (
    f"the image cannot be pulled — registry.k8s.io/pause@{ONE} — got registry.k8s.io/pause@{ONE}: "
    "not found / allowed an image that its registry or mirror serves — Check the registry and "
    f"/etc/containerd/certs.d, and try: crictl pull registry.k8s.io/pause@{ONE}"
)
UNTAGGED = (
    f"the image gets no tag — {PAUSE} — got ctr: command not found / allowed containerd with its "
    "client ctr — Try it by hand: ctr --namespace k8s.io images tag --force "
    f"registry.k8s.io/pause@{ONE} {PAUSE}"
)


@pytest.mark.parametrize(
    ("runtime", "said"), [(Runtime(serves=False), UNSERVED), (Runtime(tags=False), UNTAGGED)]
)
def test_what_fails_says_why(runtime: Runtime, said: str) -> None:
    with pytest.raises(ImageError) as caught:
        ensure_images(Host("/", runtime), {PAUSE: ONE})
    assert str(caught.value) == said


def test_a_pull_that_a_busy_registry_refuses_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images, "AGAIN", (0.0, 0.0))
    runtime = Runtime()
    runtime.busy = 2
    assert ensure_images(Host("/", runtime), {PAUSE: ONE}) == [PAUSE]
    assert runtime.verbs() == ["pull", "pull", "pull", "tag"]


def test_a_tag_that_the_runtime_hears_of_later_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images, "SETTLING", (0.0, 0.0, 0.0))
    runtime = Runtime()
    runtime.unheard = 2
    assert ensure_images(Host("/", runtime), {PAUSE: ONE}) == [PAUSE]


def test_check_mode_on_a_bare_host_foresees_all() -> None:
    def bare(
        argv: Sequence[str], _timeout: float, _environment: dict[str, str] | None = None
    ) -> Result:
        return Result(127, "", f"{argv[0]}: command not found")

    assert ensure_images(Host("/", bare), {PAUSE: ONE}, check=True) == [PAUSE]


def test_a_runtime_that_does_not_answer_is_named() -> None:
    def silent(
        argv: Sequence[str], timeout: float, environment: dict[str, str] | None = None
    ) -> Result:
        return Result(1, "", "connection refused")

    with pytest.raises(ImageError, match=r"does not list its images.*connection refused"):
        ensure_images(Host("/", silent), {PAUSE: ONE})
