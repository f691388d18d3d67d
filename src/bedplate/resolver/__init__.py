"""Wishes and facts to one lock or one refusal."""

from bedplate.resolver.outcome import Plan, Reason, Refusal
from bedplate.resolver.resolve import resolve

__all__ = ["Plan", "Reason", "Refusal", "resolve"]
