"""The keys by which an API server encrypts Secrets before etcd stores them. Pure functions.

It encrypts with the first of its file and decrypts with any. So a key is replaced in three steps,
each on all control planes before the next: all know the new one, all write with it, and once every
Secret was written with it, the one of before goes (kubernetes.io, "Encrypting Confidential Data at
Rest", read 2026-12-01).
"""

import base64
import hashlib
import json
import secrets
from typing import Any, Dict, Iterable, List, NamedTuple

#: Below the folder that kubeadm gives its API server to read, and empties at a reset.
NAME = "encryption.json"
FILE = "/etc/kubernetes/pki/" + NAME
OPTION = "encryption-provider-config"
#: What stands in etcd before what a key of this kind has encrypted: the key's name comes next.
MARK = "k8s:enc:secretbox:v1:"
BYTES = 32
KNOWN, FIRST, ALONE = "known", "first", "alone"


class Key(NamedTuple):
    """A key: its name, and its bytes in Base64."""

    name: str
    secret: str

    @property
    def number(self) -> int:
        """A newer key has a higher one."""
        return int(self.name[3:].partition("-")[0] or 0)


#: Stands for no encryption: what is first with a cluster whose Secrets were never encrypted.
PLAIN = Key("", "")


def fresh() -> str:
    """A new key's bytes."""
    return base64.b64encode(secrets.token_bytes(BYTES)).decode()


def named(number: int, secret: str) -> Key:
    """A key with the name that stands in etcd before what it has encrypted: no other has it."""
    return Key(f"key{number}-{hashlib.sha256(secret.encode()).hexdigest()[:8]}", secret)


def for_a_new_cluster() -> str:
    """The file of a cluster's first control plane."""
    return written([named(1, fresh())])


def written(keys: List[Key]) -> str:
    """The file that has these keys, in this order."""
    plain: Dict[str, Any] = {"identity": {}}
    own = [{"name": key.name, "secret": key.secret} for key in keys if key != PLAIN]
    providers = [{"secretbox": {"keys": own}}] if own else []
    if PLAIN in keys:
        providers.insert(0 if keys[0] == PLAIN else 1, plain)
    found = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    return json.dumps(found, indent=2) + "\n"


def read(text: str) -> List[Key]:
    """The keys of a file, in their order; none where there is no file.

    Raises:
        ValueError: it is not as `written` writes it.
    """
    keys: List[Key] = []
    if not text:
        return keys
    try:
        (part,) = json.loads(text)["resources"]
        for provider in part["providers"]:
            ((kind, content),) = provider.items()
            keys += [PLAIN] if kind == "identity" else [Key(**one) for one in content["keys"]]
        good = all(key == named(key.number, key.secret) for key in keys if key != PLAIN)
        if good and written(keys) == text and len(set(keys)) == len(keys):
            return keys
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        pass
    raise ValueError(f"{FILE} is not as Bedplate writes it")


def all_of(files: Iterable[str], secret: str = "") -> List[Key]:
    """All keys that control planes have, the newest first; with ``secret`` one more.

    One without a file stores Secrets as they are, and the others have to read those too.

    Raises:
        ValueError: a file cannot be read.
    """
    known = {key for text in files for key in read(text) or [PLAIN]}
    if secret:
        known.add(named(max((key.number for key in known), default=0) + 1, secret))
    return sorted(known, key=lambda key: (key.number, key.name), reverse=True)


def after(step: str, text: str, known: List[Key]) -> str:
    """The file of a control plane after a step, which has ``text`` now.

    Raises:
        ValueError: it has a key that is not known: another run has brought it.
    """
    own = read(text) or [PLAIN]
    if not set(own) <= {*known, PLAIN}:
        raise ValueError("keys that came after this run had read them")
    if step == KNOWN:
        return written([own[0], *(key for key in known if key != own[0])])
    return written(known if step == FIRST else known[:1])
