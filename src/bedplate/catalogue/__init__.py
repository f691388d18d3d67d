"""What the world allows: facts as data, each with its source and date."""

from bedplate.catalogue.load import Catalogue, load_catalogue, read_catalogue

__all__ = ["Catalogue", "load_catalogue", "read_catalogue"]
