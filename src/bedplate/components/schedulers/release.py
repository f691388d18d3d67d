"""An add-on's unmodified chart as a release of Helm."""

from __future__ import annotations

from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

#: Seconds until its controllers answer: images are pulled, and certificates of webhooks made.
PATIENCE: Final = 600


def released(
    component: tuple[pulumi.ComponentResource, str],
    addon: tuple[str, str],
    chart: str,
    values: dict[str, Any],
) -> pulumi.Resource:
    """Install an add-on's chart below a component.

    Args:
        component: the parent, and its name.
        addon: the release's name, and the namespace that it runs in.
        chart: a path from the project's folder, or an address.
        values: of the chart.
    """
    (parent, name), (called, namespace) = component, addon
    return kubernetes.helm.v3.Release(
        f"{name}-release",
        name=called,
        chart=chart,
        namespace=namespace,
        create_namespace=True,
        values=values,
        atomic=True,
        timeout=PATIENCE,
        opts=pulumi.ResourceOptions(parent=parent),
    )
