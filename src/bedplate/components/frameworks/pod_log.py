"""A job's log, read from the API with the standard library: no kubectl is needed here."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

SECONDS = 20


def of_job(kubeconfig: str, namespace: str, job: str) -> str:
    """Return the log of a job's newest pod, or where to look when the pod is gone."""
    server, context = _connection(kubeconfig)
    pods = f"{server}/api/v1/namespaces/{namespace}/pods"
    chosen = urllib.parse.urlencode({"labelSelector": f"job-name={job}"})
    try:
        found = json.loads(_get(f"{pods}?{chosen}", context))["items"]
        if not found:
            return f"(the pod of job {namespace}/{job} is gone)"
        newest = max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return _get(f"{pods}/{newest['metadata']['name']}/log", context).strip()
    except OSError as error:
        return f"(not read: {error}; see `kubectl -n {namespace} logs job/{job}`)"


def _get(url: str, context: ssl.SSLContext) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS, context=context) as answer:  # noqa: S310
        text: str = answer.read().decode()
    return text


def _connection(kubeconfig: str) -> tuple[str, ssl.SSLContext]:
    config: dict[str, Any] = yaml.safe_load(kubeconfig)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    # ssl takes client certificates from files only; these are gone before the first request.
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "certificate", Path(folder) / "key"
        for path, key in zip(pair, ("client-certificate-data", "client-key-data"), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(base64.b64decode(user[key]))
        context.load_cert_chain(*pair)
    return str(cluster["server"]), context
