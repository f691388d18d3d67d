"""Where a site's packages lie in its mirror, and the key that signs them: a file of the site's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from bedplate.common import reading_yaml
from bedplate.common.errors import LockError, Problem
from bedplate.common.lock_place import PACKAGES
from bedplate.lock.file import BlockDumper, write_text
from bedplate.portable import openpgp

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "# Written by `bedplate mirror packages`: commit it; hosts trust the key that is in it.\n"
#: What stands for a vendor's host in the mirror's addresses; no such host exists.
HOST: Final = "packages.bedplate.internal"
SHORT = 16


class Place(BaseModel):
    """A site's repositories of packages.

    Attributes:
        fingerprint: of the key that signs them.
        key: its public half, with armour.
        systems: those whose hosts find their packages here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]
    systems: list[Annotated[str, Field(pattern=r"^[a-z]+-[0-9.]+$")]] = []
    key: str

    @property
    def address(self) -> str:
        """Return the site's folder, as ``HOST/PATH``: one for each key."""
        return f"{HOST}/{self.fingerprint[-SHORT:].lower()}"


def path_of(site: Path) -> Path:
    """Return where the file of *site* is."""
    return site / PACKAGES


def load(site: Path) -> Place | None:
    """Read the file of *site*; None where there is none.

    Raises:
        LockError: it can't be used.
    """
    try:
        place = reading_yaml.typed(Place, reading_yaml.value_at(path_of(site)))
        found = openpgp.fingerprints(place.key.encode())
    except FileNotFoundError:
        return None
    except reading_yaml.UnusableError as error:
        raise _broken(site, str(error)) from error
    except openpgp.KeyFileError as error:
        raise _broken(site, f"key: {error}") from error
    if found != [place.fingerprint]:
        raise _broken(site, f"the key {', '.join(found)} under the name {place.fingerprint}")
    return place


def write(site: Path, place: Place) -> bool:
    """Write the file of *site* if that changes anything, and return whether it did."""
    content = place.model_dump(mode="json", exclude={"key"})
    body = yaml.dump(content, Dumper=BlockDumper, sort_keys=False, default_flow_style=False)
    key = "".join(f"  {line}".rstrip() + "\n" for line in place.key.splitlines())
    return write_text(path_of(site), f"{HEADER}{body}key: |\n{key}")


def _broken(site: Path, got: str) -> LockError:
    problem = Problem(
        "place of the site's packages cannot be read",
        str(path_of(site)),
        got=got,
        allowed="what `bedplate mirror packages` writes",
        fix=f"restore it, or run: bedplate mirror packages {site}",
        rule="packages",
    )
    return LockError([problem])
