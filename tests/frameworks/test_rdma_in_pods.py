"""RDMA between pods on a kernel that has it: soft-RoCE, the real device plugin, and perftest.

An emulated machine is the node. Its pods are network namespaces whose programs have what pods of
teams have: another user, no capability, and of the devices those that the plugin gives. kubelet's
side of the plugin's interface is a stand-in; so are the PCI folders in which the plugin looks for
network cards, because soft-RoCE is no PCI device.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks import emulated
from tests.substrate.tools import build

ROLE = Path(__file__).parents[2] / "roles/rdma_device_plugin"
TOOL = build.tools()["rdma-device-plugin"]
PACKAGES = ["ibverbs-providers", "pci.ids", "perftest", "rdma-core", "util-linux"]
CONFIG, PLUGIN, KUBELET = "/etc/bedplate/config.json", "/usr/bin/rdma-plugin", "/usr/bin/kubelet.pl"
#: GetInfo, ListAndWatch and Allocate of one device, as kubelet asks for them: the machine has no
#: library for gRPC, whose messages these are in frames of HTTP/2.
ASKS = r"""
use strict; use IO::Socket::UNIX; $| = 1;
sub frame { my ($type, $flags, $stream, $body) = @_;
  return substr(pack("N", length $body), 1) . pack("CCN", $type, $flags, $stream) . $body }
sub ask { my ($path, $message) = @_;
  my ($plugin, $got, @fields) = (undef, "", ":method", "POST", ":scheme", "http", ":path", $path,
    ":authority", "kubelet", "content-type", "application/grpc", "te", "trailers");
  for (1 .. 600) {
    last if $plugin = IO::Socket::UNIX->new(Peer => "/var/lib/kubelet/plugins_registry/hca.sock");
    select undef, undef, undef, 0.2;
  }
  die "no plugin" unless $plugin;
  $plugin->autoflush(1);
  my $headers = "";
  while (my ($name, $value) = splice @fields, 0, 2) {
    $headers .= "\0" . chr(length $name) . $name . chr(length $value) . $value;
  }
  print $plugin "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 0, 0, ""), frame(1, 4, 1, $headers),
    frame(0, 1, 1, pack("CN", 0, length $message) . $message);
  while (read($plugin, my $head, 9) == 9) {
    my ($type, $flags) = unpack "x3CC", $head;
    my $size = unpack "N", "\0" . substr($head, 0, 3);
    read($plugin, my $body, $size) == $size or die "an end" if $size;
    print $plugin frame(4, 1, 0, "") if $type == 4 && !($flags & 1);
    $got .= $body if $type == 0;
    return substr $got, 5 if length $got > 4 && length $got >= 5 + unpack "N", substr $got, 1, 4;
    die "refused" if $type == 3 || $type == 7;
  }
  die "no answer";
}
my $info = ask("/pluginregistration.Registration/GetInfo", "");
my $healthy = () = ask("/v1beta1.DevicePlugin/ListAndWatch", "") =~ /Healthy/g;
my $answer = ask("/v1beta1.DevicePlugin/Allocate", "\n\x03\n\x010");
my %given = map { $_ => 1 } $answer =~ m{/dev/infiniband/\w+}g;
open my $file, ">", "/run/given"; print $file join " ", sort keys %given; close $file;
print join(" ", $info =~ m{rdma/hca} ? "rdma/hca" : "another", $healthy, sort keys %given), "\n";
"""
NODE = f"""
modprobe -a rdma_rxe ib_uverbs ib_umad rdma_ucm veth
ip link add rail0 type veth peer name rail1
ip link set rail0 up
ip link set rail1 up
ip address add 10.9.0.1/24 dev rail0
rdma link add rxe0 type rxe netdev rail0
card=/run/pci/0000:17:00.0
mkdir -p $card/net/rail0 $card/infiniband/rxe0 /run/drivers/mlx5_core
mkdir -p /var/lib/kubelet/plugins_registry
ln -s /run/drivers/mlx5_core $card/driver
echo pci:v000015B3d00001021sv000015B3sd00000001bc02sc07i00 > $card/modalias
mount --bind /run/pci /sys/bus/pci/devices
{PLUGIN} --config-file={CONFIG} > /run/plugin.log 2>&1 &
try plugin perl {KUBELET}
try log cat /run/plugin.log
mkdir /run/devices /run/none
cp --archive $(cat /run/given) /run/devices
pod() {{
  ip netns add $1
  ip link add host$1 type veth peer name eth0 netns $1
  ip address add 10.8.$2.1/24 dev host$1
  ip link set host$1 up
  ip -n $1 address add 10.8.$2.2/24 dev eth0
  ip -n $1 link set eth0 up
  ip -n $1 link set lo up
  ip -n $1 route add default via 10.8.$2.1
}}
echo 1 > /proc/sys/net/ipv4/ip_forward
pod a 1
pod b 2
# What pods have: DEVICES, LOCKED
inside() {{
  name=$1; shift
  ip netns exec $name unshare --mount sh -c 'mount --bind $DEVICES /dev/infiniband && exec "$@"' x \
    prlimit --memlock=$LOCKED:$LOCKED \
    setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs timeout 120 "$@"
}}
listens() {{ ip netns exec a ss --listening --tcp --numeric | grep --quiet ":$1 "; }}
# The server's port is there once its memory is registered, or never.
between() {{
  inside a ib_send_bw --ib-dev=rxe0 --gid-index=1 --iters=10 --port="$@" > /run/server.log 2>&1 &
  server=$!
  until listens $1 || ! kill -0 $server; do sleep 0.2; done
  inside b ib_send_bw --ib-dev=rxe0 --gid-index=1 --iters=10 --port="$@" 10.8.1.2
  ended=$?
  kill $server
  cat /run/server.log
  return $ended
}}
export DEVICES=/run/devices LOCKED=unlimited
try pods between 19000 --size=1048576
try connection_manager between 19001 --rdma_cm
LOCKED=65536
try limited between 19002 --size=1048576
DEVICES=/run/none LOCKED=unlimited
try without between 19003 --size=1048576
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> emulated.Tried:
    """Run all of it once, with the configuration that the role writes."""
    if not build.built(TOOL):
        subprocess.run([sys.executable, build.FOLDER / "build.py", TOOL.name], check=True)
    written = tmp_path_factory.mktemp("plugin") / "config.json"
    play = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "vars_files": [str(ROLE / "defaults/main.yml")],
            "vars": {"rdma_device_plugin_resources": {"rdma/hca": 999}},
            "tasks": [
                {
                    "ansible.builtin.template": {
                        "src": str(ROLE / "templates/rdma-device-plugin.json.j2"),
                        "dest": str(written),
                        "mode": "0644",
                    }
                }
            ],
        }
    ]
    book = written.with_name("play.yml")
    book.write_text(json.dumps(play))
    subprocess.run([Path(sys.executable).with_name("ansible-playbook"), book], check=True)
    files = {
        CONFIG: written.read_bytes(),
        PLUGIN: (build.path(TOOL) / "bin/k8s-rdma-shared-dp").read_bytes(),
        KUBELET: ASKS.encode(),
    }
    return emulated.ran(NODE, PACKAGES, kernel=emulated.KERNEL, files=files)


@pytest.mark.prove
def test_the_plugin_offers_the_devices_by_the_roles_configuration(node: emulated.Tried) -> None:
    assert node.well("plugin").split() == [
        "rdma/hca",
        "999",
        *(f"/dev/infiniband/{name}" for name in ("issm0", "rdma_cm", "umad0", "uverbs0")),
    ]


@pytest.mark.prove
def test_two_pods_speak_by_rdma_with_the_devices_and_without_a_capability(
    node: emulated.Tried,
) -> None:
    """Also where the network card's interface is the host's: the kernel asks the host's network."""
    said = node.well("pods")
    assert "Device         : rxe0" in said
    assert " 1048576    10 " in said


@pytest.mark.prove
def test_with_systemds_limit_of_locked_memory_nothing_is_sent(node: emulated.Tried) -> None:
    assert "Couldn't allocate MR" in node.badly("limited")


@pytest.mark.prove
def test_a_pod_that_asked_for_no_device_has_none(node: emulated.Tried) -> None:
    assert "BW average" not in node.badly("without")


@pytest.mark.prove
def test_addresses_are_not_found_by_the_connection_manager(node: emulated.Tried) -> None:
    """Its addresses are those of interfaces, and the pod has no interface of the network card's."""
    assert "ADDR_ERROR" in node.badly("connection_manager")
