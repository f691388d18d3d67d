"""What settings of several kinds share: their base, and the forms of names and sizes."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from bedplate.portable import quantities

MEMORY = r"^[0-9]{1,12}(\.[0-9]{1,9})?(Ki|Mi|Gi|Ti|k|M|G|T)$"
#: A name, or a name with a version: `kueue`, `pytorch-2.8`, `gpu-operator-26.7.0`.
NAMED = r"^[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*(-[0-9]+(\.[0-9]+)*)?$"
#: A namespace's name, and that of a team, whose queues are called by it.
NAMESPACE = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
#: Who logs in: a user's name, or `group:` and a group's.
MEMBER = r"^(group:)?[^\s:][^\s]*$"
POOL = r"^pool_[A-Za-z0-9_]+$"

#: What Pydantic calls the forms of a share where it says what is wrong with one.
BY_PART, BY_MEMORY, BY_GPUS = "<part>", "<memory>", "<gpus>"
#: A file of the site's. Ansible reads every other as an inventory, but for those with a dot before.
HIDDEN = r"^\.[^/\s.][^\s:]*$"

_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]+)(:[0-9]*)?")


def address(text: str) -> str:
    """Return an address that has a host, and no port or one that can be: no pattern says that.

    Raises:
        PydanticCustomError: it has not, as of a text of another form.
    """
    try:
        parts = urlsplit(text)
        place = parts.netloc.rpartition("@")[2]
        sound = bool(_HOST_AND_PORT.fullmatch(place) and parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address in them, or a port that is none
        sound = False
    if not sound:
        raise PydanticCustomError("string_pattern_mismatch", "no address", {"pattern": "http://"})
    return text


def memory(text: str) -> str:
    """Return an amount of memory in whole MiB, rounded up: `2G` as `1908Mi`, `1Ti` as `1024Gi`.

    Raises:
        PydanticCustomError: it is nothing, as of a text of another form.
    """
    mib = quantities.mebibytes(text)
    if not mib:
        raise PydanticCustomError("string_pattern_mismatch", "no memory", {"pattern": MEMORY})
    return quantities.memory(mib)


class Wish(BaseModel):
    """Base of all settings: immutable, nothing unknown, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


Memory = Annotated[str, Field(pattern=MEMORY), AfterValidator(memory)]
Named = Annotated[str, Field(pattern=NAMED)]
Name = Annotated[str, Field(pattern=NAMESPACE)]
Member = Annotated[str, Field(pattern=MEMBER)]
PoolName = Annotated[str, Field(pattern=POOL)]
_ONE_POOL = {"pattern": POOL, "type": "string"}
#: Pools in their order; one may be written by its name alone.
Pools = Annotated[
    list[PoolName],
    Field(min_length=1),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [_ONE_POOL, {"items": _ONE_POOL, "minItems": 1, "type": "array"}]}),
]
OwnFile = Annotated[str, Field(pattern=HIDDEN)]
