"""Ends what holds GPUs and is idle, after a warning that its owner sees. Standard library only.

Each look reads what is there and keeps nothing: a warning is an annotation. What cannot be measured
ends by its time alone.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bedplate.hub import idle, shares
from bedplate.packing.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedplate.accounting.measured import Measured
    from bedplate.accounting.records import Record
    from bedplate.packing.api import Api

#: Idle times in seconds, by namespace and by what holds the GPUs there.
Limits = dict[str, dict[str, float]]
SHARES: Final = "shares"
MERGE: Final = "merge-patch+json"
#: Seconds. Kubernetes ends a Job whose time is up, and lists it as failed with what it was.
AT_ONCE: Final = 1

log = logging.getLogger(__name__)


def look(
    api: Api, limits: Limits, records: Iterable[Record], found: Mapping[str, Measured], now: float
) -> None:
    """Warn of what is idle, and end it. A namespace that cannot be read is left for the next look.

    Args:
        found: what is known of records that go on, by Workload.
        now: seconds since 1970.
    """
    still: dict[str, dict[str, float | None]] = {}
    for one in records:
        if one.end is None and one.uid in found and one.namespace in limits:
            still.setdefault(one.namespace, {})[one.workload] = found[one.uid].still
    when = datetime.fromtimestamp(now, UTC)
    for namespace, known in sorted(still.items()):
        try:
            if (limit := limits[namespace].get(SHARES)) is not None:
                _shares(api, namespace, known, limit, when)
        except ApiError as error:
            log.warning("what is idle in %s: %s", namespace, error)


def _shares(
    api: Api, namespace: str, known: Mapping[str, float | None], limit: float, now: datetime
) -> None:
    path = shares.jobs(namespace)
    for job in api.call("GET", f"{path}?labelSelector={shares.LABEL}")["items"]:
        meta = job["metadata"]
        of = f"Job/{meta['name']}"
        if of not in known or "deletionTimestamp" in meta or shares.ended(job):
            continue
        todo, notes = idle.changed(meta.get("annotations") or {}, known[of], limit, now)
        if not notes:
            continue
        body: dict[str, Any] = {"metadata": {"uid": meta["uid"], "annotations": notes}}
        if todo == "stop":
            body["spec"] = {"activeDeadlineSeconds": AT_ONCE}
        api.call("PATCH", f"{path}/{meta['name']}", body, MERGE)
        log.info("share %s/%s: %s", namespace, meta["name"], todo or "in use again")
