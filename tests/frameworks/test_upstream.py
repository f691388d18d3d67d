"""The names of JupyterHub and KubeSpawner that nobody promises are there, as they are used."""

from __future__ import annotations

import subprocess

import pytest

from tests.environments import python
from tests.frameworks.hub import PACKAGES

#: By name, what holds in the pinned releases.
HOLDS = {
    "start": "str(signature(K._start)) == '(self)' and iscoroutinefunction(K._start)",
    "start-is-called": "'self._start()' in getsource(K.start)",
    "start-future": "'self._start_future = ' in getsource(K.start)",
    "create": "[*signature(K._make_create_pod_request).parameters]"
    " == ['self', 'pod', 'request_timeout']",
    "create-tells": "'return True' in getsource(K._make_create_pod_request)",
    "watch-pods": "len(signature(K._start_watching_pods).parameters) == 2",
    "watch-events": "len(signature(K._start_watching_events).parameters) == 2",
    "last-event": "'self._last_event' in getsource(K.events.fget)",
    "address": "[*signature(K._get_pod_url).parameters] == ['self', 'pod']",
    "token": "orm.APIToken.token.fset and [*signature(orm.APIToken.find).parameters][:2]"
    " == ['db', 'token']",
    "secret": "'secret' in orm.OAuthClient.__table__.columns",
    "hash": "len(signature(hash_token).parameters) == 4",
    "group": "orm.Group.find and orm.Group.users",
}
ASKS = """
import sys
from inspect import getsource, iscoroutinefunction, signature
from jupyterhub import orm
from jupyterhub.utils import hash_token
from kubespawner import KubeSpawner as K
for name, holds in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        print(name, bool(eval(holds)))
    except Exception as error:
        print(name, repr(error))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """What the hub's own Python says of each."""
    words = [word for pair in HOLDS.items() for word in pair]
    command = [str(python(PACKAGES)), "-c", ASKS, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", HOLDS)
def test_a_name_that_nobody_promises_is_there(name: str, answers: dict[str, str]) -> None:
    assert answers[name] == "True"
