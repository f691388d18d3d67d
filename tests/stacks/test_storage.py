"""The component of homes and datasets under Pulumi's mocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pulumi
import pytest

from bedplate.components.config import StackError
from bedplate.components.frameworks.storage import Storage
from bedplate.components.frameworks.volumes import objects, volumes_args
from bedplate.lock import load_lock
from bedplate.lock.courses import Nfs, Volume
from bedplate.lock.courses import Storage as Places
from tests.stacks.test_components import run
from tests.substrate.demo import SITE


def test_more_students_later_do_not_stop_the_next_run() -> None:
    """The API server refuses another size of a bound claim, and a size limits nothing here."""
    kept: dict[str, list[str]] = {}
    data = volumes_args(load_lock(SITE))

    def seen(args: pulumi.ResourceTransformationArgs) -> None:
        kept[args.type_] = args.opts.ignore_changes or []

    def program() -> dict[str, pulumi.Output[Any]]:
        options = pulumi.ResourceOptions(transformations=[seen])
        return {"courses": Storage("s", {"data": data, "image": "i"}, options).courses}

    _, outputs = run(program)
    assert outputs["courses"] == (["intro", "seminar"], False)
    assert kept["kubernetes:core/v1:PersistentVolumeClaim"] == ["spec.resources"]
    assert kept["kubernetes:core/v1:PersistentVolume"] == ["spec.capacity"]


def test_a_dataset_that_lies_nowhere_is_refused() -> None:
    known = volumes_args(load_lock(SITE))
    courses = {
        name: one.model_copy(update={"datasets": ["x"]}) for name, one in known.courses.items()
    }
    places = Places(datasets={"mnist": Volume(nfs=Nfs(server="nas", path="/mnist"))})
    with pytest.raises(StackError) as refused:
        objects(replace(known, courses=courses, storage=places), "i")
    assert str(refused.value) == (
        "no such dataset — course intro — got x / allowed mnist — "
        "correct the name, or say where the dataset lies"
    )
