"""A manifest's objects as resources, each by itself, without asking the cluster first."""

from __future__ import annotations

from typing import Any, TypedDict

import pulumi

FIRST = frozenset({"Namespace", "CustomResourceDefinition"})


class ManifestArgs(TypedDict):
    """Inputs of a Manifest."""

    objects: list[dict[str, Any]]
    """The objects, as their YAML says."""
    cluster: pulumi.Resource
    """What the objects live in: when it goes, they are not deleted one by one before it."""


class Manifest(pulumi.ComponentResource):  # type: ignore[misc]
    """Objects of a manifest; namespaces and definitions come before what lies in them."""

    def __init__(
        self, name: str, args: ManifestArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("bedplate:cluster:Manifest", name, None, opts)
        below = {"parent": self, "deleted_with": args["cluster"]}
        first = [
            _resource(name, found, pulumi.ResourceOptions(**below))
            for found in args["objects"]
            if found["kind"] in FIRST
        ]
        for found in args["objects"]:
            if found["kind"] not in FIRST:
                _resource(name, found, pulumi.ResourceOptions(**below, depends_on=first))
        self.register_outputs({})


def token(found: dict[str, Any]) -> str:
    """Return the type token of an object: its group, version and kind."""
    version = found["apiVersion"]
    return f"kubernetes:{version if '/' in version else f'core/{version}'}:{found['kind']}"


def _resource(
    name: str, found: dict[str, Any], opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    metadata = found["metadata"]
    place = "-".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return pulumi.CustomResource(
        token(found), f"{name}-{found['kind'].lower()}-{place}", found, opts
    )
