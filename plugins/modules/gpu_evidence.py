#!/usr/bin/python
"""Collect evidence of what a GPU host really has, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_evidence
short_description: Check a host against what it was to have, and write evidence
description:
  - Collects tri-state checks (pass, fail, or skipped with a reason) on the host.
  - The action plugin of the same name adds subject, time and lock, writes the evidence on the
    control side where O(evidence_dir) is given, and fails with all failed checks.
  - Evidence is a report. It never counts as a change.
extends_documentation_fragment: [bedplate.gpu.common.reads, bedplate.gpu.common.lock_digest]
options:
  name:
    description: The host's name in messages and evidence.
    type: str
    required: true
  pool:
    description: The host's pool. Empty for hosts without one.
    type: str
    default: ""
  areas:
    description: What to look at.
    type: list
    elements: str
    choices: [baseline, kernel, driver, gpus, health, compute, runtime, toolkit, kubernetes, plugin,
      container, isolation, fabric, cuda, sharing, slurm, owned, updates, passthrough, licence,
      rdma, hpc]
    required: true
  gpus:
    description: GPUs that the site declares for the host. Empty skips the GPU side with a reason.
    type: list
    elements: dict
    default: []
  gpu_memory_gib:
    description: Memory of a GPU in GiB, by model. A model that is not named is not judged by it.
    type: dict
    default: {}
  driver_version:
    description: The driver's version.
    type: str
    default: ""
  driver_flavour:
    description: The flavour of the kernel module.
    type: str
    choices: [open, proprietary]
    default: proprietary
  driver_packages:
    description: The driver's packages and their versions.
    type: dict
    default: {}
  driver_options:
    description: Options of kernel modules, by module, that the driver was to be loaded with.
    type: dict
    default: {}
  containerd_version:
    description: The container runtime's version. Empty skips the check.
    type: str
    default: ""
  toolkit_version:
    description: The container toolkit's version. Empty skips the check.
    type: str
    default: ""
  kubelet_version:
    description: The kubelet's version. Empty skips the check.
    type: str
    default: ""
  certificate_days:
    description: Days that certificates of a control plane are to be good for at least.
    type: int
    default: 30
  baseline:
    description:
      - What role host_baseline keeps, as C(settings) (the options of
        M(bedplate.gpu.kernel_settings)), C(kernel), C(kernel_packages), C(kernel_followers),
        C(headers) and C(secure_boot).
    type: dict
    default: {}
  plugin_image:
    description: The device plugin's image. Containers are tried with it.
    type: str
    default: ""
  containers:
    description: How containers run on the host. Empty skips what is not asked of every runtime.
    type: dict
    suboptions:
      runtime:
        description: The container runtime.
        type: str
        choices: [containerd, cri-o, docker, podman]
        default: containerd
      default:
        description: The handler of containers that name none. With V(nvidia) any container may ask
          for GPUs by C(NVIDIA_VISIBLE_DEVICES), where that is accepted.
        type: str
        default: runc
      accepts_variable:
        description: Whether containers without privileges get the GPUs that they name in
          C(NVIDIA_VISIBLE_DEVICES) under the handler V(nvidia). Otherwise they are to get none.
        type: bool
        default: true
      nvidia_runtime:
        description: The program of the handler V(nvidia).
        type: path
        default: /usr/local/bin/nvidia-container-runtime
      packages:
        description: The runtime's packages, by name, that are held. Empty where it comes from an
          archive, which skips the check.
        type: list
        elements: str
        default: []
      sandbox_image:
        description: The image of pod sandboxes. Empty skips the check.
        type: str
        default: ""
      cdi_spec:
        description: The CDI specification. Empty skips its checks.
        type: str
        default: ""
      image:
        description: The image of the containers that area V(isolation) starts, and V(container)
          with another runtime than containerd. They are looked at
          from outside, so that the pod sandbox image will do. Empty skips them.
        type: str
        default: ""
      command:
        description: A program that stays, for an image whose own does not, such as C(sleep). With
          one the image is taken to have a C library, and C(nvidia-smi) is asked inside too.
        type: list
        elements: str
        default: []
      cases:
        description: Which ways to ask are tried. V(core) are those by which a container could get
          more than it was given, V(all) are all values that NVIDIA documents.
        type: str
        choices: [core, all]
        default: core
  drift:
    description:
      - Look for what has changed since. Differences are then no failure, and what was found is
        written as C(drift-<name>.json) next to the evidence, which stays.
    type: bool
    default: false
  fabric:
    description: What role nvidia_fabric keeps, by the names of its variables less their prefix,
      with C(families) and C(services).
    type: dict
    default: {}
  cuda:
    description: What role cuda_toolkit keeps, by the names of its variables less their prefix.
    type: dict
    default: {}
  sharing:
    description: What role gpu_sharing keeps, by the names of its variables less their prefix.
    type: dict
    default: {}
  slurm:
    description: The host's part in Slurm, as role slurm says it. Empty skips the area V(slurm).
    type: dict
    default: {}
  passthrough:
    description: What role gpu_passthrough keeps, by the names of its variables less their prefix.
    type: dict
    default: {}
  licence:
    description: What a guest with shares of GPUs is licensed for, as C(vgpu) (its profiles) and
      C(licence_feature), by the names of role gpu_passthrough's variables less their prefix.
    type: dict
    default: {}
  rdma:
    description: What role rdma keeps, by the names of its variables less their prefix.
    type: dict
    default: {}
  hpc:
    description: What role hpc_tools keeps, by the names of its variables less their prefix.
    type: dict
    default: {}
  waits:
    description: Checks, by id, that are known to wait for something else. The evidence says of them
      what is found; that they fail does not fail this task.
    type: list
    elements: str
    default: []
  evidence_dir:
    description: Folder on the control side that takes the evidence. Empty writes none.
    type: str
    default: ""
attributes:
  check_mode:
    description: It only reads, and writes no evidence in check mode.
"""

EXAMPLES = r"""
- name: See whether the driver works
  bedplate.gpu.gpu_evidence:
    name: "{{ inventory_hostname }}"
    areas: [driver]
    gpus: [{model: t4-16gb, pci: ["10de:1eb8"], count: 4}]
    driver_version: 535.261.03
    driver_packages: {nvidia-smi: 535.261.03-1~deb12u1}
"""

RETURN = r"""
failing:
  description: The ids of the failed checks, less those of O(waits).
  returned: where the task fails for what was found
  type: list
  elements: str
waiting:
  description: The ids of those of O(waits) that failed.
  returned: where there are any
  type: list
  elements: str
differences:
  description: The failed checks as messages, with O(drift).
  returned: with O(drift)
  type: list
  elements: str
evidence:
  description: The evidence, as it is written.
  returned: success
  type: dict
summary:
  description: How many checks passed, failed and were skipped.
  returned: always
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import certificates
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.evidence import (
    host as host_evidence,
)
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.evidence.area import Wishes
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host

CONTAINERS: dict[str, Any] = {
    "runtime": {
        "type": "str",
        "choices": ["containerd", "cri-o", "docker", "podman"],
        "default": "containerd",
    },
    "default": {"type": "str", "default": "runc"},
    "accepts_variable": {"type": "bool", "default": True},
    "nvidia_runtime": {"type": "path", "default": "/usr/local/bin/nvidia-container-runtime"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "sandbox_image": {"type": "str", "default": ""},
    "cdi_spec": {"type": "str", "default": ""},
    "image": {"type": "str", "default": ""},
    "command": {"type": "list", "elements": "str", "default": []},
    "cases": {"type": "str", "choices": ["core", "all"], "default": "core"},
}


def main() -> None:
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "pool": text,
            "areas": {
                "type": "list",
                "elements": "str",
                "choices": list(host_evidence.AREAS),
                "required": True,
            },
            "gpus": {"type": "list", "elements": "dict", "default": []},
            "gpu_memory_gib": {"type": "dict", "default": {}},
            "driver_version": text,
            "driver_flavour": {
                "type": "str",
                "choices": ["open", "proprietary"],
                "default": "proprietary",
            },
            "driver_packages": {"type": "dict", "default": {}},
            "driver_options": {"type": "dict", "default": {}},
            "containerd_version": text,
            "toolkit_version": text,
            "kubelet_version": text,
            "certificate_days": {"type": "int", "default": certificates.DAYS},
            "plugin_image": text,
            "fabric": {"type": "dict", "default": {}},
            "cuda": {"type": "dict", "default": {}},
            "sharing": {"type": "dict", "default": {}},
            "slurm": {"type": "dict", "default": {}},
            "baseline": {"type": "dict", "default": {}},
            "containers": {"type": "dict", "options": CONTAINERS},
            "drift": {"type": "bool", "default": False},
            "passthrough": {"type": "dict", "default": {}},
            "licence": {"type": "dict", "default": {}},
            "rdma": {"type": "dict", "default": {}},
            "hpc": {"type": "dict", "default": {}},
            "waits": {"type": "list", "elements": "str", "default": []},
            "evidence_dir": text,
            "lock_digest": text,
        },
        supports_check_mode=True,
    )
    wish = module.params
    wishes = Wishes(**{name: wish[name] for name in Wishes._fields if wish[name] is not None})
    module.exit_json(changed=False, collected=host_evidence.collect(Host(), wishes, wish["areas"]))


if __name__ == "__main__":
    main()
