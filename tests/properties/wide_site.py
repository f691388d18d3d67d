"""A site with every wish in it: what is mutated where the demo and the example are silent."""

from __future__ import annotations

WIDE = {
    "hosts.yml": """\
all:
  children:
    control_plane:
      hosts:
        cp1: {ansible_host: 192.0.2.11}
        cp2: {ansible_host: 192.0.2.12}
        cp3: {ansible_host: 192.0.2.13, ansible_port: 2222, ansible_user: admin}
    gpu_pools:
      children:
        pool_train:
          hosts:
            train1: {ansible_host: 192.0.2.21}
            train2: {ansible_host: 192.0.2.22}
        pool_class:
          hosts:
            class1: {ansible_host: 192.0.2.31}
        pool_other:
          hosts:
            other1: {ansible_host: 192.0.2.41}
    hypervisors:
      children:
        pool_virtual:
          hosts:
            virtual1: {ansible_host: 192.0.2.51}
    slurm:
      children:
        pool_batch:
          hosts:
            batch1: {ansible_host: 192.0.2.61}
""",
    "group_vars/all/host.yml": """\
# Everything that a host can be asked for.
bedplate_host:
  os: debian-12
  kind: bare-metal
  kernel: 6.1.0-32-amd64
  secure_boot: false
bedplate_driver: {policy: lts, branch: "535", flavour: proprietary, source: distro}
bedplate_forward_compatibility: false
bedplate_cuda: ["12.2", "12.2.1"]
""",
    "group_vars/all/cluster.yml": """\
bedplate_kubernetes:
  version: "1.36"
  endpoint: k8s.example:6443
  cni: flannel
  pod_subnet: 10.244.0.0/16
  service_subnet: 10.96.0.0/12
  ignore_preflight: [SystemVerification]
bedplate_container_runtime: {name: containerd, source: archive}
bedplate_sources:
  mode: mirror
  url: http://mirror.example:5080
bedplate_schedulers: [kueue]
bedplate_operators:
  - gpu-operator
  - network-operator-26.1
bedplate_pins:
  containerd: 2.4.2
""",
    "group_vars/pool_train.yml": """\
bedplate_gpu:
  - model: h100-pcie-80gb
    count: 8
bedplate_rdma: {stack: inbox, operator: network-operator}
bedplate_frameworks: [pytorch-2.8]
bedplate_sharing: {mode: mig, profile: 1g.10gb}
""",
    "group_vars/pool_class.yml": """\
bedplate_gpu: {pci: "10de:1db5", subsystem: "10de:1249", count: 4}
bedplate_sharing:
  mode: mps
  replicas: 8
  seats: 30
""",
    "group_vars/pool_other.yml": """\
bedplate_accelerator:
  vendor: kunlun
  model: r200
  count: 8
bedplate_sharing: {mode: time-slicing, share: 0.25}
""",
    "group_vars/hypervisors.yml": """\
bedplate_host: {os: debian-12, kind: hypervisor}
""",
    "group_vars/pool_virtual.yml": """\
bedplate_passthrough:
  devices: ["0000:3b:00.0", "0000:3b:00.1"]
  iommu_groups:
    - ["0000:3b:00.0", "0000:3b:00.1"]
""",
    "group_vars/pool_batch.yml": """\
bedplate_gpu: {model: t4-16gb, count: 4}
""",
}
