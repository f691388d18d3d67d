"""A job's log, read from the API: no kubectl is needed here."""

from __future__ import annotations

import tempfile
import urllib.parse
from pathlib import Path

from bedplate.pods.api import Api, ApiError
from bedplate.pods.kubeaccess import access_of

SECONDS = 20.0


def of_job(kubeconfig: str, namespace: str, job: str) -> str:
    """Return the log of a job's newest pod, or where to look when the pod is gone.

    Raises:
        AccessError: the kubeconfig is not usable.
    """
    pods = f"/api/v1/namespaces/{namespace}/pods"
    chosen = urllib.parse.urlencode({"labelSelector": f"job-name={job}"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(kubeconfig)
        with access_of(path) as entry:
            api = Api(entry.access, SECONDS)
    try:
        found = api.call("GET", f"{pods}?{chosen}")["items"]
        if not found:
            return f"(the pod of job {namespace}/{job} is gone)"
        newest = max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return api.text(f"{pods}/{newest['metadata']['name']}/log").strip()
    except ApiError as error:
        return f"(not read: {error}; see `kubectl -n {namespace} logs job/{job}`)"
    finally:
        api.drop()
