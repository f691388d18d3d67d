"""What `bedplate plan` and `bedplate explain` do with a site, beside deciding."""

from bedplate.planning.plan import Planned, checked_lock, plan

__all__ = ["Planned", "checked_lock", "plan"]
