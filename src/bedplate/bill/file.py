"""The bill on disk: `SITE/.bedplate.bill.yml`, committed beside the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from bedplate.bill.model import FORMAT, Bill
from bedplate.common import formats, reading_yaml
from bedplate.common.errors import LockError, Problem
from bedplate.common.lock_place import BILL
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
    try:
        content = reading_yaml.value_at(bill_path(site))
        formats.check(content, FORMAT)
        return reading_yaml.typed(Bill, content)
    except FileNotFoundError:
        return None
    except reading_yaml.UnusableError as error:
        raise _broken(site, error.line, str(error)) from error
    except formats.OtherFormatError as error:
        problem = Problem(
            "bill of materials is of another format",
            str(bill_path(site)),
            key="format",
            got=str(error.found),
            allowed=str(FORMAT),
            fix=error.fix(f"remove it and run: bedplate mirror resolve {site}"),
            rule="bill",
        )
        raise LockError([problem]) from error


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
