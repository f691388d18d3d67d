"""Kernel settings and a host's requirements, read from files of a host that is only a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bedplate.portable import node_conflicts, os_release, requirements
from bedplate.portable.host import Host, Result
from bedplate.portable.kernel import settings as kernel

RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\nbroken line\n'
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1
   2: cut off
"""
TCP6 = """\
  sl  local_address remote_address st ...
   0: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A 0 0 0 0 0 99
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """An empty host."""
    return Host(str(tmp_path))


def put(host: Host, name: str, text: str) -> Path:
    """Write a file of the host."""
    path = Path(host.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_modules_are_loaded_or_built_in(host: Host) -> None:
    assert not kernel.module_present(host, "br_netfilter")
    assert not kernel.module_present(host, "overlay")
    put(host, "/proc/filesystems", "nodev\tproc\nnodev\toverlay\n")
    put(host, "/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n")
    assert kernel.module_present(host, "overlay")
    assert kernel.module_present(host, "br_netfilter")
    put(host, "/sys/module/nvidia_uvm/refcnt", "0")
    assert kernel.module_present(host, "nvidia-uvm")
    assert not kernel.module_present(host, "nvidia")


def test_a_word_is_not_found_inside_another(host: Host) -> None:
    put(host, "/proc/filesystems", "nodev\toverlayfs2\n")
    assert not kernel.module_present(host, "overlay")


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        ("net/ipv4/conf/eth0.100/rp_filter", "/proc/sys/net/ipv4/conf/eth0.100/rp_filter"),
        ("net.ipv4.conf.eth0/100.rp_filter", "/proc/sys/net/ipv4/conf/eth0.100/rp_filter"),
    ],
)
def test_sysctl_path(key: str, path: str) -> None:
    assert kernel.sysctl_path(key) == path


def test_sysctl_is_read_and_set(host: Host) -> None:
    assert kernel.sysctl_now(host, "net.ipv4.ip_forward") == ""
    assert kernel.set_sysctl(host, "net.ipv4.ip_forward", "1") == "No such file or directory"
    path = put(host, "/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    assert kernel.sysctl_now(host, "net.ipv4.ip_local_port_range") == "32768 60999"
    assert kernel.set_sysctl(host, "net.ipv4.ip_local_port_range", "1024 60999") is None
    assert path.read_text() == "1024 60999"


def resolved(host: Host, **fields: object) -> kernel.Resolved:
    """Settings as a host takes them."""
    return kernel.resolve(host, kernel.Settings(**fields))  # type: ignore[arg-type]


def test_files_keep_the_settings_in_one_order(host: Host) -> None:
    put(host, "/proc/meminfo", "MemTotal: 1 kB\nHugepagesize:       2048 kB\n")
    wish = resolved(
        host,
        modules=["overlay", "br_netfilter"],
        blacklist=["nouveau"],
        options={"nvidia": {"b": "2", "a": "1"}, "empty": {}},
        sysctls={"net.ipv4.ip_forward": "1", "fs.a": "2"},
        hugepages={"2M": 512, "1G": 4},
    )
    header = "# Managed by Bedplate (role host_baseline): changes here are lost.\n"
    pool = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    assert kernel.files("host_baseline", wish) == {
        "/etc/modules-load.d/bedplate-host_baseline.conf": header + "overlay\nbr_netfilter\n",
        "/etc/modprobe.d/bedplate-host_baseline.conf": header
        + "blacklist nouveau\ninstall nouveau /bin/false\noptions nvidia a=1 b=2\n",
        "/etc/sysctl.d/99-zz-bedplate-host_baseline.conf": header
        + "fs.a = 2\nnet.ipv4.ip_forward = 1\nvm.nr_hugepages = 512\n",
        "/etc/sysctl.d/60-bedplate-host_baseline.conf": "",
        "/etc/tmpfiles.d/bedplate-host_baseline.conf": header + f"w {pool} - - - - 4\n",
    }


def test_files_without_settings_are_not_there(host: Host) -> None:
    assert set(kernel.files("x", resolved(host, options={"nvidia": {}})).values()) == {""}


def test_a_size_of_pages_is_a_size(host: Host) -> None:
    with pytest.raises(ValueError, match=r"^2048 is no size of a page, such as 2M or 1G$"):
        resolved(host, hugepages={"2048": 1})


def test_every_difference_is_told(host: Host) -> None:
    wish = resolved(
        host,
        modules=["overlay"],
        blacklist=["nouveau"],
        sysctls={"fs.a": "2"},
        hugepages={"1G": 4},
    )
    put(host, "/sys/module/nouveau/refcnt", "0")
    put(host, "/proc/sys/fs/a", "1\n")
    put(host, kernel.STALE_INITRAMFS, "")
    found = kernel.compare(host, "host", wish)
    assert found.told(wish) == [
        "the initramfs was not refreshed after an earlier change",
        "/etc/modprobe.d/bedplate-host.conf differs",
        "/etc/modules-load.d/bedplate-host.conf differs",
        "/etc/sysctl.d/99-zz-bedplate-host.conf differs",
        "/etc/tmpfiles.d/bedplate-host.conf differs",
        "module overlay is not loaded",
        "fs.a is 1 instead of 2",
        "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages is unknown instead of 4",
        "module nouveau is loaded",
    ]


def test_lines_that_undo_ours_at_the_next_boot_are_named(host: Host) -> None:
    """In the order of systemd: by name, whatever the folder; of one name the first folder's."""
    forward, rp = "net.ipv4.ip_forward", "net/ipv4/conf/eth0.1/rp_filter"
    wish = {forward: "1", rp: "0", "fs.a": "1 2"}
    put(host, "/etc/sysctl.d/99-zz-bedplate-host.conf", f"{forward} = 1\n")
    put(host, "/etc/sysctl.d/99-early.conf", f"{forward} = 0\n")
    put(host, "/etc/sysctl.d/zz-same.conf", f"{forward}=1\nfs/a = 1  2\n")
    put(host, "/etc/sysctl.d/zz-cis.conf.bak", f"{forward} = 0\n")
    put(host, "/usr/lib/sysctl.d/zz-wild.conf", "net.ipv4.conf.*.rp_filter = 1\n# fs.a = 3\n")
    put(host, "/etc/sysctl.conf", "kernel.other = 2\n;fs.a = 3\n-net.ipv4.ip_forward\n")
    assert kernel.outdone(host, "host", wish) == []
    put(host, "/usr/lib/sysctl.d/zz-x.conf", "-net.ipv4.conf.eth0/1.rp_filter =1\n")
    put(host, "/run/sysctl.d/99-zz-run.conf", "fs.a = 3\n")
    late = "/usr/lib/sysctl.d/zz-x.conf: -net.ipv4.conf.eth0/1.rp_filter = 1"
    assert kernel.outdone(host, "host", wish) == [late]  # zz-same.conf puts fs.a right again
    Path(host.path("/etc/sysctl.d/zz-x.conf")).symlink_to("/dev/null")
    assert kernel.outdone(host, "host", wish) == []
    put(host, "/etc/sysctl.conf", "net/ipv4/ip_forward=0\n")
    assert kernel.outdone(host, "host", wish) == []
    Path(host.path("/etc/sysctl.d/zz-sysctl.conf")).symlink_to("../sysctl.conf")
    assert kernel.outdone(host, "host", wish) == ["/etc/sysctl.conf: net/ipv4/ip_forward = 0"]


def test_the_initramfs_is_that_of_every_kernel(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], _timeout: float, _environment: object = None) -> Result:
        asked.append(argv)
        return Result(len(asked) - 1, "", "no space left")

    host = Host(str(tmp_path), run)
    assert kernel.refresh_initramfs(host) is None
    assert asked == []
    put(host, "/usr/bin/dracut", "")
    assert kernel.refresh_initramfs(host) is None
    assert kernel.refresh_initramfs(host) == "/usr/bin/dracut: no space left"
    put(host, "/usr/sbin/update-initramfs", "")
    kernel.refresh_initramfs(host)
    assert asked[-2:] == [
        ["/usr/bin/dracut", "--regenerate-all", "--force"],
        ["/usr/sbin/update-initramfs", "-u", "-k", "all"],
    ]


@pytest.mark.parametrize(("state", "code"), [(0, 0), (0, 1), (3, 0)])
def test_a_boot_without_its_modules_is_made_up_for(tmp_path: Path, state: int, code: int) -> None:
    codes = {"is-failed": state, "restart": code}
    host = Host(str(tmp_path), lambda argv, *_: Result(codes[argv[1]], "", ""))
    assert kernel.boot_list_failed(host) is (state == 0)
    assert kernel.load_boot_list(host) is (code == 0)


def test_system_name(host: Host) -> None:
    assert os_release.name(host) == "unknown-unknown"
    put(host, "/etc/os-release", RELEASE)
    assert os_release.keys(host)["PRETTY_NAME"] == "Debian GNU/Linux 12 (bookworm)"
    assert os_release.name(host) == "debian-12"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n', "rocky-9"),
        ('ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="8.10"\n', "rhel-8"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "ubuntu-24.04"),
    ],
)
def test_minor_releases_are_one_system_in_red_hats_family(host: Host, text: str, name: str) -> None:
    put(host, "/etc/os-release", text)
    assert os_release.name(host) == name


@pytest.mark.parametrize(
    ("path", "problems"),
    [
        ("/etc/cni/net.d/10-flannel.conflist", []),
        ("/etc/cni/net.d/87-podman-bridge.conflist", []),
        ("/etc/cni/net.d/00-old.conflist.bak", []),
        (
            "/etc/cni/net.d/10-containerd-net.conflist",
            [
                ("a network configuration would win over flannel's, and pods get other addresses — "
                "gpu-a — got /etc/cni/net.d/10-containerd-net.conflist / allowed no configuration "
                "before 10-flannel.conflist — Move it away, with what writes it.")
            ],
        ),
        *(
            (
                path,
                [
                    (f"another Kubernetes is on the host — gpu-a — got {name}: {shown} / allowed "
                    "none, or one that kubeadm made — Uninstall it by its own means, or take the "
                    "host out of the inventory.")
                ],
            )
            for name, path, shown in (
                ("k3s", "/etc/systemd/system/k3s-agent.service",
                 "/etc/systemd/system/k3s-agent.service"),
                ("rke2", "/var/lib/rancher/rke2/agent/x", "/var/lib/rancher/rke2"),
                ("microk8s", "/var/snap/microk8s/current/x", "/var/snap/microk8s"),
                ("k0s", "/var/lib/k0s/kubelet.conf", "/var/lib/k0s"),
            )
        ),
    ],
)  # fmt: skip
def test_what_would_keep_a_host_from_being_a_node(
    host: Host, path: str, problems: list[str]
) -> None:
    put(host, path, "x")
    assert node_conflicts.check(host, "gpu-a") == problems


@pytest.mark.parametrize(
    ("network", "names"),
    [
        ("flannel", ["cni0", "flannel.1"]),
        ("flannel", ["flannel-v6.1", "flannel-wg-v6"]),
        ("Calico", ["cali0f1e2d3c4b5", "vxlan.calico"]),
        ("Calico", ["vxlan-v6.calico", "wireguard.cali"]),
        ("Cilium", ["cilium_host", "cilium_net", "cilium_vxlan"]),
        ("Weave Net", ["weave"]),
        ("Antrea", ["antrea-gw0"]),
        ("OVN-Kubernetes", ["ovn-k8s-mp0"]),
        ("kube-router", ["kube-bridge", "kube-dummy-if"]),
        ("kube-proxy", ["kube-ipvs0"]),
        ("NodeLocal DNSCache", ["nodelocaldns"]),
    ],
)
def test_links_that_a_former_pod_network_left_are_refused(
    host: Host, network: str, names: list[str]
) -> None:
    for name in names:
        put(host, f"/sys/class/net/{name}/address", "x")
    assert node_conflicts.links(host) == {network: names}
    assert node_conflicts.check(host, "gpu-a") == [
        (
            "links of a former pod network keep its addresses, and pods cannot be reached"
            f" — gpu-a — got {', '.join(names)} of {network} / allowed none before the host joins"
            " — Reboot the host, or run 'ip link delete' for each; where they come back, remove"
            " what makes them."
        )
    ]
    put(host, "/var/lib/rancher/rke2/agent/x", "x")  # they are its own as long as it runs
    (said,) = node_conflicts.check(host, "gpu-a")
    assert "rke2" in said


def test_other_links_are_no_pod_networks(host: Host) -> None:
    names = (
        "lo",
        "eno1",
        "bond0",
        "ib0",
        "docker0",
        "cni-podman0",
        "virbr0",
        "tunl0",
        "california",
    )
    for name in names:
        put(host, f"/sys/class/net/{name}/address", "x")
    assert node_conflicts.check(host, "gpu-a") == []


def test_check_system(host: Host) -> None:
    put(host, "/etc/os-release", RELEASE)
    assert requirements.check_system(host, ["debian-12"], "", "gpu-a") == []
    assert requirements.check_system(host, ["debian-12"], "debian-12", "gpu-a") == []
    assert requirements.check_system(host, ["ubuntu-24.04", "rocky-9"], "", "gpu-a") == [
        (
            "the operating system is not supported — gpu-a — got debian-12 / allowed "
            "ubuntu-24.04, rocky-9 — Install a supported system, or take the host out of the "
            "inventory."
        )
    ]
    assert requirements.check_system(host, ["debian-12"], "ubuntu-24.04", "gpu-a") == [
        (
            "another operating system than declared — gpu-a — got debian-12 / allowed "
            "ubuntu-24.04 — Correct bedplate_host.os of this host's pool and run 'bedplate plan' "
            "again."
        )
    ]


def test_a_cpu_that_nothing_is_for_is_refused(tmp_path: Path) -> None:
    for answer, got in (
        (Result(0, "x86_64\n", ""), None),
        (Result(0, "aarch64\n", ""), "aarch64"),
        (Result(127, "", "uname: command not found"), "uname: command not found"),
    ):
        asked = Host(str(tmp_path), lambda *_, answer=answer: answer)
        what = "nothing that is installed here is for this host's CPU — gpu-a — got "
        fix = " / allowed x86_64 — Take the host out of the inventory."
        told = requirements.check_machine(asked, ["x86_64"], "gpu-a")
        assert told == ([what + got + fix] if got else [])


def test_listening_takes_listeners_of_both_families_only(host: Host) -> None:
    assert requirements.listening(host) == {}
    put(host, "/proc/net/tcp", TCP)
    put(host, "/proc/net/tcp6", TCP6)
    assert requirements.listening(host) == {6443: "4711", 10250: "99"}


def test_check_ports_names_who_holds_one(host: Host) -> None:
    put(host, "/proc/net/tcp", TCP)
    put(host, "/proc/net/tcp6", TCP6)
    put(host, "/proc/812/comm", "kubelet\n")
    folder = Path(host.path("/proc/812/fd"))
    folder.mkdir()
    (folder / "3").symlink_to("/dev/null")
    (folder / "4").symlink_to("socket:[99]")
    assert requirements.check_ports(host, [2379, 10250, 6443, 6443], "cp1") == [
        (
            "a port that Kubernetes needs is taken — cp1:6443/tcp — got used by another process / "
            "allowed a free port — Stop that program or give it another port."
        ),
        (
            "a port that Kubernetes needs is taken — cp1:10250/tcp — got used by kubelet (pid "
            "812) / allowed a free port — Stop that program or give it another port."
        ),
    ]


@pytest.mark.parametrize(
    ("configuration", "program", "accepted"),
    [
        ("# Managed by Bedplate (role control_plane_endpoint).\n{}", "haproxy", True),
        ("# Managed by Bedplate (role control_plane_endpoint).\n{}", "nginx", False),
        ("# Ours.\n{}", "haproxy", False),
        ("# Managed by Bedplate (role control_plane_endpoint).\n", "haproxy", False),
    ],
)
def test_the_port_that_our_own_haproxy_holds_is_free(
    host: Host, configuration: str, program: str, accepted: bool
) -> None:
    put(host, "/proc/net/tcp", TCP)
    put(host, "/proc/812/comm", f"{program}\n")
    folder = Path(host.path("/proc/812/fd"))
    folder.mkdir()
    (folder / "4").symlink_to("socket:[4711]")
    bind = "frontend api\n    bind *:6443\n"
    put(host, "/etc/haproxy/haproxy.cfg", configuration.format(bind))
    said = requirements.check_ports(host, [6443], "cp1")
    assert [f"used by {program} (pid 812)" in line for line in said] == [True] * (not accepted)


def test_check_disks_looks_at_the_folder_that_is_there(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    class State:
        f_bavail, f_frsize = 2048, 1024 * 1024

    def statvfs(path: object) -> State:
        seen.append(path)
        return State()

    monkeypatch.setattr(os, "statvfs", statvfs)
    Path(host.path("/var")).mkdir()
    enough = {"path": "/var/lib/containerd", "free_mib": "2048"}
    assert requirements.check_disks(host, [enough], "gpu-a") == []
    assert seen == [host.path("/var")]
    assert requirements.check_disks(host, [{**enough, "free_mib": 2049}], "gpu-a") == [
        (
            "too little disk space — gpu-a:/var/lib/containerd — got 2048 MiB free / allowed "
            "at least 2049 MiB — Free space there, or mount a larger disk."
        )
    ]
