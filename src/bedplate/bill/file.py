"""The bill on disk: `SITE/.bedplate.bill.yml`, committed beside the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from pydantic import ValidationError

from bedplate.bill.model import FORMAT, Bill
from bedplate.common import reading
from bedplate.common.errors import LockError, Problem
from bedplate.common.lock_place import BILL
from bedplate.common.reading_yaml import parsed
from bedplate.lock.file import GENERATED, BlockDumper, write_text

if TYPE_CHECKING:
    from pathlib import Path

HEADER = (
    "# Written by `bedplate mirror resolve`: commit it, review its changes, don't edit it.\n"
    + GENERATED
)


def bill_path(site: Path) -> Path:
    """Return where the bill of *site* is."""
    return site / BILL


def render(bill: Bill) -> str:
    """Return the bill's text: the same content gives the same bytes."""
    content = bill.model_dump(mode="json", exclude_defaults=True)
    ordered = {"format": FORMAT} | {
        part: dict(sorted(content[part].items()))
        for part in ("files", "images", "packages", "refused")
        if part in content
    }
    body: str = yaml.dump(
        ordered, Dumper=BlockDumper, sort_keys=False, default_flow_style=False, width=200
    )
    return HEADER + body


def write_bill(site: Path, bill: Bill) -> bool:
    """Write the bill if it changes anything, and return whether it did."""
    return write_text(bill_path(site), render(bill))


def load_bill(site: Path) -> Bill | None:
    """Read the bill of *site*; None where there is none.

    Raises:
        LockError: it cannot be used.
    """
    path = bill_path(site)
    try:
        content = parsed(reading.content(path).decode())
        return Bill.model_validate(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _broken(site, None, reading.why(error)) from error
    except UnicodeDecodeError as error:
        raise _broken(site, None, "bytes that are not UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        got = getattr(error, "problem", None) or "no YAML"
        raise _broken(site, mark.line + 1 if mark else None, got) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise _broken(site, None, f"{key}: {first['msg']}") from error


def _broken(site: Path, line: int | None, got: str) -> LockError:
    problem = Problem(
        "bill of materials cannot be read",
        str(bill_path(site)),
        line,
        got=got,
        allowed="what `bedplate mirror resolve` writes",
        fix=f"restore it, or remove it and run: bedplate mirror resolve {site}",
        rule="bill",
    )
    return LockError([problem])
