"""The user's wishes: an Ansible inventory directory, read, typed and placed."""

from bedplate.site.load import Site, SiteHost, load_site
from bedplate.site.model import Wishes

__all__ = ["Site", "SiteHost", "Wishes", "load_site"]
