"""Certificates: one limit wherever it is written, and kubeconfigs that have no certificate."""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible_collections.bedplate.gpu.plugins.filter.kubeconfig_end import kubeconfig_end

from bedplate.portable import certificates

ROOT = Path(__file__).parents[2]


def test_role_and_modules_have_one_limit() -> None:
    role = yaml.safe_load((ROOT / "roles/gpu_verify/defaults/main.yml").read_text())
    assert role["gpu_verify_certificate_days"] == certificates.DAYS
    text = f"\n    type: int\n    default: {certificates.DAYS}\n"
    for name in ("gpu_evidence", "control_plane_certificates"):
        assert text in (ROOT / f"plugins/modules/{name}.py").read_text()


def test_what_is_no_kubeconfig_has_no_end() -> None:
    """The site's own may be another's, or edited: the play must not end there."""
    bad = {"users": [{"user": {"client-certificate-data": "bm8="}}]}
    for text in ("", "[", "users: []", "users: [{name: a, user: {token: b}}]", yaml.safe_dump(bad)):
        assert kubeconfig_end(text) == ""
