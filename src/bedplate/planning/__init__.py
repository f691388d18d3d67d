"""What `bedplate plan` and `bedplate explain` do with a site, beside deciding."""

from bedplate.planning.plan import Planned, plan

__all__ = ["Planned", "plan"]
