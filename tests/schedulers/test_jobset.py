"""What the policies of queues know JobSet's controller by is what its chart calls it."""

from __future__ import annotations

import subprocess

import yaml

from bedplate.components.schedulers import jobset
from tests.substrate.pulumi import built


def test_the_charts_account_is_the_one_that_may_start_jobs() -> None:
    helm, charts = built("helm"), built("jobset")
    assert helm is not None
    assert charts is not None
    (chart,) = (charts.parent / "share").glob("*.tgz")
    words = [helm / "helm", "template", jobset.ADDON, chart, "--namespace", jobset.NAMESPACE]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    (controller,) = [
        found
        for found in yaml.safe_load_all(done.stdout)
        if found and found["kind"] == "Deployment"
    ]
    account = controller["spec"]["template"]["spec"]["serviceAccountName"]
    assert f"system:serviceaccount:{jobset.NAMESPACE}:{account}" == jobset.CONTROLLER
