"""The class of a team's work that names none: admission writes the team's own.

Kueue has no default class. The label is written before Kueue's webhooks read it, and only when an
object is made: a class that the user names stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.components.schedulers.kueue.admission import CREATE, mutation
from bedplate.components.schedulers.kueue.objects import TEAM_LABEL, Object
from bedplate.components.schedulers.kueue.queues import TEAM_CLASS

if TYPE_CHECKING:
    from bedplate.components.schedulers.kueue.args import QueuesArgs

CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
NAME: Final = "bedplate-team-class"
KINDS: Final = (
    ("", "v1", ("pods",)),
    ("batch", "v1", ("jobs",)),
    ("apps", "v1", ("deployments", "statefulsets")),
    ("jobset.x-k8s.io", "*", ("jobsets",)),
)


def objects(args: QueuesArgs) -> list[Object]:
    """Return the policy with its binding; none where no team has a priority.

    Where the API server has no such policies there is none either: users name the class.
    """
    teams = sorted(name for name, team in args.teams.items() if team.priority)
    if not teams or args.mutating_api is None:
        return []
    about = "Work of a team with a priority that names no class gets the team's own."
    own = f"'{TEAM_CLASS.format('')}' + namespaceObject.metadata.labels['{TEAM_LABEL}']"
    key = CLASS_LABEL.replace("/", "~1")
    some = f"[JSONPatch{{op: 'add', path: '/metadata/labels/{key}', value: {own}}}]"
    none = f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'{CLASS_LABEL}': {own}}}}}]"
    expression = f"has(object.metadata.labels) ? {some} : {none}"
    unnamed = f"!has(object.metadata.labels) || !('{CLASS_LABEL}' in object.metadata.labels)"
    return mutation(
        NAME,
        about,
        KINDS,
        CREATE,
        {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}},
        {"names-no-class": unnamed},
        version=args.mutating_api,
        namespaces={"matchExpressions": [{"key": TEAM_LABEL, "operator": "In", "values": teams}]},
    )
