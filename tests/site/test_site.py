"""The whole site, end to end, on real parts: from no hosts to a pod that sees its GPU, and back.

The tests share one substrate and run in the order in which they stand here: each goes on from the
state that the one before it left, as a site's life does. `pytest tests/site` runs them all.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from bedplate.lock import load_lock
from tests.site import mpi
from tests.site.attacks import attacked
from tests.site.cluster import (
    CARDS,
    GPUS,
    allocatable,
    await_boot,
    changed_tasks,
    conditions,
    gpus_in_pod,
    guest,
    joining,
    limits_of_controllers,
    node,
    node_names,
    recap,
    round_trips,
    set_aside,
    starts,
    unwrapped,
    wait_for,
)
from tests.site.conftest import SUBNET
from tests.site.faults import failing_programs, kill_when
from tests.site.hosts import (
    PACKAGE_UNITS,
    boot_id,
    on_host,
    package_specification,
    snapshot,
)
from tests.site.trials import ANOTHER_BUILD, CPU_BUILDS, tried
from tests.substrate.commands import ROOT, STACKS
from tests.substrate.demo import summary, wait_in_queue
from tests.substrate.gpu.models import slots
from tests.substrate.gpu.replug import plugged, replug
from tests.substrate.hosts.description import load
from tests.substrate.hosts.faults import cable_pulled, little_room, port_taken
from tests.substrate.internet.egress import denied
from tests.substrate.internet.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.commands import SiteCommands
    from tests.substrate.internet.faults import Records

PLUGIN_CONFIG = "/etc/bedplate/device-plugin-config.yaml"
#: Nobody is there, wherever it is tried from (RFC 5737).
ELSEWHERE = "198.51.100.7"
LABEL = {"example.com/room": "b12"}
TAINT = {"key": "example.com/lesson", "value": "now", "effect": "NoSchedule"}


def records(site: SiteCommands) -> Records:
    """Return the access log and the faults of the site's stand-in."""
    assert site.internet is not None
    return site.internet.records


def second_address(site: SiteCommands, name: str) -> str:
    """Give a host another address, after each boot too, and have the site say that nodes use it."""
    own = f"{SUBNET}123"
    unit = f"""[Unit]
Before=kubelet.service
[Service]
Type=oneshot
ExecStart=/usr/sbin/ip address replace {own}/24 dev eth0
[Install]
WantedBy=multi-user.target
"""
    path = "/etc/systemd/system/second-address.service"
    on_host(site, name, f"cat > {path} <<'END'\n{unit}END\nsystemctl enable --now {path}")
    inventory = site.site / "hosts.yml"
    wishes = yaml.safe_load(inventory.read_text())
    pools = wishes["all"]["children"]["gpu_pools"]["children"]
    pools["pool_class"]["hosts"][name]["bedplate_node_ip"] = own
    inventory.write_text(yaml.safe_dump(wishes, sort_keys=False))
    return own


@contextmanager
def marked(site: SiteCommands) -> Iterator[set[str]]:
    """Have the site say that a pool's nodes are labelled and tainted; yield their names."""
    wishes = site.site / "group_vars" / "pool_class.yml"
    before = wishes.read_text()
    wishes.write_text(
        before + yaml.safe_dump({"bedplate_labels": LABEL, "bedplate_taints": [TAINT]})
    )
    try:
        yield {
            name for name, host in load_lock(site.site).hosts.items() if host.pool == "pool_class"
        }
    finally:
        wishes.write_text(before)


def marks(site: SiteCommands) -> dict[str, list[bool]]:
    """Return whether each node has the label and the taint of `marked`."""
    nodes = {name: node(site, name) for name in ("cp1", *GPUS)}
    return {
        name: [
            one["metadata"]["labels"].items() >= LABEL.items(),
            TAINT in one["spec"].get("taints", []),
        ]
        for name, one in nodes.items()
    }


def addresses(site: SiteCommands, name: str) -> set[str]:
    """Return where kubelet says that its node is, and where flannel's tunnel to it ends.

    A node is ready before flannel's pod there has written its own.
    """
    flannel = "flannel.alpha.coreos.com/public-ip"
    wait_for(
        f"flannel says where its tunnel to {name} ends",
        lambda: flannel in node(site, name)["metadata"].get("annotations", {}),
    )
    found = node(site, name)
    told = {one["address"] for one in found["status"]["addresses"] if one["type"] == "InternalIP"}
    return told | {found["metadata"]["annotations"][flannel]}


def billed(site: SiteCommands) -> dict[str, Any]:
    """Return the site's bill of materials."""
    content: dict[str, Any] = yaml.safe_load((site.site / ".bedplate.bill.yml").read_text())
    return content


def test_hosts_reach_the_stand_in_and_nothing_else(site: SiteCommands) -> None:
    """An address that hosts know is refused by the rule that denies it, which counts that."""
    description = load(site.description)
    for name in ("cp1", *GPUS):
        container = description.container(description.host(name))
        before = denied(container)
        asked = on_host(site, name, f"curl -sS -m 20 https://{ELSEWHERE}/ 2>&1 || true")
        assert "Failed to connect" in asked
        assert denied(container) > before
        known = on_host(
            site, name, "curl -sS -m 20 -o /dev/null -w '%{http_code}' https://ghcr.io/v2/"
        )
        assert known == "401"


def test_a_site_without_a_bill_is_refused_before_any_host(site: SiteCommands) -> None:
    site.plan()
    before = {name: snapshot(site, name) for name in ("cp1", *GPUS)}
    records(site).forget()
    done = site.playbook(check=False)
    assert done.returncode != 0
    assert f"run: bedplate mirror resolve {site.site}" in unwrapped(done.stdout)
    assert records(site).requests() == []
    assert {name: snapshot(site, name) for name in ("cp1", *GPUS)} == before


def test_resolve_asks_for_little(site: SiteCommands, figures: dict[str, dict[str, float]]) -> None:
    site.resolve()
    asked = records(site).requests()
    figures["bedplate mirror resolve"] = {
        "requests": float(len(asked)),
        "kB": sum(one.size for one in asked if one.method == "GET") / 1e3,
        "seconds": site.phases["mirror resolve"],
    }
    # The distribution's own indexes are no part of the stand-in, and the bill says so.
    vendors = {one.status for one in asked if not one.host.endswith(".debian.org")}
    assert vendors <= {200, 302, 307, 401}
    assert sum(one.size for one in asked if one.method == "GET") < 1_000_000
    first = (site.site / ".bedplate.bill.yml").read_bytes()
    site.resolve()
    assert (site.site / ".bedplate.bill.yml").read_bytes() == first
    site.resolve("--check")


def test_bad_hosts_are_named_and_set_aside_while_the_others_go_on(site: SiteCommands) -> None:
    """Three bad GPU hosts at once, each in its own way, beside a good control plane."""
    description = load(site.description)
    names = {name: description.container(description.host(name)) for name in GPUS}
    cards = {name: plugged(container) for name, container in names.items()}
    replug(names["gpu-a"], "")
    replug(names["gpu-b"], slots("v100-sxm2-32gb", 4))
    with cable_pulled(description, description.host("gpu-c")):
        done = site.playbook(check=False)
    rows = recap(done.stdout)
    assert done.returncode != 0
    assert (rows["cp1"]["failed"], rows["cp1"]["unreachable"]) == (0, 0)
    went_on = changed_tasks(done.stdout, "cp1")
    assert any("kubernetes_node" in task for task in went_on), "cp1's last role did not run"
    assert {name: row["changed"] for name, row in rows.items() if name != "cp1"} == dict.fromkeys(
        GPUS, 0
    )
    assert (rows["gpu-c"]["failed"], rows["gpu-c"]["unreachable"]) == (1, 0)
    # Ansible folds and quotes a message where it prints it: its beginning is enough there.
    told = unwrapped(done.stdout)
    assert "GPUs are declared, but none is on the PCI bus — gpu-a — got " in told
    assert "another GPU model than declared — gpu-b — got " in told
    assert "the host cannot be reached — gpu-c — got " in told
    mend = (
        "Correct bedplate_gpu of this host's pool, or the hardware, and run 'bedplate plan' again."
    )
    assert set_aside(site, "gpu-a") == (
        "GPUs are declared, but none is on the PCI bus — gpu-a — got no NVIDIA GPU /"
        f" allowed 8 x h100-pcie-80gb (10de:2331) — {mend}"
    )
    assert set_aside(site, "gpu-b") == (
        "another GPU model than declared — gpu-b — got 4 x 10de:1db5 /"
        f" allowed 4 x t4-16gb (10de:1eb8) — {mend}"
    )
    assert re.fullmatch(
        "the host cannot be reached — gpu-c — got .*10.213.1.23.* / allowed an answer over SSH —"
        " Check its address, its power, its host key and the way to it[.]",
        set_aside(site, "gpu-c"),
    )
    for name, text in cards.items():
        replug(names[name], text)


def test_too_little_disk_and_a_taken_port_are_named(site: SiteCommands) -> None:
    description = load(site.description)
    with (
        port_taken(description, description.host("gpu-a"), 10250),
        little_room(description, description.host("gpu-b"), "/opt", 16),
    ):
        done = site.playbook("site.yml", "--limit", "cp1,gpu-a,gpu-b", check=False)
    assert done.returncode != 0
    assert re.fullmatch(
        "a port that Kubernetes needs is taken — gpu-a:10250/tcp — got used by python3 [(]pid"
        r" \d+[)] / allowed a free port — Stop that program or give it another port[.]",
        set_aside(site, "gpu-a"),
    )
    assert set_aside(site, "gpu-b") == (
        "too little disk space — gpu-b:/opt — got 16 MiB free / allowed at least 1024 MiB —"
        " Free space there, or mount a larger disk."
    )
    text, rows = unwrapped(done.stdout), recap(done.stdout)
    assert "a port that Kubernetes needs is taken — gpu-a:10250/tcp — got used by python3" in text
    assert "too little disk space — gpu-b:/opt — got 16 MiB free / allowed at least 1024" in text
    assert {rows[name]["changed"] for name in ("gpu-a", "gpu-b")} == {0}
    assert (rows["cp1"]["failed"], rows["cp1"]["unreachable"]) == (0, 0)
    assert rows["cp1"]["ok"] > rows["gpu-a"]["ok"] + rows["gpu-b"]["ok"], "cp1 did not go on"


def test_playbook_killed_ends_as_if_undisturbed(site: SiteCommands) -> None:
    """In the longest step; tests/hosts/test_kill.py has all the others."""
    kill_when(
        site,
        ["ansible-playbook", "-i", str(site.site), "site.yml", "--limit", "gpu-c"],
        lambda line: "TASK [bedplate.gpu.nvidia_driver : Install and hold" in line,
    )
    done = site.playbook()
    assert all(row["failed"] == row["unreachable"] == 0 for row in recap(done.stdout).values())
    undisturbed, killed = snapshot(site, "gpu-b"), snapshot(site, "gpu-c")
    assert len(undisturbed) > 200, "the snapshot looked at too little"
    assert set(killed) ^ set(undisturbed) == set()


def test_one_changed_byte_at_the_vendor_changes_no_host(site: SiteCommands) -> None:
    """A host that lacks an archive, and one that lacks an image: neither takes what has changed."""
    image = next(name for name in billed(site)["images"] if "/kube-proxy:" in name)
    on_host(site, "gpu-b", "rm -r /opt/bedplate/cri-tools")
    on_host(site, "gpu-c", f"crictl rmi {image}")
    before = {name: snapshot(site, name) for name in ("cp1", *GPUS)}
    images = on_host(site, "gpu-c", "crictl images --no-trunc")
    archive = Fault(host="*.githubusercontent.com", path="*/crictl-*.tar.gz*", flip=-1)
    layer = Fault(host="*.amazonaws.com", flip=-1)
    with records(site).fault(archive, layer):
        done = site.playbook("site.yml", "--limit", "gpu-b,gpu-c", check=False)
    assert done.returncode != 0
    assert "the download has another digest — https://github.com/" in set_aside(site, "gpu-b")
    assert image.partition(":")[0] in set_aside(site, "gpu-c")
    assert {name: snapshot(site, name) for name in ("cp1", *GPUS)} == before
    assert on_host(site, "gpu-c", "crictl images --no-trunc") == images
    done = site.playbook("site.yml", "--limit", "gpu-b,gpu-c")
    assert {row["failed"] for row in recap(done.stdout).values()} == {0}
    assert image.partition(":")[0] in on_host(site, "gpu-c", "crictl images")


def test_a_bare_hosts_packages_come_in_one_transaction(site: SiteCommands) -> None:
    for host in ("gpu-a", "gpu-b"):  # the third was killed in the middle of its own
        history = on_host(site, host, "grep ^Install: /var/log/apt/history.log").splitlines()
        (runtime,) = [line for line in history if " socat:" in line]
        assert " nvidia-" in runtime, f"{host}: the runtime's packages came after the driver's"


def test_engine_killed_in_the_middle_of_the_joins(site: SiteCommands) -> None:
    site.select("cluster")
    up = [
        "pulumi",
        "up",
        "--yes",
        "--skip-preview",
        "-C",
        "stacks/cluster",
        "--stack",
        site.stack_name,
    ]

    def in_mid_join(line: str) -> bool:
        if not (":Node " in line and "creating" in line):
            return False
        # On a quiet machine a join is over before the engine is killed: it is held where it is.
        hold = "pkill -STOP -x kubeadm && echo held || true"
        wait_for("a join is held", lambda: [n for n in GPUS if on_host(site, n, hold)], pause=0.1)
        return True

    kill_when(site, up, in_mid_join, pause=0.2)
    assert joining(site), "no join was under way when the engine was killed"
    for name in GPUS:
        on_host(site, name, "pkill -CONT -x kubeadm || true")
    site.pulumi("cluster", "cancel", "--yes")
    site.up("cluster")
    assert node_names(site) == {"cp1", *GPUS}
    assert allocatable(site) == GPUS
    for name in GPUS:
        mark = json.loads(on_host(site, name, "cat /var/lib/bedplate/membership.json"))
        assert (mark["name"], mark["phase"]) == (name, "done")
    assert {name: starts(site, name) for name in GPUS} == dict.fromkeys(GPUS, 1)


def test_a_pod_names_the_right_model(site: SiteCommands, tmp_path: Path) -> None:
    for stack in ("schedulers", "frameworks"):
        site.select(stack)
        site.up(stack)
    logs = site.pulumi("frameworks", "stack", "output", "logs", quiet=True).stdout
    assert logs.count("GPU 0: ") == 1
    assert "NVIDIA H100 PCIe" in logs or "Tesla T4" in logs
    for name, product in {"gpu-a": "NVIDIA-H100-PCIe", "gpu-b": "Tesla-T4"}.items():
        labels = node(site, name)["metadata"]["labels"]
        assert labels["nvidia.com/gpu.product"] == product
        assert labels["nvidia.com/gpu.count"] == str(CARDS[name])
        # gpu-a is on Debian 13, whose 535 is a legacy branch: its libraries have their own folder.
        assert gpus_in_pod(site, name, tmp_path).startswith(f"GPU 0: {product.replace('-', ' ')} (")


def test_a_job_waits_for_its_teams_quota_and_starts_when_there_is_room(site: SiteCommands) -> None:
    """The team `lab` has four shares: the first job takes them, the second waits in the queue."""
    assert limits_of_controllers(site) == ["--kube-api-burst=60", "--kube-api-qps=40"]
    wait_in_queue(site)
    listed = json.loads(site.kubectl("get", "workloads", "-n", "lab", "-o", "json").stdout)["items"]
    told = {one["metadata"]["ownerReferences"][0]["name"]: conditions(one) for one in listed}
    # Kueue gives a job's quota back pod by pod: the second needs one share of the first's four.
    when = "jsonpath={.items[*].status.containerStatuses[0].state.terminated.finishedAt}"
    ended = site.kubectl("get", "pods", "-n", "lab", "-l", "job-name=first", "-o", when)
    assert told["second"]["Admitted"] >= min(ended.stdout.split()), "it started before room was"
    seconds = ("-n", "lab", "-l", "job-name=second", "-o", "json")
    (pod,) = json.loads(site.kubectl("get", "pods", *seconds).stdout)["items"]
    assert pod["spec"]["nodeName"] in {"gpu-a", "gpu-b", "gpu-c"}
    assert site.kubectl("logs", "-n", "lab", "job/second").stdout.startswith("GPU 0: ")


def test_nobody_goes_round_the_queue(site: SiteCommands, tmp_path: Path) -> None:
    """A member may submit to the own team's queue, and to no other's."""
    first = next(yaml.safe_load_all((ROOT / "examples" / "queue.yml").read_text()))
    first["metadata"] |= {"name": "stray", "labels": {"kueue.x-k8s.io/queue-name": "intro"}}
    path = tmp_path / "stray.yml"
    path.write_text(yaml.safe_dump(first))
    done = site.kubectl("create", "-f", str(path))
    assert done.returncode != 0
    assert "queue" in done.stdout
    rights = ["auth", "can-i", "create", "jobs.batch", "--as", "ada", "-n"]
    assert site.kubectl(*rights, "lab").stdout.strip() == "yes"
    assert site.kubectl(*rights, "kube-system").stdout.strip().startswith("no")


def test_every_image_on_a_node_is_the_bills_by_digest(site: SiteCommands) -> None:
    """What came another way, by a tag that has moved or by an import, has another or none."""
    images = billed(site)["images"]
    served = {f"{name.rpartition(':')[0]}@{entry['digest']}" for name, entry in images.items()}
    for name in ("cp1", *GPUS):
        for image in node(site, name)["status"]["images"]:
            assert served & set(image.get("names", [])), f"{name}: {image}"


def test_each_image_of_a_framework_computes_in_a_pod(site: SiteCommands, tmp_path: Path) -> None:
    """CPU builds, which report themselves as such: asked for as a build with CUDA, they fail."""
    said = tried(site, tmp_path, CPU_BUILDS | ANOTHER_BUILD)
    for name in CPU_BUILDS:
        (line,) = [line for line in said[name].splitlines() if line.startswith("{")]
        found = json.loads(line)
        assert (found["framework"], found["cuda"]) == (name, None)
        assert list(found["computed"].values()) == [64**3]
    assert "jax: build differs — no CUDA — allowed 12.6" in said["jax-with-cuda"]


def test_a_member_reaches_no_neighbour_and_no_node(site: SiteCommands, tmp_path: Path) -> None:
    """Another's GPU and files, kubelet, the runtime's variable: each works with its defence off."""
    attacked(site, tmp_path)


def test_mpi_joins_two_pods_without_root(site: SiteCommands, tmp_path: Path) -> None:
    """Four processes in two pods know of each other; none of them is root."""
    said = mpi.ran(site, load_lock(site.site), tmp_path)
    assert said.strip() == "mpi-0/1000 mpi-0/1000 mpi-1/1000 mpi-1/1000 sum 10"


def test_a_pod_that_asks_for_more_than_any_node_has_waits_and_says_why(site: SiteCommands) -> None:
    site.kubectl(
        "run", "many", "--image=docker.io/library/debian:12-slim", "--restart=Never",
        '--overrides={"spec":{"containers":[{"name":"many","image":"docker.io/library/debian:12-slim",'
        '"command":["true"],"resources":{"limits":{"nvidia.com/gpu":"41"}}}]}}',
    )  # fmt: skip
    pod: dict[str, Any] = {}

    def told() -> bool:
        pod.update(json.loads(site.kubectl("get", "pod", "many", "-o", "json").stdout))
        said = {one["type"]: one for one in pod["status"].get("conditions", [])}
        return "Insufficient nvidia.com/gpu" in said.get("PodScheduled", {}).get("message", "")

    wait_for("the scheduler's word on the pod", told, 300)
    for _ in range(2):
        (scheduled,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert (pod["status"]["phase"], scheduled["status"]) == ("Pending", "False")
        assert "Insufficient nvidia.com/gpu" in scheduled["message"]
        time.sleep(5)  # it stays so
        assert told()
    site.kubectl("delete", "pod", "many", "--now")


def test_second_run_changes_nothing(
    site: SiteCommands, figures: dict[str, dict[str, float]]
) -> None:
    up = site.substrate("up").stdout
    assert f"hosts {', '.join(('cp1', *GPUS))} are running" in up
    assert "a stand-in for the internet at" not in up
    site.plan("--check")
    records(site).forget()
    done = site.playbook("site.yml", "-vvv")
    assert records(site).requests() == []
    rows = recap(done.stdout)
    assert set(rows) >= {"cp1", *GPUS}
    assert {name: row["changed"] for name, row in rows.items()} == dict.fromkeys(rows, 0)
    trips = round_trips(done.stdout)
    assert len(trips) == len(rows) - ("localhost" in rows)
    figures["round trips of site.yml, again"] = {name: float(trips[name]) for name in sorted(trips)}
    for stack in STACKS:
        site.pulumi(stack, "preview", "--expect-no-changes")


def test_evidence_and_report(site: SiteCommands) -> None:
    site.playbook("playbooks/verify.yml")
    site.run("report", ["bedplate", "report", str(site.site)])
    results = site.site / ".bedplate"
    page = (results / "report.html").read_text()
    assert "Simulated silicon." in page
    assert 'class="badge fail"' not in page
    assert re.search(r"certificates are good until 20\d\d-", page)
    cluster = json.loads((results / "evidence" / "cluster.json").read_text())
    assert {check["result"] for check in cluster["checks"]} == {"pass"}
    for name, count in CARDS.items():
        host = json.loads((results / "evidence" / f"host-{name}.json").read_text())
        assert host["simulated"] is True
        assert host["labels"]["nvidia.com/gpu.count"] == str(count)
        assert "fail" not in {check["result"] for check in host["checks"]}
    assert (results / "junit.xml").stat().st_size > 0
    told = summary(site, 60)
    for name, model in {"gpu-a": "NVIDIA-H100-PCIe", "gpu-b": "Tesla-T4"}.items():
        assert re.search(rf"^{name} +v1[.]\S+ +{GPUS[name]} +{model}$", told, re.MULTILINE)
    assert re.search(r"^GPU 0: .+ \(UUID: GPU-", told, re.MULTILINE)
    assert f"{results}/report.html" in told
    assert (results / "kubeconfig").stat().st_mode & 0o777 == 0o600


def test_a_rebooted_host_comes_back_with_its_gpus(site: SiteCommands) -> None:
    on_host(site, "gpu-b", PACKAGE_UNITS)
    before = boot_id(site, "gpu-b")
    site.substrate("reboot", "gpu-b")
    ping = ["ansible", "-i", str(site.site), "gpu-b", "-m", "ping"]
    wait_for(
        "SSH on gpu-b",
        lambda: site.run("ping", ping, quiet=True, check=False).returncode == 0,
    )
    boot = boot_id(site, "gpu-b")
    assert boot != before
    await_boot(site, "gpu-b", boot, GPUS)
    # One writes what containers are given: the units of NVIDIA's packages are there, and wait.
    assert not package_specification(site, "gpu-b")
    site.playbook("playbooks/verify.yml", "--limit", "gpu-b")


def test_a_worker_taken_out_is_drained_and_removed_alone(site: SiteCommands) -> None:
    hosts = site.site / "hosts.yml"
    with_all = hosts.read_text()
    wishes = yaml.safe_load(with_all)
    del wishes["all"]["children"]["gpu_pools"]["children"]["pool_class"]["hosts"]["gpu-c"]
    others = {name: node(site, name)["metadata"]["uid"] for name in ("cp1", "gpu-a", "gpu-b")}
    hosts.write_text(yaml.safe_dump(wishes, sort_keys=False))
    assert site.plan("--check", check=False).returncode == 2
    site.plan()
    with guest(site, "gpu-c") as watch:
        done = site.up("cluster")
    hosts.write_text(with_all)
    assert "replaced" not in done.stdout
    # Of a pod whose node is merely gone, the controllers say another reason.
    assert "EvictionByEvictionAPI" in watch.read()
    assert {name: node(site, name)["metadata"]["uid"] for name in node_names(site)} == others
    left = on_host(site, "gpu-c", "find /etc/kubernetes -name '*.conf' -o -path '*/manifests/*'")
    assert left == ""


def test_a_plugin_that_cannot_start_holds_up_nobody_else(site: SiteCommands) -> None:
    """gpu-c comes back into the site with a plugin whose configuration is broken."""
    good = on_host(site, "gpu-c", f"cat {PLUGIN_CONFIG}")
    on_host(site, "gpu-c", f"printf 'version: v1\\nflags: [broken\\n' > {PLUGIN_CONFIG}")
    site.plan()
    done = site.up("cluster", check=False)
    assert done.returncode != 0
    assert node_names(site) == {"cp1", *GPUS}
    assert "gpu-c offers 0 nvidia.com/gpu, the lock expects 40" in done.stdout
    head = r"nvidia-device-plugin on gpu-c is \w+ \(attempt \d+\), its last log lines:"
    _, last_lines = re.split(head, done.stdout, maxsplit=1)
    assert "error starting plugins: unable to load config: " in last_lines
    assert "yaml: line 2: did not find expected ',' or ']'" in last_lines
    state = json.loads(site.pulumi("cluster", "stack", "export", quiet=True).stdout)
    kept = [r for r in state["deployment"]["resources"] if r["type"].endswith(":GpuReady")]
    assert len(kept) == len(GPUS)
    assert [r["urn"].split("::")[-1] for r in kept if r.get("initErrors")] == [
        r["urn"].split("::")[-1] for r in kept if "gpu-c" in r["urn"]
    ]
    on_host(site, "gpu-c", f"cat > {PLUGIN_CONFIG} <<'END'\n{good}END\n")
    site.up("cluster")
    assert allocatable(site) == GPUS
    site.playbook("site.yml", "--limit", "gpu-c")


def test_no_secret_lies_in_the_open(site: SiteCommands) -> None:
    kubeconfig = yaml.safe_load((site.site / ".bedplate" / "kubeconfig").read_text())
    key = kubeconfig["users"][0]["user"]["client-key-data"]
    state = site.pulumi("cluster", "stack", "export", quiet=True).stdout
    assert "kubeconfig" in state
    assert key not in state
    # The Kubernetes provider's own temporary copies, readable by their owner alone.
    temporary = site.site / ".bedplate" / "tmp"
    for path in site.site.parent.rglob("*"):
        if path.is_file() and path.name != "kubeconfig" and path.parent != temporary:
            assert key.encode() not in path.read_bytes(), path


def test_a_job_that_fails_fails_its_stack(site: SiteCommands) -> None:
    site.pulumi("frameworks", "destroy", "--yes", "--skip-preview")
    with failing_programs(site, GPUS, "nvidia-smi"):
        done = site.up("frameworks", check=False)
    failed = ["get", "job", "nvidia-smi", "-n", "bedplate-smoke", "-o", "jsonpath={.status.failed}"]
    assert site.kubectl(*failed).stdout == "1"
    assert done.returncode != 0
    assert "kubernetes:batch/v1:Job" in done.stdout


def test_destroy_leaves_hosts_clean_enough_for_a_new_cluster(site: SiteCommands) -> None:
    refused = site.pulumi("cluster", "destroy", "--yes", "--skip-preview", check=False)
    assert refused.returncode != 0
    assert "frameworks" in refused.stdout or "schedulers" in refused.stdout
    assert node_names(site) == {"cp1", *GPUS}, "the refusal came when nodes had gone already"
    for stack in reversed(STACKS):
        site.pulumi(stack, "destroy", "--yes", "--skip-preview")
    for name in ("cp1", *GPUS):
        assert on_host(
            site, name, "ls -A /etc/kubernetes/manifests | wc -l; crictl ps -q | wc -l"
        ).split() == ["0", "0"]
    own = second_address(site, "gpu-c")
    with marked(site) as pool:
        site.plan()
        site.playbook("site.yml", "--limit", "gpu-c")
        site.up("cluster")
        assert allocatable(site) == GPUS
        assert marks(site) == {name: [name in pool] * 2 for name in ("cp1", *GPUS)}
    hosts = load_lock(site.site).hosts
    assert {name: addresses(site, name) for name in hosts} == {
        name: {own if name == "gpu-c" else host.address} for name, host in hosts.items()
    }
    site.plan()
    site.up("cluster")
    assert not any(map(any, marks(site).values()))
