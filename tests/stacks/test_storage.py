"""The component of homes and datasets under Pulumi's mocks."""

from __future__ import annotations

from typing import Any

import pulumi

from bedplate.components.frameworks.storage import Storage
from bedplate.lock import load_lock
from tests.stacks.test_components import run
from tests.substrate.demo import SITE


def test_more_students_later_do_not_stop_the_next_run() -> None:
    """The API server refuses another size of a bound claim, and a size limits nothing here."""
    kept: dict[str, list[str]] = {}

    def seen(args: pulumi.ResourceTransformationArgs) -> None:
        kept[args.type_] = args.opts.ignore_changes or []

    def program() -> dict[str, pulumi.Output[Any]]:
        options = pulumi.ResourceOptions(transformations=[seen])
        return {"courses": Storage("s", {"lock": load_lock(SITE), "image": "i"}, options).courses}

    _, outputs = run(program)
    assert outputs["courses"] == (["intro", "seminar"], False)
    assert kept["kubernetes:core/v1:PersistentVolumeClaim"] == ["spec.resources"]
    assert kept["kubernetes:core/v1:PersistentVolume"] == ["spec.capacity"]
