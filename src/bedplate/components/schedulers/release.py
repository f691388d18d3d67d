"""An add-on's unmodified chart, from the site's bill, as a release of Helm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components.cluster import artifact

if TYPE_CHECKING:
    from pathlib import Path

    from bedplate.lock import Lock

#: Seconds until its controllers answer: images are pulled, and certificates of webhooks made.
PATIENCE: Final = 600


def released(
    component: tuple[pulumi.ComponentResource, str],
    addon: tuple[str, str],
    bill: tuple[Path, Lock],
    values: dict[str, Any],
) -> pulumi.Resource:
    """Install an add-on's chart below a component. Raises StackError as `artifact.chart`.

    Args:
        component: the parent, and its name.
        addon: its name in the lock, and the namespace that it runs in.
        bill: the site's directory, and its lock.
        values: of the chart.
    """
    (parent, name), (called, namespace), (site, lock) = component, addon, bill
    return kubernetes.helm.v3.Release(
        f"{name}-release",
        name=called,
        chart=str(artifact.chart(site, lock, called)),
        namespace=namespace,
        create_namespace=True,
        values=values,
        atomic=True,
        timeout=PATIENCE,
        opts=pulumi.ResourceOptions(parent=parent),
    )
