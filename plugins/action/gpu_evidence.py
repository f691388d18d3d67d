"""Evidence of one host: see the module of the same name."""

from __future__ import annotations

from ansible_collections.bedplate.gpu.plugins.plugin_utils.evidence import EvidenceAction


class ActionModule(EvidenceAction):
    """Collects on the host, writes ``host-<name>.json`` on the control side."""

    kind = "host"
