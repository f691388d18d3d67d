"""Kueue: queues, quotas and who may use them, for a site's teams or those given by hand."""

from bedplate.components.schedulers.kueue.args import PoolArgs, QueuesArgs
from bedplate.components.schedulers.kueue.component import Kueue, KueueArgs, kueue_args
from bedplate.lock.model import Quota, Team

__all__ = ["Kueue", "KueueArgs", "PoolArgs", "QueuesArgs", "Quota", "Team", "kueue_args"]
