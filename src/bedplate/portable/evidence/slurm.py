"""Evidence of a host of Slurm: controller, node, munge, GPUs by UUID, and jobs kept apart."""

from typing import Any, Dict, Mapping, Sequence

from .. import services
from ..host import Host
from ..slurm import config as slurm_config
from ..slurm import gpus as slurm_gpus
from ..slurm import state as slurm_state
from .area import Collected, Wishes, version_check
from .checks import AGAIN, FAIL, check, failed, skipped

CONSTRAINTS = {"ConstrainDevices": "yes", "ConstrainCores": "yes", "ConstrainRAMSpace": "yes"}
#: Prints each GPU's device files that this process may open, those of MIG instances too. Without
#: the right cgroup that is all; a device without its driver cannot be opened either, but is not
#: forbidden. A link that leads nowhere is slurm.slots' affair.
OPENS = (
    "import errno, glob, os\n"
    f"found = glob.glob('/dev/nvidia[0-9]*') + glob.glob('{slurm_gpus.LINKS}/gpu*')\n"
    "for path in sorted(set(map(os.path.realpath, found))):\n"
    "    try:\n"
    "        os.close(os.open(path, os.O_RDWR))\n"
    "    except OSError as error:\n"
    "        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOENT):\n"
    "            continue\n"
    "    print(path)\n"
)


#: Runs a command in a container of a user without root, which sees the host's programs and is given
#: all of its GPUs: what then keeps it from those of others is the job alone. No image is needed.
CONTAINED = (
    "set -e; export HOME=$(mktemp -d); trap 'rm -rf \"$HOME\"' EXIT; unset XDG_RUNTIME_DIR; cd /; "
    'mkdir -p "$HOME/root/usr"; ln -s usr/bin usr/lib usr/lib64 "$HOME/root"; '
    'for one in /dev/nvidia[0-9]*; do given="$given --device $one"; done; '
    "podman run --quiet --rm --network host $given --volume /usr:/usr:ro "
    '--rootfs "$HOME/root" "$@"'
)
#: A user who has no files.
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Compare the host's part in Slurm with what the role slurm was told."""
    slurm = wish.slurm
    if not slurm:
        to.checks.append(skipped("slurm", "the host's part in Slurm", "the host is not in Slurm"))
        return
    for name in ("slurmctld",) if slurm.get("controls") else ():
        to.checks.append(_service(host, name))
    to.checks.append(_service(host, "munge"))
    _munge(host, slurm, to)
    silence = slurm_state.answers(host, 0)
    to.checks.append(
        failed(
            "slurm.controller",
            "the controller answers this host",
            silence,
            "See whether munge's keys are the same and slurmctld is up, "
            "and run bedplate.gpu.site again.",
            "Slurmctld is UP",
        )
        if silence
        else check("slurm.controller", "the controller answers this host", "UP", "UP", AGAIN)
    )
    if slurm.get("node"):
        _node(host, slurm, to, bool(silence))
    if slurm.get("controls") and not silence:
        _all_nodes(host, slurm, to)


def _service(host: Host, name: str) -> Dict[str, Any]:
    found = services.state(host, f"{name}.service").get("ActiveState") or "unknown"
    fix = f"See 'journalctl --unit {name}' on the host, and run bedplate.gpu.site again."
    return check(f"slurm.{name}", f"{name} is active", "active", found, fix)


def _munge(host: Host, slurm: Mapping[str, Any], to: Collected) -> None:
    what = "a credential of the controller is valid here"
    if not slurm.get("credential"):
        reason = "the controller gave no credential"
        to.checks.append(failed("slurm.credential", what, reason, AGAIN, "a valid credential"))
        return
    # unmunge reads no argument; a shell passes it on. A credential is no secret, and serves once.
    pipe = 'printf %s "$0" | unmunge --no-output'
    answer = host.run(["sh", "-c", pipe, str(slurm["credential"])])
    fix = (
        "Run bedplate.gpu.site again: it gives this host the controller's key. See its clock, too."
    )
    found = "valid" if answer.code == 0 else answer.said
    to.checks.append(check("slurm.credential", what, "valid", found, fix))


def _node(host: Host, slurm: Mapping[str, Any], to: Collected, silent: bool) -> None:
    up = _service(host, "slurmd")
    to.checks.append(up)
    wished = slurm_config.node_of(slurm["node"])
    if wished.gpus:
        _slots(host, wished.gpus, to)
    later = [
        ("slurm.node", "Slurm gives the node jobs"),
        ("slurm.gres", "Slurm knows the GPUs that the node was to have"),
        ("slurm.isolation", "Slurm keeps jobs to their own devices, cores and memory"),
        ("slurm.job", "a job with one GPU can open that one only"),
    ]
    shared = slurm_config.SHARED.get(wished.mode)
    if shared:
        later.append(("slurm.share", f"a job with one {shared} can open one GPU only"))
    podman = str(slurm.get("podman") or "")
    if podman:
        what = "Podman at the lock's version"
        version_check(host, to, "slurm.podman", what, podman, ["podman", "--version"])
        what = "a container that asks for all GPUs can open those of its job only"
        later.append(("slurm.container", what))
    if silent:
        reason = "the controller does not answer"
        to.checks.extend(skipped(check_id, what, reason) for check_id, what in later)
        return
    try:
        state = slurm_state.node(host, wished.name)
    except slurm_state.UnansweredError as error:
        to.checks.append(failed(*later[0], str(error), AGAIN, "an answer"))
        return
    if state is None:
        fix = "Run bedplate.gpu.site without --limit, or with the controller and this host in it."
        to.checks.append(failed(*later[0], "Slurm knows no such node", fix, wished.name))
        return
    ready = state.usable and bool(state.flags)
    fix = (
        f"See 'scontrol show node {wished.name}' and slurmd.log on the node; once fixed,"
        f" 'scontrol update nodename={wished.name} state=resume'."
    )
    found = "usable" if ready else state.told
    to.checks.append(check(*later[0], "usable", found, fix))
    to.checks.append(
        check(*later[1], slurm_config.gres(wished), slurm_config.declared(state.gres), AGAIN)
    )
    _isolation(host, to, *later[2])
    reason = "" if slurm.get("try_job") else "no job was to be run"
    reason = "slurmd does not run" if up["result"] == FAIL else reason
    for name, what in later[3:]:
        asked = f"{shared}:1" if name == "slurm.share" else "gpu:1"
        inside = [*NOBODY, "sh", "-c", CONTAINED, "sh"] if name == "slurm.container" else []
        to.checks.append(_job(host, wished, state, reason, asked, name, what, inside))


def _slots(host: Host, count: int, to: Collected) -> None:
    what = "each GPU's link leads to the device file of the GPU that has this slot"
    answer = host.run(list(slurm_gpus.QUERY), timeout=120)
    told = answer.out if answer.code == 0 else answer.said
    try:
        found = slurm_gpus.reported(answer.code, told, lambda path: host.read(path) or "")
    except slurm_gpus.UnknownGpusError as error:
        to.checks.append(failed("slurm.slots", what, str(error), AGAIN, "an answer of the driver"))
        return
    links = slurm_gpus.compare(host.root, found)
    to.facts["slurm_slots"] = links.recorded
    news = sorted(set(links.slots) - set(links.recorded))
    wrong = links.wrong + [f"{uuid} has no slot" for uuid in news]
    if slurm_gpus.count(found) != count:
        wrong.append(f"{slurm_gpus.count(found)} GPUs instead of {count}")
    to.checks.append(check("slurm.slots", what, [], wrong, AGAIN, "these are not so"))


def _isolation(host: Host, to: Collected, name: str, what: str) -> None:
    answer = host.run(["scontrol", "show", "config"])
    pairs = (line.partition("=") for line in answer.out.splitlines())
    config = {key.strip(): value.strip() for key, _, value in pairs}
    found = {key: config.get(key, "no") for key in CONSTRAINTS}
    wished = dict(CONSTRAINTS, TaskPlugin="task/cgroup")
    plugins = config.get("TaskPlugin", "none").split(",")
    found["TaskPlugin"] = "task/cgroup" if "task/cgroup" in plugins else ",".join(plugins)
    fix = (
        "Remove what overrides it from slurm_settings or local.conf, "
        "and run bedplate.gpu.site again."
    )
    to.checks.append(check(name, what, wished, found, fix))


def _job(
    host: Host,
    wished: slurm_config.Node,
    state: slurm_state.State,
    reason: str,
    gres: str,
    name: str,
    what: str,
    inside: Sequence[str],
) -> Dict[str, Any]:
    if not wished.gpus:
        reason = "the node has no GPU"
    elif state.busy:
        reason = "jobs run on the node, and none is to wait for this one"
    elif not state.usable:
        reason = f"the node takes no jobs: {state.told}"
    if reason:
        return skipped(name, what, reason)
    where = f"--nodelist={wished.name}"
    argv = [
        "srun",
        "--quiet",
        "--immediate=60",
        "--time=1",
        "--chdir=/",
        "--job-name=bedplate-verify",
    ]
    argv += [f"--partition={wished.partition}", where, f"--gres={gres}"]
    answer = host.run([*argv, *inside, "python3", "-c", OPENS], timeout=120)
    if answer.code != 0:
        fix = f"See 'srun {where} --gres={gres} hostname' and slurmd.log on the node."
        return failed(name, what, answer.said, fix, "a job that ends well")
    # A MIG device is its card's file and one for each of its instances; containers are given none.
    files, opened = 3 if wished.mode == "mig" and not inside else 1, answer.out.split()
    reason = "" if len(opened) == files else "opened " + (", ".join(opened) or "none")
    fix = "See whether the devices cgroup is there (/proc/cgroups, /sys/fs/cgroup), and slurmd.log."
    return check(name, what, files, len(opened), fix, reason)


def _all_nodes(host: Host, slurm: Mapping[str, Any], to: Collected) -> None:
    try:
        found = sorted(state.name for state in slurm_state.nodes(host))
    except slurm_state.UnansweredError as error:
        found = [str(error)]
    what = "Slurm has the nodes that the site declares"
    to.checks.append(check("slurm.nodes", what, sorted(slurm.get("nodes", [])), found, AGAIN))
