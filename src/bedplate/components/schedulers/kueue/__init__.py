"""Kueue: queues, quotas and who may use them, from the lock's teams."""

from bedplate.components.schedulers.kueue.component import Kueue, KueueArgs

__all__ = ["Kueue", "KueueArgs"]
