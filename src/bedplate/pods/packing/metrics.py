"""What the extender did and sees, as text for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.pods.packing.extender import Extender


def text(extender: Extender) -> str:
    """Return all metrics. They are few: a library would be the image's only one."""
    with extender.lock:
        refusal = extender.refusal()
        taken, total = extender.state.allocated()
        wrong = len(extender.state.wrong)
        undecided = sum(1 for held in extender.state.held.values() if held.stage is not None)
        counts = sorted(extender.counts.items())
        seconds = sorted(extender.seconds.items())
    lines = [
        *_head("leading", "gauge", "1 while this instance decides."),
        f"bedplate_packing_leading {0 if refusal else 1}",
        *_head("gpu_milli", "gauge", "Thousandths of GPUs that are counted here."),
        f'bedplate_packing_gpu_milli{{state="allocated"}} {taken}',
        f'bedplate_packing_gpu_milli{{state="free"}} {total - taken}',
        *_head("nodes_excluded", "gauge", "Nodes whose GPUs can't be counted."),
        f"bedplate_packing_nodes_excluded {wrong}",
        *_head("decisions_open", "gauge", "Decisions that the API server hasn't shown yet."),
        f"bedplate_packing_decisions_open {undecided}",
        *_head("answers_total", "counter", "Answers to kube-scheduler."),
        *(
            f'bedplate_packing_answers_total{{verb="{verb}",result="{result}"}} {count}'
            for (verb, result), count in counts
        ),
        *_head("seconds_total", "counter", "Time spent on answers."),
        *(
            f'bedplate_packing_seconds_total{{verb="{verb}"}} {spent:.6f}'
            for verb, spent in seconds
        ),
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, help_: str) -> tuple[str, str]:
    return f"# HELP bedplate_packing_{name} {help_}", f"# TYPE bedplate_packing_{name} {kind}"
