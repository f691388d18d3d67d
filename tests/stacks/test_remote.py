"""Remote GPUs' component, and what the stack's configuration says of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pulumi.runtime import config as settings

from bedplate.components.config import StackError
from bedplate.components.frameworks import remote_install as install
from bedplate.components.frameworks.remote import RemoteGpus, remote_args
from tests.schedulers.locks import lock_of
from tests.stacks.test_components import run

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK = lock_of({"pool_a": [{}]}, {"vision": {"gpus": {"pool_a": (1, 0)}}})
DIGEST = "@sha256:" + "0" * 64
ASKED = {
    "bedplate:remoteEngine": f"engine.invalid/stand-in{DIGEST}",
    "bedplate:remoteEngineCommand": '["engine", "--host", "127.0.0.1"]',
    "bedplate:remoteImage": f"python.invalid/python{DIGEST}",
}


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    settings.set_all_config({})


def test_without_an_engine_there_is_nothing() -> None:
    settings.set_all_config({})
    assert remote_args(LOCK) is None


def test_the_component_makes_the_documents_of_the_configured_engine() -> None:
    settings.set_all_config(ASKED)
    args = remote_args(LOCK)
    assert args is not None
    assert (args["command"], args["engine_port"]) == (["engine", "--host", "127.0.0.1"], 14833)
    engine, _ = run(lambda: {"made": RemoteGpus("remote", args).urn})
    made = {kind.rpartition(":")[2] for kind in engine.seen}
    assert (sorted(args["teams"]), args["resources"]) == (["vision"], ["nvidia.com/gpu"])
    given = install.settings(args["teams"], args["resources"], args["engine"], args["python"])
    wanted = install.objects(args["teams"], given)
    assert made == {one["kind"] for one in wanted}
    (container,) = engine.one("kubernetes:apps/v1:Deployment").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == args["python"]


def test_a_team_that_can_have_none_is_refused_without_a_traceback() -> None:
    settings.set_all_config(ASKED)
    args = remote_args(lock_of({"pool_a": [{}]}, {"v" * 60: {"gpus": {"pool_a": (1, 0)}}}))
    assert args is not None
    with pytest.raises(StackError, match=r"too long.*67 characters in remote-vvv"):
        run(lambda: {"made": RemoteGpus("remote", args).urn})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        # A tag is what is refused here: an engine is named by its digest.
        ({"bedplate:remoteEngine": "engine:1"}, "got engine:1 / allowed NAME@sha256:…"),
        ({"bedplate:remoteImage": ""}, "bedplate:remoteImage — got nothing / allowed NAME@sha256"),
        ({"bedplate:remoteEngineCommand": '"engine"'}, "got engine / allowed a list of words"),
        ({"bedplate:remoteEnginePort": "7443"}, "got 7443 / allowed 1 to 65535 without 7443"),
        ({"bedplate:remoteEnginePort": "70000"}, "got 70000 / allowed 1 to 65535 without 7443"),
    ],
)
def test_what_no_engine_could_be_started_with_is_refused(
    changed: dict[str, str], message: str
) -> None:
    settings.set_all_config({**ASKED, **changed})
    with pytest.raises(StackError) as refused:
        remote_args(LOCK)
    assert message in str(refused.value)
