#!/usr/bin/python
"""Choose the CUDA toolkit that programs get when they name none."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_default
short_description: Have /usr/local/cuda lead to one toolkit
description:
  - By the alternatives that the toolkits' packages keep, so that they and this agree.
  - Refuses a folder or an unmanaged link in that place.
  - Has the loader read its folders again where the link, or the role's own file with its folder, is
    newer than what it knows.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  version:
    description: The toolkit, as V(12.9) or V(12.9.1).
    type: str
    required: true
attributes:
  diff_mode:
    description: Shows where the link leads before and after.
"""

EXAMPLES = r"""
- name: Give programs CUDA 12.9
  bedplate.gpu.cuda_default:
    version: 12.9.1
"""

RETURN = r"""
folder:
  description: Where the link leads afterwards.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import cuda
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host


def main() -> None:
    module = AnsibleModule(
        argument_spec={"version": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    version, host = module.params["version"], Host()
    before = cuda.default(host)
    try:
        chosen = cuda.choose(host, version, module.check_mode)
        refreshed = cuda.refresh(host, module.check_mode)
    except cuda.CudaError as error:
        module.fail_json(msg=str(error))
    after = cuda.folder(version)
    module.exit_json(
        changed=chosen or refreshed,
        folder=after,
        diff=[
            {"before": f"{before or 'none'}\n", "after": f"{after}\n"},
            {"prepared": f"{cuda.CACHE}: made again\n" if refreshed else ""},
        ],
    )


if __name__ == "__main__":
    main()
