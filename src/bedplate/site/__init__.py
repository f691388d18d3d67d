"""The user's wishes: an Ansible inventory directory, read, typed and placed."""

from bedplate.site.load import load_site
from bedplate.site.model import Wishes
from bedplate.site.site import Site, SiteHost

__all__ = ["Site", "SiteHost", "Wishes", "load_site"]
