"""What the world allows: facts as data, each with its source and date."""

from bedplate.catalogue.load import Catalogue, load_catalogue, read_catalogue
from bedplate.catalogue.of_site import catalogue_of

__all__ = ["Catalogue", "catalogue_of", "load_catalogue", "read_catalogue"]
