"""`bedplate report SITE`: evidence to one HTML page and JUnit XML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.evidence.junit import junit
from bedplate.evidence.model import Result, load_evidence

if TYPE_CHECKING:
    from pathlib import Path
