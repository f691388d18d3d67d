"""Policies that the API server judges requests of teams' namespaces by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bedplate.components.schedulers.kueue.objects import TEAM_LABEL, Object, made

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Kinds of objects, each as (API group, versions, resources).
Kinds = tuple[tuple[str, str, tuple[str, ...]], ...]

VERSION: Final = "admissionregistration.k8s.io/v1"
#: Where a message says that its object is.
NAMESPACE: Final = "namespace {object.metadata.namespace}"

TEAMS: Final = {"matchExpressions": [{"key": TEAM_LABEL, "operator": "Exists"}]}

CREATE: Final = ("CREATE",)
UPDATE: Final = ("UPDATE",)
BOTH: Final = ("CREATE", "UPDATE")


def policy(
    name: str,
    about: str,
    kinds: Kinds,
    operations: tuple[str, ...],
    checks: Mapping[str, str],
    *,
    variables: Mapping[str, str] | None = None,
    conditions: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
) -> list[Object]:
    """Return a policy and what binds it to the teams' namespaces.

    Args:
        name: of both.
        about: what they are for, in a sentence.
        kinds: what is judged.
        operations: when.
        checks: messages of a refusal by what has to be true, both in CEL.
        variables: CEL by name, for the checks.
        conditions: CEL by name; where one is false, nothing is judged.
        params: a kind without namespaces; each object of it is `params` once.
    """
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": _rules(kinds, operations),
        "validations": [
            {"expression": expression, "messageExpression": message, "reason": "Forbidden"}
            for expression, message in checks.items()
        ],
    }
    for field, given in (("variables", variables), ("matchConditions", conditions)):
        if given:
            spec[field] = _named(given)
    binding: Object = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": TEAMS},
    }
    if params:
        spec["paramKind"] = dict(params)
        binding["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return [
        made("ValidatingAdmissionPolicy", name, about, version=VERSION, spec=spec),
        made("ValidatingAdmissionPolicyBinding", name, about, version=VERSION, spec=binding),
    ]


def mutation(
    name: str,
    about: str,
    kinds: Kinds,
    operations: tuple[str, ...],
    change: Object,
    conditions: Mapping[str, str],
    *,
    version: str,
    namespaces: Object | None = None,
) -> list[Object]:
    """Return a policy that changes what is submitted, before any webhook sees it, and its binding.

    Args:
        name: of both.
        about: what they are for, in a sentence.
        kinds: what is changed.
        operations: when.
        change: an entry of the policy's `mutations`.
        conditions: CEL by name; where one is false, nothing is changed.
        version: the API in which the API server has such policies.
        namespaces: a selector of labels; without, those of teams.
    """
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": _rules(kinds, operations),
        "matchConditions": _named(conditions),
        "mutations": [change],
    }
    where = {"namespaceSelector": TEAMS if namespaces is None else namespaces}
    binding = {"policyName": name, "matchResources": where}
    return [
        made("MutatingAdmissionPolicy", name, about, version=version, spec=spec),
        made("MutatingAdmissionPolicyBinding", name, about, version=version, spec=binding),
    ]


def _rules(kinds: Kinds, operations: tuple[str, ...]) -> Object:
    return {
        "resourceRules": [
            {
                "apiGroups": [group],
                "apiVersions": [version],
                "resources": list(resources),
                "operations": list(operations),
            }
            for group, version, resources in kinds
        ]
    }


def _named(expressions: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "expression": told} for name, told in expressions.items()]
