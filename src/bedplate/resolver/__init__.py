"""Settings and facts to one lock or one refusal."""

from bedplate.resolver.answer import Plan, Refusal
from bedplate.resolver.outcome import Reason
from bedplate.resolver.resolve import resolve

__all__ = ["Plan", "Reason", "Refusal", "resolve"]
