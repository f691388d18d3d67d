"""What JupyterHub and KubeSpawner have and do not promise: all that the hub's programs use of it.

A release may change any of it. `tests/frameworks/test_upstream.py` asks the pinned ones, name by
name.
"""

from __future__ import annotations

import asyncio
from typing import Any

from jupyterhub import orm
from jupyterhub.utils import hash_token
from kubespawner import KubeSpawner


class Upstream(KubeSpawner):  # type: ignore[misc]
    """KubeSpawner by names that stay."""

    async def begin(self) -> str:
        """Start a server and return its address, within `start`."""
        return str(await super()._start())

    async def make(self, pod: Any, request_timeout: float) -> bool:
        """Ask for a pod; False to be asked again."""
        return bool(await super()._make_create_pod_request(pod, request_timeout))

    async def _start(self) -> str:
        return await self.begin()

    async def _make_create_pod_request(self, pod: Any, request_timeout: float) -> bool:
        return await self.make(pod, request_timeout)

    async def watch(self) -> None:
        """Watch pods and events; the events until now are another start's."""
        await asyncio.gather(self._start_watching_pods(), self._start_watching_events())
        if events := self.events:
            self._last_event = events[-1]["metadata"]["uid"]

    def address_of(self, pod: dict[str, Any]) -> str:
        """Return where the notebook of a pod listens."""
        return str(self._get_pod_url(pod))

    @property
    def starting(self) -> bool | None:
        """Whether the start goes on; None where this hub process has begun none."""
        return None if self._start_future is None else not self._start_future.done()

    def adopt(self, token: str) -> None:
        """Make a token that a pod has already this server's, in place of the one just issued."""
        if orm.APIToken.find(self.db, token) is None:
            issued = orm.APIToken.find(self.db, self.api_token)
            issued.token = token
        self.orm_spawner.oauth_client.secret = hash_token(token)
        self.db.commit()


def add_to_group(db: Any, user: Any, name: str) -> None:
    """Put a user into a group, which is made where there is none."""
    group = orm.Group.find(db, name)
    if group is None:
        group = orm.Group(name=name)
        db.add(group)
    if user.orm_user not in group.users:
        group.users.append(user.orm_user)
    db.commit()
