"""A pod that tries an image: it imports the framework, reports its CUDA, and computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bedplate.components.refs import MANAGED

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM: Final = Path(__file__).with_name("framework.py")
PLACE: Final = "/etc/bedplate/trial"
CPU: Final = "cpu"
Object = dict[str, Any]


def objects(
    name: str,
    namespace: str,
    image: str,
    build: tuple[str, str, str],
    limits: Mapping[str, str] | None = None,
) -> list[Object]:
    """Return a ConfigMap with the program, and a Job that runs it once.

    Args:
        name: of both.
        namespace: where they are made.
        image: what is tried, by digest where it comes from the bill.
        build: framework, version and CUDA that the image is to have; `CPU` for a build without.
        limits: what the pod asks for beside memory, as a share of a GPU.
    """
    container: Object = {
        "name": "trial",
        "image": image,
        "command": ["python3", f"{PLACE}/{PROGRAM.name}", *build],
        "volumeMounts": [{"name": "program", "mountPath": PLACE, "readOnly": True}],
        "resources": {"limits": dict(limits or {})},
    }
    metadata = {"name": name, "namespace": namespace, "labels": MANAGED}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {PROGRAM.name: PROGRAM.read_text()},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                "backoffLimit": 0,
                "template": {
                    "metadata": {"labels": MANAGED},
                    "spec": {
                        "restartPolicy": "Never",
                        "automountServiceAccountToken": False,
                        "containers": [container],
                        "volumes": [{"name": "program", "configMap": {"name": name}}],
                    },
                },
            },
        },
    ]
