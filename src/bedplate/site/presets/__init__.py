"""Presets: values for queues and placement that go together, by what a cluster is for."""

from bedplate.site.presets.model import Placement, Preset, Queue, load_presets

__all__ = ["Placement", "Preset", "Queue", "load_presets"]
