"""Jobs that ask for GPUs, as objects of Kubernetes that go with what the lock decided."""

from bedplate.components.frameworks.jobs.check import problems
from bedplate.components.frameworks.jobs.model import (
    FORMS,
    Form,
    Request,
    Volume,
    with_image,
)
from bedplate.components.frameworks.jobs.objects import objects

__all__ = ["FORMS", "Form", "Request", "Volume", "objects", "problems", "with_image"]
