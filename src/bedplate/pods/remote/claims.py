"""The kind RemoteClaim: what is asked for, and how the API server itself checks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bedplate.pods.hub import idle

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]

GROUP: Final = "bedplate.io"
VERSION: Final = "v1alpha1"
API: Final = f"{GROUP}/{VERSION}"
PLURAL: Final = "remoteclaims"
KIND: Final = "RemoteClaim"
QUEUED, OPEN, ENDED = "Queued", "Open", "Ended"
#: The longest time of one claim: a week. Who needs a GPU for longer needs a node with one.
LONGEST: Final = 7 * 24 * 3600
SHORTEST: Final = 5
#: GPUs or shares of one claim: those of one node.
MOST: Final = 16
#: Claims of a namespace that are before the queue or open; more of them wait in their turn.
LIVE: Final = 50
NAME: Final = "remote-{}"
"""Of the Secret with the client's certificate, in the claim's namespace."""


@dataclass(frozen=True)
class Claim:
    """A claim as it was read. `used` are the seconds of earlier openings."""

    uid: str
    name: str
    namespace: str
    resource: str
    count: int
    limit: int
    released: bool
    user: str
    created: str
    status: Object
    notes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Object) -> Claim:
        """Read an object of the API."""
        meta, spec = found["metadata"], found["spec"]
        return cls(
            uid=meta["uid"],
            name=meta["name"],
            namespace=meta["namespace"],
            resource=spec["resource"],
            count=spec.get("count", 1),
            limit=spec["limitSeconds"],
            released=bool(spec.get("release")),
            created=meta["creationTimestamp"],
            user=(meta.get("annotations") or {}).get(USER, ""),
            status=found.get("status") or {},
            notes=meta.get("annotations") or {},
        )

    @property
    def ended(self) -> str:
        """Return why it was released: by its user, or by the recorder of usage as it was idle."""
        return self.notes.get(idle.ENDED) or "released"

    @property
    def warning(self) -> str:
        """Return that it is idle, and when it ends, to be added to its message."""
        end = self.notes.get(idle.ENDS)
        return f"; idle, and ends at {end} unless it is used" if end else ""

    @property
    def phase(self) -> str:
        """Return Queued, Open or Ended."""
        return str(self.status.get("phase") or QUEUED)

    @property
    def object(self) -> str:
        """Return the name of what belongs to it on the GPU's side."""
        return f"claim-{self.uid}"

    @property
    def secret(self) -> str:
        """Return the name of its client's Secret."""
        return NAME.format(self.name)


#: Who made a claim; written by the API server's policy.
USER: Final = f"{GROUP}/user"
#: On a Workload that is not in the queue yet: why its person has to wait.
HELD: Final = f"{GROUP}/held"


def definition() -> Object:
    """Return the CustomResourceDefinition. What was asked for never changes; a release is final."""
    kept = [{"rule": "self == oldSelf", "message": "is fixed: release this claim and make another"}]
    spec = {
        "type": "object",
        "required": ["resource", "limitSeconds"],
        "properties": {
            "resource": {
                "type": "string",
                "minLength": 3,
                "maxLength": 63,
                "pattern": "^[a-z0-9.-]+/[A-Za-z0-9._-]+$",
                "description": "What the team's queue counts, such as nvidia.com/gpu.shared.",
                "x-kubernetes-validations": kept,
            },
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST,
                "default": 1,
                "x-kubernetes-validations": kept,
            },
            "limitSeconds": {
                "type": "integer",
                "minimum": SHORTEST,
                "maximum": LONGEST,
                "description": "The time from admission, after which the claim is closed.",
                "x-kubernetes-validations": kept,
            },
            "release": {
                "type": "boolean",
                "default": False,
                "description": "True ends the claim and keeps its record.",
                "x-kubernetes-validations": [
                    {"rule": "self || !oldSelf", "message": "a released claim stays released"}
                ],
            },
        },
    }
    numbers = ("bytesIn", "bytesOut", "connections", "refused", "seconds", "usedSeconds")
    status = {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in ("phase", "message", "address", "user")},
            **{name: {"type": "string", "format": "date-time"} for name in ("since", "until")},
            **{name: {"type": "number"} for name in numbers},
            # The meter of earlier openings, to which the present one adds.
            "before": {"type": "object", "additionalProperties": {"type": "number"}},
        },
    }
    columns = [
        ("Phase", "string", ".status.phase"),
        ("Resource", "string", ".spec.resource"),
        ("Count", "integer", ".spec.count"),
        ("Until", "string", ".status.until"),
        ("Message", "string", ".status.message"),
    ]
    # The Secret's name is remote-NAME, and a name that fits there fits everywhere.
    short = {
        "rule": "self.metadata.name.size() <= 63",
        "message": "metadata.name has at most 63 characters",
    }
    schema = {
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": [short],
        "properties": {"spec": spec, "status": status},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "plural": PLURAL, "singular": KIND.lower()},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path}
                        for name, kind, path in columns
                    ],
                }
            ],
        },
    }
