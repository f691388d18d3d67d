"""Evidence of whether the control plane has its Secrets encrypted in etcd."""

from .. import certificates, encryption, encryption_keys
from ..host import Host
from ..refusal import ImpossibleError
from .area import Collected
from .checks import check, failed, skipped

FIX = "Run bedplate.gpu.encryption for all control planes."


def collect(host: Host, to: Collected) -> None:
    """Look at the keys of an API server; a host without one has none."""
    if not host.exists(certificates.API_SERVER):
        return
    what = "Secrets are encrypted in etcd, with one key"
    path = encryption.option(host)
    if path not in ("", encryption_keys.FILE):
        reason = f"its API server has keys of the site's own, in {path}"
        to.checks.append(skipped("secrets.encrypted", what, reason))
        return
    try:
        text = encryption.file(host)
    except ImpossibleError as error:
        to.checks.append(failed("secrets.encrypted", what, error.got, error.fix, ["a key"]))
        return
    keys = encryption_keys.read(text) or [encryption_keys.PLAIN]
    reason = "they lie in etcd, and in its backups, as they are"
    if len(keys) > 1:
        reason = "a run that replaces the key was cut off"
    found = [key.name or "none" for key in keys]
    newest = [found[0] if keys[0] != encryption_keys.PLAIN else "a key"]
    to.checks.append(check("secrets.encrypted", what, newest, found, FIX, reason))
