"""The stand-in for the internet: vendors' layouts, redirects, tokens, faults, log."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.substrate.internet.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from email.message import Message

    from tests.substrate.internet.fixtures import Served

TARBALL = "https://github.com/containerd/containerd/releases/download/v2/containerd.tar.gz"
EITHER = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"


class Redirected(urllib.request.HTTPRedirectHandler):
    """Follow redirects as registries' clients do: credentials stay with the host that asked."""

    def redirect_request(self, req: urllib.request.Request, *given: Any) -> Any:
        """Leave the authorization out."""
        new = super().redirect_request(req, *given)
        if new and new.host != req.host:
            new.headers.pop("Authorization", None)
        return new


def get(url: str, headers: Mapping[str, str] = {}) -> tuple[bytes, Message]:
    """Fetch with the trust that the environment names."""
    context = ssl.create_default_context()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), Redirected
    )
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - the tests' own
    with opener.open(request, timeout=10) as answer:
        return answer.read(), answer.headers


@pytest.fixture
def named(internet: Served) -> Iterator[Served]:
    """The stand-in under the vendors' names."""
    with internet.names():
        yield internet


def refused(url: str, headers: Mapping[str, str] = {}) -> urllib.error.HTTPError:
    with pytest.raises(urllib.error.HTTPError) as error:
        get(url, headers)
    return error.value


def test_files_lie_at_the_vendors_paths_and_releases_are_redirected(named: Served) -> None:
    named.tree.put("https://dl.k8s.io/v1/node.tar.gz.sha256", b"00")
    named.tree.put(TARBALL, b"content")
    assert get("https://dl.k8s.io/v1/node.tar.gz.sha256")[0] == b"00"
    assert get(TARBALL)[0] == b"content"
    assert refused("https://dl.k8s.io/v2/node.tar.gz").code == 404
    assert refused(TARBALL + ".sha256sum").code == 404
    assert [(r.host, r.status, r.size) for r in named.records.requests()] == [
        ("dl.k8s.io", 200, 2),
        ("github.com", 302, 0),
        ("release-assets.githubusercontent.com", 200, 7),
        ("dl.k8s.io", 404, 0),
        ("github.com", 404, 0),
    ]


def test_who_does_not_trust_the_authority_gets_nothing(internet: Served) -> None:
    internet.tree.put(TARBALL, b"content")
    with internet.names(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", "/dev/null")
        patch.setenv("SSL_CERT_DIR", "/nonexistent")
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(TARBALL)
    assert internet.records.requests() == []


def test_no_other_name_is_led_anywhere(named: Served) -> None:
    with pytest.raises(urllib.error.URLError, match=r"example\.com is no host of the stand-in"):
        get("https://example.com/")


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("ghcr.io/flannel-io/flannel:v1", "ghcr.io"),
        ("nvcr.io/nvidia/k8s-device-plugin:v1", "nvcr.io"),
        ("quay.io/jupyterhub/k8s-hub:v1", "quay.io"),
        ("docker.io/library/debian:12-slim", "registry-1.docker.io"),
    ],
)
def test_a_registry_takes_only_the_token_that_it_sent_for(
    named: Served, name: str, host: str
) -> None:
    digest = named.tree.image(name, (b"layer of it",))
    repository, _, tag = name.partition("/")[2].rpartition(":")
    manifest = f"https://{host}/v2/{repository}/manifests/{tag}"
    challenge = refused(manifest)
    assert challenge.code == 401
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge.headers["WWW-Authenticate"]))
    realm = fields.pop("realm")
    assert fields["scope"] == f"repository:{repository}:pull"
    other = urllib.parse.urlencode(fields | {"scope": "repository:other/image:pull"})
    wrong = json.loads(get(f"{realm}?{other}")[0])["token"]
    assert refused(manifest, {"Authorization": f"Bearer {wrong}"}).code == 401
    token = json.loads(get(f"{realm}?{urllib.parse.urlencode(fields)}")[0])["token"]
    allowed = {"Authorization": f"Bearer {token}"}
    text, headers = get(manifest, allowed | {"Accept": EITHER})
    assert (
        f"sha256:{hashlib.sha256(text).hexdigest()}" == digest == headers["Docker-Content-Digest"]
    )
    assert headers["Content-Type"] == "application/vnd.oci.image.index.v1+json"
    amd64 = json.loads(text)["manifests"][0]
    inner = json.loads(get(f"{manifest.rpartition('/')[0]}/{amd64['digest']}", allowed)[0])
    layer = inner["layers"][0]
    blob = f"https://{host}/v2/{repository}/blobs/{layer['digest']}"
    assert get(blob, allowed)[0] == b"layer of it"
    assert refused(blob).code == 401


def test_an_object_store_refuses_the_registrys_token(named: Served) -> None:
    named.tree.image("registry.k8s.io/pause:3")
    index, _ = get("https://registry.k8s.io/v2/pause/manifests/3")
    asked = [(r.host, r.status) for r in named.records.requests()]
    assert asked == [("registry.k8s.io", 307), ("europe-west4-docker.pkg.dev", 200)]
    digest = json.loads(index)["manifests"][0]["digest"]
    manifest = get(f"https://registry.k8s.io/v2/pause/manifests/{digest}")[0]
    blob = json.loads(manifest)["layers"][0]["digest"]
    assert get(f"https://registry.k8s.io/v2/pause/blobs/{blob}")[0] == b"layer"
    store = named.records.requests()[-1]
    assert store.host.endswith(".amazonaws.com")
    assert refused(f"https://{store.host}{store.path}", {"Authorization": "Bearer x"}).code == 400


def test_the_same_tree_is_a_mirror(internet: Served) -> None:
    internet.tree.put(TARBALL, b"content")
    digest = internet.tree.image("ghcr.io/flannel-io/flannel:v1")
    assert get(TARBALL.replace("https://", f"{internet.url}/files/"))[0] == b"content"
    headers = get(f"{internet.url}/v2/ghcr.io/flannel-io/flannel/manifests/v1")[1]
    assert headers["Docker-Content-Digest"] == digest
    assert refused(f"{internet.url}/files/dl.k8s.io/../../records/requests.jsonl").code == 404
    assert refused(f"{internet.url}/v2/ghcr.io/flannel-io/flannel/manifests/v2").code == 404


def test_faults_are_met_by_the_requests_that_they_name(named: Served) -> None:
    for name in ("a.sha256", "b"):
        named.tree.put(f"https://dl.k8s.io/{name}", b"content")
    missing = Fault(path="*.sha256", status=404)
    busy = Fault(host="dl.k8s.io", path="/b", status=429, retry_after=7, times=1)
    with named.records.fault(missing, busy):
        assert refused("https://dl.k8s.io/a.sha256").code == 404
        limited = refused("https://dl.k8s.io/b")
        assert (limited.code, limited.headers["Retry-After"]) == (429, "7")
        assert get("https://dl.k8s.io/b")[0] == b"content"
    assert get("https://dl.k8s.io/a.sha256")[0] == b"content"


def test_one_byte_is_changed(named: Served) -> None:
    named.tree.put("https://dl.k8s.io/b", b"content")
    with named.records.fault(Fault(flip=-1)):
        assert get("https://dl.k8s.io/b")[0] == b"contenu"
    assert get("https://dl.k8s.io/b")[0] == b"content"


def test_it_stops_after_so_many_requests(named: Served) -> None:
    named.tree.put("https://dl.k8s.io/b", gzip.compress(b"content"))
    with named.records.fault(Fault(after=2, stop="close")):
        get("https://dl.k8s.io/b")
        get("https://dl.k8s.io/b")
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            get("https://dl.k8s.io/b")
    assert [r.status for r in named.records.requests()] == [200, 200, 0]
