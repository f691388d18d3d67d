"""Evidence of when a control plane's certificates end, and of programs that run with old ones."""

from datetime import datetime, timezone

from .. import certificates
from ..host import Host
from .area import Collected, Wishes
from .checks import check, failed

RENEW = "Run bedplate.gpu.certificates for this control plane."
AUTHORITY = (
    "kubeadm renews no authority: make a new one as kubernetes.io's 'Manual Rotation of CA"
    " Certificates' says, before it ends."
)


def collect(host: Host, wish: Wishes, to: Collected) -> None:
    """Look at the certificates that kubeadm manages; a host without an API server has none."""
    if not host.exists(certificates.API_SERVER):
        return
    days = wish.certificate_days
    what = f"certificates of the control plane are good for {days} days"
    try:
        found = certificates.find(host)
    except certificates.UnreadError as error:
        fix = "Run 'kubeadm certs check-expiration' on the host, and fix what it says."
        to.checks.append(failed("certificates.ends", what, str(error), fix, []))
        return
    first = min(found, key=lambda one: one.ends)
    to.facts["certificates"] = {"name": first.name, "ends": certificates.day(first.ends)}
    now = datetime.now(timezone.utc)
    soon = [one for one in found if one.days(now) < days]
    own = [str(one) for one in soon if not one.authority]
    to.checks.append(check("certificates.ends", what, [], own, RENEW))
    theirs = [str(one) for one in soon if one.authority]
    what = f"authorities of the cluster are good for {days} days"
    to.checks.append(check("certificates.authorities", what, [], theirs, AUTHORITY))
    what = "programs of the control plane run with the certificates that are there"
    try:
        old = certificates.outdated(host)
    except certificates.UnreadError as error:
        fix = "See 'crictl ps' on the host."
        to.checks.append(failed("certificates.in_use", what, str(error), fix, []))
        return
    reason = "started before their certificates, or the key of Secrets, were replaced"
    if certificates.cut_off(host):
        reason = "a run was cut off while it renewed them"
        old = old or ["all"]
    to.checks.append(check("certificates.in_use", what, [], old, RENEW, reason))
