"""Munge's key: the secret by which the hosts of a Slurm cluster know each other."""

import base64
import binascii
import os
import pwd
import shutil
import tempfile

from ..host import Host

PATH = "/etc/munge/munge.key"
USER = "munge"
MODE = 0o400
#: What munged takes, in bytes: munge.key is read whole, and mungekey(8) makes 32 to 1024.
LENGTHS = range(32, 1025)


def decoded(text: str) -> bytes:
    """The key's bytes from Base64, empty for an empty text. Raises ValueError without the text."""
    try:
        key = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise ValueError("no Base64") from None
    if text.strip() and len(key) not in LENGTHS:
        raise ValueError(f"{len(key)} bytes")
    return key


def present(host: Host) -> bytes:
    """The host's key, empty where it has none."""
    try:
        with open(host.path(PATH), "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def well_kept(host: Host, user: str = USER) -> bool:
    """Whether the key is its user's own and nobody else can read it."""
    try:
        now, owner = os.stat(host.path(PATH)), pwd.getpwnam(user)
    except (OSError, KeyError):
        return False
    return (now.st_mode & 0o7777, now.st_uid, now.st_gid) == (MODE, owner.pw_uid, owner.pw_gid)


def put(host: Host, key: bytes, user: str = USER) -> None:
    """Put the key in place in one step: munge and a power cut see the old one or the new one."""
    path = host.path(PATH)
    handle, fresh = tempfile.mkstemp(prefix=".bedplate.", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(key)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(fresh, MODE)
        shutil.chown(fresh, user, pwd.getpwnam(user).pw_gid)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
