"""The way out through an HTTP proxy, as a file of the host.

Everything on the host that goes out reads it: our modules, and services by ``EnvironmentFile``. A
play's ``environment`` would do for modules only, and would show a password in every command line.
"""

from typing import Dict

#: Written by role host_proxy.
PATH = "/etc/bedplate/proxy.env"


def parsed(content: str) -> Dict[str, str]:
    """The variables of such a file."""
    pairs = (line.split("=", 1) for line in content.splitlines() if not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def variables(path: str = PATH) -> Dict[str, str]:
    """The host's variables; empty where it goes out directly."""
    try:
        with open(path, encoding="utf-8") as stream:
            return parsed(stream.read())
    except OSError:
        return {}
