"""DeletionGuard: what goes first when a cluster is destroyed, and refuses while it is in use.

The engine deletes what depends on others first: nodes go before the control plane. A refusal by the
control plane would therefore come when the nodes are gone already. The guard depends on all of the
cluster, so that its refusal comes before anything was touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bedplate.provider.errors import CommandFailedError, ProviderError, UnreachableError, message
from bedplate.provider.model import DeletionGuardInputs, Inputs
from bedplate.provider.resource import Resource

if TYPE_CHECKING:
    from bedplate.provider.cluster_api import ClusterApi
    from bedplate.provider.deadline import Deadline


class DeletionGuard(Resource):
    """Stands while the cluster does; its deletion is refused while upper stacks use the cluster."""

    token = "bedplate:index:DeletionGuard"  # noqa: S105 - a type token, not a credential
    inputs: ClassVar[type[Inputs]] = DeletionGuardInputs
    # The cluster that it guards is the same when another control plane is the first by name.
    replacing = frozenset()

    async def ensure(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Stand guard: there is nothing to make."""
        del deadline
        return dict(values)

    async def read(self, values: dict[str, Any], deadline: Deadline) -> dict[str, Any] | None:
        """Stand on: a guard is where its cluster's state is."""
        del deadline
        return dict(values)

    async def delete(self, values: dict[str, Any], deadline: Deadline) -> None:
        """Refuse while something stands on the cluster, unless forced or there is no cluster."""
        if self.context.force:
            return
        known: DeletionGuardInputs = self.typed(values)
        api = self.context.cluster(known.host)
        try:
            found = await api.access(deadline)
            if found["kubeconfig"] and found["phase"] == "done":
                await refuse_if_used(api, known.endpoint, deadline)
        except (UnreachableError, CommandFailedError) as error:
            raise ProviderError(
                message(
                    "whether the cluster is in use cannot be asked",
                    f"cluster at {known.endpoint}",
                    str(error),
                    "an answer of the control plane",
                    "bring the control plane back, or set BEDPLATE_FORCE=true to forget it",
                )
            ) from error


async def refuse_if_used(api: ClusterApi, endpoint: str, deadline: Deadline) -> None:
    """Raise ProviderError while the upper stacks have resources on a cluster."""
    used = await api.upper_resources(deadline)
    if used:
        raise ProviderError(
            message(
                "the cluster is still in use by the upper stacks",
                f"cluster at {endpoint}",
                ", ".join(used),
                "none of their resources",
                "run pulumi destroy in stacks/frameworks, then in stacks/schedulers, first; or set "
                "BEDPLATE_FORCE=true to take them down with the cluster",
            )
        )
