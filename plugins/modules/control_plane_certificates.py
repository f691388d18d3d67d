#!/usr/bin/python
"""Renew the certificates of a control plane, and restart what reads them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane_certificates
short_description: Renew a control plane's certificates before they end
description:
  - Has kubeadm renew all its certificates where one of them ends soon, restarts the static pods
    that read them, and waits until the API server of this control plane is ready again.
  - Where nothing ends soon and every static pod was started since its files were written, nothing
    is changed. A run that was cut off is completed by the next.
  - Authorities are not renewed. Where one has ended, and where the key of one is kept elsewhere,
    the task is refused.
  - A control plane whose API server did not answer before is not waited for. Its etcd may need the
    others, whose certificates have ended too.
  - A host without an API server is left alone.
extends_documentation_fragment: [bedplate.gpu.common]
options:
  days:
    description: Certificates that are good for fewer days are renewed.
    type: int
    default: 30
  renew:
    description: Renew them in any case.
    type: bool
    default: false
  timeout:
    description: Seconds for a static pod to run again, and for the API server to be ready.
    type: int
    default: 300
attributes:
  check_mode:
    description: Says what would be renewed and restarted.
  diff_mode:
    description: Shows the certificates that are renewed, with their ends.
"""

EXAMPLES = r"""
- name: Renew what ends soon
  bedplate.gpu.control_plane_certificates:
"""

RETURN = r"""
renewed:
  description: The certificates that ended soon, or all with O(renew), each with its end.
  returned: success
  type: list
  elements: str
restarted:
  description: The static pods that were restarted.
  returned: success
  type: list
  elements: str
ends:
  description: When the first of all certificates and authorities ends now, and which one. Empty
    where there is no API server, and in check mode where something would be renewed.
  returned: success
  type: str
administrator:
  description: When the certificate in C(admin.conf) ends. Empty where C(ends) is.
  returned: success
  type: str
"""

from datetime import datetime, timezone

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.bedplate.gpu.plugins.module_utils.portable import certificates
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.host import Host
from ansible_collections.bedplate.gpu.plugins.module_utils.portable.refusal import refuse

AUTHORITY = "Renew it first as kubernetes.io's 'Manual Rotation of CA Certificates' says."


def due(
    module: AnsibleModule, host: Host, found: list[certificates.Certificate]
) -> list[certificates.Certificate]:
    """Return what is to be renewed; refuse what kubeadm would leave out, or sign in vain."""
    now = datetime.now(timezone.utc)
    everything = module.params["renew"] or certificates.cut_off(host)
    days = module.params["days"]
    chosen = [one for one in found if not one.authority and (everything or one.days(now) < days)]
    # kubeadm says so in a line of its output, and ends with status 0.
    kept = [one.name for one in chosen if one.external]
    if kept:
        refuse(
            module,
            "certificates are signed by an authority whose key is not on this host",
            ", ".join(kept),
            "authorities with their keys in /etc/kubernetes/pki",
            "Have them signed where the key is, put them in place, and run the play again:"
            " it restarts what reads them.",
        )
    ended = [str(one) for one in found if one.authority and one.days(now) < 0]
    if chosen and ended:
        refuse(
            module,
            "an authority of the cluster has ended",
            ", ".join(ended),
            "one that is still valid: what it signs is not trusted",
            AUTHORITY,
        )
    return chosen


def apply(module: AnsibleModule, host: Host, wanted: bool) -> list[str]:
    """Renew where that is wanted, restart what reads the files, and wait; return what restarted."""
    answered = certificates.answers(host)
    if wanted:
        certificates.renew(host)
    seconds = module.params["timeout"]
    restarted = []
    for name in certificates.READ:
        # The last two end by themselves where the API server was away for long.
        if name in certificates.outdated(host):
            certificates.restart(host, name, seconds)
            restarted.append(name)
    if answered and not certificates.await_answer(host, seconds):
        refuse(
            module,
            "this control plane is not ready again",
            f"no 'ok' at /readyz, or a static pod that does not run, after {seconds} s",
            "an API server that is ready, and all static pods",
            "See 'crictl ps --all' and 'journalctl -u kubelet' there, and run the play again.",
        )
    return restarted


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "days": {"type": "int", "default": certificates.DAYS},
            "renew": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    host = Host()
    if not host.exists(certificates.API_SERVER):
        module.exit_json(changed=False, renewed=[], restarted=[], ends="", administrator="")
    try:
        found = certificates.find(host)
        chosen = due(module, host, found)
        if module.check_mode:
            restarted = list(certificates.READ) if chosen else certificates.outdated(host)
        else:
            restarted = apply(module, host, bool(chosen))
            found = certificates.find(host) if chosen else found
    except certificates.UnreadError as error:
        refuse(
            module,
            "the control plane's certificates cannot be renewed",
            str(error),
            "'kubeadm certs', 'crictl ps' and 'crictl stop' end well",
            "Run it by hand, fix what it says, and run the play again.",
        )
    known = [] if module.check_mode and chosen else found
    admin = [certificates.day(one.ends) for one in known if one.name == "admin.conf"]
    before = "".join(f"{one}\n" for one in chosen)
    after = "".join(f"{one.name} is renewed\n" for one in chosen)
    module.exit_json(
        changed=bool(chosen or restarted),
        renewed=[str(one) for one in chosen],
        restarted=restarted,
        ends=str(min(known, key=lambda one: one.ends)) if known else "",
        administrator="".join(admin),
        diff={
            "before": before,
            "after": after + "".join(f"{name} is restarted\n" for name in restarted),
        },
    )


if __name__ == "__main__":
    main()
