"""Evidence of the cluster: see the module of the same name."""

from __future__ import annotations

from ansible_collections.bedplate.gpu.plugins.plugin_utils.evidence import EvidenceAction


class ActionModule(EvidenceAction):
    """Asks the cluster from a control plane host, writes ``cluster.json`` on the control side."""

    kind = "cluster"
