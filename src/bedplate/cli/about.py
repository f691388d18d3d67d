"""What `bedplate --version` prints: the package, and how old the facts are that it decides with."""

from __future__ import annotations

from importlib.metadata import version

from bedplate.catalogue import load_catalogue

#: As many digits as tell two catalogues apart.
SHORT = 12


def version_line() -> str:
    """Return the version, the catalogue's digest and the day of its newest fact."""
    catalogue = load_catalogue()
    days = [fact.source.read for table in catalogue.tables().values() for fact in table.values()]
    digest = catalogue.digest.removeprefix("sha256:")[:SHORT]
    return f"bedplate {version('bedplate')}, catalogue {digest}, newest fact read {max(days)}"
