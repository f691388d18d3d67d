"""What `bedplate plan` and `bedplate explain` do with a site, beside deciding."""
