"""Jobs that ask for GPUs, as objects of Kubernetes that go with queues and pools."""

from bedplate.components.frameworks.jobs.args import JobPool, JobsArgs, jobs_args
from bedplate.components.frameworks.jobs.check import names, problems
from bedplate.components.frameworks.jobs.model import (
    FORMS,
    Form,
    Request,
    Volume,
)
from bedplate.components.frameworks.jobs.objects import objects

__all__ = [
    "FORMS",
    "Form",
    "JobPool",
    "JobsArgs",
    "Request",
    "Volume",
    "jobs_args",
    "names",
    "objects",
    "problems",
]
