"""What modules' documentation has in common. What a module says itself replaces what is here."""


class ModuleDocFragment:
    """`bedplate.gpu.common` is for a module that changes a host; others are `common.NAME`."""

    DOCUMENTATION = r"""
author: [The Bedplate authors]
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: Shows the files that change, before and after.
    support: full
"""

    # For a module that changes no host, and so shows no difference.
    READS = r"""
author: [The Bedplate authors]
attributes:
  check_mode:
    description: It only reads.
    support: full
"""

    CHANGE_JOINED = r"""
options:
  change_joined:
    description: Whether a cluster node may be changed. If not, RV(pending) says what waits.
    type: bool
    default: false
"""

    FLAVOUR = r"""
options:
  flavour:
    description: The flavour of the kernel module.
    type: str
    choices: [open, proprietary]
    default: proprietary
"""

    HOST = r"""
options:
  host:
    description: The host's name in messages.
    type: str
    required: true
"""

    LOCK_DIGEST = r"""
options:
  lock_digest:
    description: The digest of the site's lock.
    type: str
    default: ""
"""

    LOCK_TIMEOUT = r"""
options:
  lock_timeout:
    description: Seconds to wait for another package manager.
    type: int
    default: 600
"""
