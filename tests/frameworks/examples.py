"""The jobs of examples/training, each as its request: `python -m tests.frameworks.examples`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from bedplate.components.frameworks import jobs
from bedplate.components.frameworks.jobs import Request, Volume
from tests.schedulers.locks import lock_of

if TYPE_CHECKING:
    from bedplate.lock import Lock

FOLDER: Final = Path(__file__).parents[2] / "examples" / "training"
PRESET: Final = {"placement": {"gang": True}, "priorities": {"normal": 0}}
IMAGE: Final = f"registry.example/training@sha256:{'0' * 64}"
PLACEHOLDER: Final = (
    "registry.example/training is a placeholder: name an image that has your train.py, by its "
    "digest. `bedplate frameworks` writes what such an image is built from."
)
HOUR: Final = 3600

TEAM: Final = {"vision": {"gpus": {"pool_train": (16, None)}, "members": ["alice"]}}
#: Two NVLink domains with two nodes each, a node with four GPUs.
PLACES: Final = [{"nvlink_domain": f"d{number // 2}"} for number in range(4)]


def lock(*addons: str) -> Lock:
    """Return the lock of the examples' site with these add-ons."""
    return lock_of({"pool_train": PLACES}, TEAM, gpus=4, preset=PRESET, addons=addons)


QUEUED: Final = ("kueue", "volcano", "jobset")
#: Four pods together: the same job where Kueue has the queue, and where Volcano has it.
GANG: Final = Request(
    "gang",
    "vision",
    IMAGE,
    form="VolcanoGang",
    command=("python", "train.py"),
    pods=4,
    gpus=2,
    seconds=HOUR,
)
#: name: (what it is, add-ons of the site, the job)
EXAMPLES: Final[dict[str, tuple[str, tuple[str, ...], Request]]] = {
    "job": (
        "A job of one pod with two GPUs, for at most eight hours, with data that it only reads.",
        QUEUED,
        Request(
            "job",
            "vision",
            IMAGE,
            command=("python", "train.py"),
            gpus=2,
            seconds=8 * HOUR,
            volumes=(Volume("images", "/data"),),
        ),
    ),
    "jobset": (
        (
            "Two pods with a GPU each as a JobSet. NODE_RANK, NNODES, MASTER_ADDR and MASTER_PORT "
            "say who each of them is and where they meet."
        ),
        QUEUED,
        Request(
            "jobset",
            "vision",
            IMAGE,
            form="JobSet",
            command=("python", "train.py"),
            pods=2,
            gpus=1,
            seconds=HOUR,
        ),
    ),
    "gang": (
        "Four pods that start together or not at all: Kueue admits the job, Volcano places it.",
        QUEUED,
        GANG,
    ),
    "volcano": (
        (
            "The same on a site with Volcano and without Kueue: a job of Volcano's in the team's "
            "queue there."
        ),
        ("volcano",),
        GANG,
    ),
    "mpi": (
        (
            "Two pods with two GPUs and two processes each, by Open MPI over SSH, without root. "
            "The image has openmpi-bin, openssh-client and openssh-server, and needs no user for "
            "this. The job's key is made first:\n\n"
            "  ssh-keygen -q -t ed25519 -N '' -f key\n"
            "  kubectl -n vision create secret generic mpi-ssh --from-file=ssh-privatekey=key\n"
            "  rm key key.pub"
        ),
        QUEUED,
        Request(
            "mpi",
            "vision",
            IMAGE,
            form="MPI",
            command=("python", "train.py"),
            pods=2,
            gpus=2,
            seconds=HOUR,
        ),
    ),
    "torchrun": (
        "Two pods with two GPUs each: torchrun starts a process for each GPU and joins them.",
        QUEUED,
        Request(
            "torchrun",
            "vision",
            IMAGE,
            form="torchrun",
            command=("train.py", "--epochs=10"),
            pods=2,
            gpus=2,
            seconds=HOUR,
        ),
    ),
}


class _Dumper(yaml.SafeDumper):
    """Scripts as they are written, and lists indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        return super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def objects(name: str) -> list[dict[str, Any]]:
    """Return the objects of an example."""
    _, addons, request = EXAMPLES[name]
    return jobs.objects(jobs.jobs_args(lock(*addons)), request)


def text(name: str) -> str:
    """Return an example's file."""
    about = f"{EXAMPLES[name][0]}\n\n{PLACEHOLDER}"
    lines = [
        line
        for part in about.split("\n")
        for line in (textwrap.wrap(part, 98) if not part.startswith(" ") else [part]) or [""]
    ]
    head = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    dumped = yaml.dump_all(objects(name), Dumper=_Dumper, sort_keys=False, width=110)
    return head + dumped


if __name__ == "__main__":
    for each in EXAMPLES:
        (FOLDER / f"{each}.yml").write_text(text(each))
