"""The key of Secrets when a control plane joins: kubeadm copies all keys but this one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bedplate.portable import encryption_keys
from bedplate.provider.errors import ProviderError, message

PLAY = "run ansible-playbook bedplate.gpu.encryption for all control planes, then pulumi up again"


def refuse_a_lost_one(name: str, found: dict[str, Any]) -> None:
    """Refuse that a control plane joins without the key; *found* is `access`'s answer of another.

    Its etcd would be a member by the time its API server does not start.

    Raises:
        ProviderError: the other one runs with a file that is gone.
    """
    if found["encrypts"] and not found["encryption"]:
        raise ProviderError(
            message(
                "the key of Secrets is gone from the control plane that this one would join",
                name,
                f"no {encryption_keys.FILE} there, while its API server runs with it",
                "the file that Bedplate wrote",
                "copy it from another control plane, or take it out of a backup, and run pulumi up "
                "again",
            )
        )


def of_another_time(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Say that the key was replaced while a control plane joined; empty where all can be read.

    Both are answers of `access`, of the one that has joined and of another.
    """
    with suppress(ValueError):
        own, others = (encryption_keys.read(one["encryption"]) for one in (mine, theirs))
        if own and others and not (own[0] in others and others[0] in own):
            late = f"it has {own[0].name}, the others have {others[0].name}"
            return [
                f"the key of Secrets was replaced while it came into the cluster: {late}; {PLAY}"
            ]
    return []
