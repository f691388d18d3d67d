"""A share that is logged in to over SSH: the pod runs the image's own sshd, without root.

A login has the environment of the container. What limits a share is partly in there (MPS's pipe, a
preloaded library, a framework's fraction): a login that came without it would be free of the limit.
Standard library only.
"""

from __future__ import annotations

import re
from typing import Any, Final

from bedplate.pods.hub.shares import Object, ShareError

PORT: Final = 2222
USER: Final = "share"
NUMBER: Final = 1000
HOME: Final = "/home/share"
KEY: Final = "BEDPLATE_SSH_KEY"
#: In the pod's annotations, from where it is mounted: the image need not know the user.
ACCOUNTS: Final = "bedplate.io/passwd"
PUBLIC: Final = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9@.-]+) [A-Za-z0-9+/=]{40,2000}"
    r"( [^\x00-\x1f]{0,200})?"
)
#: OpenSSH reads the variables of a login from ~/.ssh/environment, a line each.
SCRIPT: Final = f"""set -eu
umask 077
own=$HOME/.ssh
mkdir -p "$own"
printf '%s\\n' "${KEY}" >"$own/authorized_keys"
[ -e "$own/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$own/host"
unset {KEY}
env | grep -E '^[A-Za-z_][A-Za-z0-9_]*=' >"$own/environment"
cat >"$own/sshd" <<END
Port ${{BEDPLATE_SSH_PORT:-{PORT}}}
HostKey $own/host
AuthorizedKeysFile $own/authorized_keys
AuthenticationMethods publickey
PermitUserEnvironment yes
AllowAgentForwarding no
X11Forwarding no
StrictModes no
PidFile none
UsePAM no
END
exec "${{BEDPLATE_SSHD:-/usr/sbin/sshd}}" -D -e -f "$own/sshd"
"""


def public_key(text: str) -> str:
    """Return the public key in the text of a file. Raises ShareError."""
    key = text.strip()
    if not PUBLIC.fullmatch(key):
        got = "a private key" if "PRIVATE KEY" in key else f"{len(key.splitlines())} lines"
        fix = "name the file that ends in .pub"
        raise ShareError("no public key of SSH", got, "one line, as ssh-ed25519 AAAA… name", fix)
    return key


def with_login(job: Object, key: str) -> Object:
    """Let a share's Job run sshd for the owner of a public key, in place of its command."""
    template = job["spec"]["template"]
    spec: dict[str, Any] = template["spec"]
    (container,) = spec["containers"]
    accounts = f"root:x:0:0:root:/root:/bin/sh\n{USER}:x:{NUMBER}:{NUMBER}::{HOME}:/bin/sh\n"
    metadata = template["metadata"]
    metadata["annotations"] = {**metadata["annotations"], ACCOUNTS: accounts}
    container["command"] = ["/bin/sh", "-c", SCRIPT]
    container["env"] = [
        *container.get("env", []),
        {"name": KEY, "value": key},
        {"name": "HOME", "value": HOME},
    ]
    container["ports"] = [{"name": "ssh", "containerPort": PORT}]
    container["volumeMounts"] += [
        {"name": "home", "mountPath": HOME},
        {"name": "accounts", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True},
    ]
    field = {"fieldPath": f"metadata.annotations['{ACCOUNTS}']"}
    spec["volumes"] += [
        {"name": "home", "emptyDir": {}},
        {"name": "accounts", "downwardAPI": {"items": [{"path": "passwd", "fieldRef": field}]}},
    ]
    spec["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": NUMBER,
        "runAsGroup": NUMBER,
        "fsGroup": NUMBER,
    }
    return job
