"""What of a site's sources does not go together: a mirror is one address, or two servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bedplate.resolver.explanations import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bedplate.common.errors import Problem
    from bedplate.site.site import Site, SiteHost

SOURCES, LOGIN = "bedplate_sources", "bedplate_sources_login"
OWN = ("files", "registry")


def problems_of(site: Site, host: SiteHost) -> Iterator[Problem]:
    """Yield what is wrong with the sources of a site, as one of its hosts says them."""
    sources, login = host.wishes.bedplate_sources, host.wishes.bedplate_sources_login
    own = [key for key in OWN if getattr(sources, key) is not None]
    if sources.mode == "upstream":
        for key in ("url", *OWN, "ca"):
            if (got := getattr(sources, key)) is not None:
                fix = f"write mode: mirror, or remove {key}"
                yield refused(
                    "upstream-url", host, (SOURCES, key), got, f"{key} with mode mirror", fix
                )
    elif sources.url is None and not own:
        fix = "add url, or write mode: upstream"
        yield refused("mirror-url", host, (SOURCES,), "mode mirror", "mode with url", fix)
    elif sources.url is not None and own:
        fix = "remove url, or files and registry"
        got, allowed = f"url and {' and '.join(own)}", "url, or files and registry"
        yield refused("mirror-two", host, (SOURCES, own[0]), got, allowed, fix)
    elif sources.url is None and len(own) < len(OWN):
        lacking = next(key for key in OWN if key not in own)
        got, fix = f"{own[0]} alone", f"add {lacking}"
        yield refused("mirror-half", host, (SOURCES, own[0]), got, "files and registry", fix)
    runtime = host.wishes.bedplate_container_runtime.name
    # Only nodes pull by their runtime. Docker's users pull as its daemon.json says.
    if (own or sources.ca is not None) and runtime != "containerd" and site.nodes:
        path, fix = ("bedplate_container_runtime", "name"), "write name: containerd"
        allowed = "containerd, which is given authorities and a login"
        yield refused("own-runtime", host, path, runtime, allowed, fix)
    if login is not None:
        yield from _login(host, own)


def _login(host: SiteHost, own: list[str]) -> Iterator[Problem]:
    sources = host.wishes.bedplate_sources
    if not own:
        allowed, fix = "a login with files and registry", f"remove {LOGIN}"
        got = "no server of the site's own"
        yield refused("login-nowhere", host, (LOGIN,), got, allowed, fix)
    elif sources.files is not None and not sources.files.startswith("https://"):
        allowed = "https with a login"
        fix = f"write https, or remove {LOGIN}: a password would be sent unencrypted"
        yield refused("login-unencrypted", host, (SOURCES, "files"), sources.files, allowed, fix)
