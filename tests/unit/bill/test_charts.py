"""Charts in the bill and on this machine: registries, chart repositories, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bedplate.bill import Bill, File, Places, load_bill, write_bill
from bedplate.bill.charts import chart
from bedplate.bill.errors import ResolveError
from bedplate.bill.registry import layer
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main
from bedplate.components.cluster import artifact
from bedplate.components.config import StackError
from bedplate.lock import load_lock
from tests.substrate.internet.faults import Fault
from tests.unit.bill.made import make, mirrored_demo
from tests.unit.bill.vendors import put_chart, put_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.substrate.internet.fixtures import Served

KUEUE = "oci://registry.k8s.io/kueue/charts/kueue"
VOLCANO = "https://volcano-sh.github.io/helm-charts/volcano"
INDEX = "https://volcano-sh.github.io/helm-charts/index.yaml"
WHAT = "chart is not found"


@pytest.fixture
def web(internet: Served) -> Iterator[Web]:
    """A client that trusts the stand-in."""
    client = Web(internet.authority)
    yield client
    client.close()


def upstream(web: Web, internet: Served, address: str, version: str) -> File:
    """Look a chart up at its maker's."""
    with internet.names():
        return chart(web, Places(None, Places.hosts(load_catalogue())), address, version, WHAT)


def mirrored(web: Web, internet: Served, address: str, version: str) -> File:
    """Look a chart up at a mirror."""
    return chart(web, Places(internet.url, {}), address, version, WHAT)


def test_the_catalogue_and_the_resolver_mean_the_same_charts() -> None:
    charts = {fact.value.addon: fact.value.chart for fact in load_catalogue().addons.values()}
    assert charts["kueue"] == KUEUE
    assert charts["volcano"] == VOLCANO


def test_a_chart_of_a_registry_is_its_artefacts_layer(web: Web, internet: Served) -> None:
    sha256 = put_chart(internet.tree, KUEUE, "0.19.2", b"archive")
    found = upstream(web, internet, KUEUE, "0.19.2")
    assert found.url == f"https://registry.k8s.io/v2/kueue/charts/kueue/blobs/sha256:{sha256}"
    assert (found.version, found.sha256, found.size) == ("0.19.2", sha256, 7)
    assert found.known.model_dump(exclude_defaults=True) == {"registry": "registry.k8s.io"}
    assert mirrored(web, internet, KUEUE, "0.19.2") == found


def test_a_tag_of_its_own_stands_in_the_address(web: Web, internet: Served) -> None:
    address = "oci://ghcr.io/someone/charts/one:v{version}"
    sha256 = put_chart(internet.tree, address, "0.14.2", b"archive")
    assert upstream(web, internet, address, "0.14.2").sha256 == sha256


def test_a_registry_that_wants_a_token_gives_the_charts_bytes(web: Web, internet: Served) -> None:
    """GitHub's gives neither manifest nor blob without one."""
    address = "oci://ghcr.io/someone/charts/one"
    put_chart(internet.tree, address, "1.0.0", b"archive")
    found = upstream(web, internet, address, "1.0.0")
    client = Web(internet.authority)
    with internet.names():
        assert client.content(found.url, WHAT) == b"archive"
    client.close()
    blobs = [one.status for one in internet.records.requests() if "/blobs/sha" in one.path]
    assert blobs == [401, 307, 200]


def test_an_image_in_the_place_of_a_chart_is_refused(web: Web, internet: Served) -> None:
    internet.tree.image("registry.k8s.io/kueue/charts/kueue:0.19.2")
    with pytest.raises(ResolveError, match=r"chart is not found .* got no chart: .*image.index"):
        upstream(web, internet, KUEUE, "0.19.2")


DRIVER = "registry.k8s.io/someone/driver:v1"
PROGRAM = "/usr/bin/program"


def of_layer(web: Web, internet: Served) -> File:
    """Look up the layer with the program, at its maker's."""
    with internet.names():
        return layer(web, Places(None, {}), DRIVER, PROGRAM, "1", "program is not found")


def test_a_file_of_an_image_is_the_layer_that_its_history_names(web: Web, internet: Served) -> None:
    sha256 = put_layer(internet.tree, DRIVER, PROGRAM, b"program")
    found = of_layer(web, internet)
    assert found.url == f"https://registry.k8s.io/v2/someone/driver/blobs/sha256:{sha256}"
    assert (found.sha256, found.size, found.known.registry) == (sha256, 7, "registry.k8s.io")
    assert layer(web, Places(internet.url, {}), DRIVER, PROGRAM, "1", "program") == found
    assert web.content(Places(internet.url, {}).file(found.url), "program") == b"program"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((), "no layer that adds /usr/bin/program"),
        (("COPY a /usr/bin/a", "COPY b /usr/bin/b"), "no layer that adds"),
        (("COPY a /usr/bin/program", "COPY b /usr/bin/program"), "2 layers that add"),
        (("COPY a /usr/bin/program",), "no layer that adds"),
        (("RUN touch /usr/bin/program", "COPY b /usr/bin/b"), "no layer that adds"),
    ],
)
def test_an_image_that_does_not_say_which_layer_it_is_is_refused(
    web: Web, internet: Served, steps: tuple[str, ...], said: str
) -> None:
    internet.tree.image(DRIVER, (b"one", b"two"), steps)
    with pytest.raises(ResolveError, match=said):
        of_layer(web, internet)


def test_an_images_changed_configuration_is_refused(web: Web, internet: Served) -> None:
    put_layer(internet.tree, DRIVER, PROGRAM, b"program")
    fault = Fault(path="*containers/images/sha256*", flip=0)
    with (
        internet.records.fault(fault),
        pytest.raises(ResolveError, match=r"got content sha256:.* / allowed content sha256:"),
    ):
        of_layer(web, internet)


@pytest.mark.parametrize("address", [KUEUE, VOLCANO])
def test_a_chart_that_is_not_there_is_refused(web: Web, internet: Served, address: str) -> None:
    with pytest.raises(ResolveError, match=r"chart is not found .* HTTP 404"):
        upstream(web, internet, address, "9.9.9")


def test_a_chart_of_a_repository_is_known_by_its_unsigned_index(web: Web, internet: Served) -> None:
    sha256 = put_chart(internet.tree, VOLCANO, "1.14.1", b"archive")
    found = upstream(web, internet, VOLCANO, "1.14.1")
    assert found.url == "https://volcano-sh.github.io/helm-charts/volcano-1.14.1.tgz"
    assert (found.version, found.sha256, found.size) == ("1.14.1", sha256, 7)
    assert found.known.model_dump(exclude_defaults=True) == {"charts": INDEX}
    assert mirrored(web, internet, VOLCANO, "1.14.1") == found


def listed(internet: Served, **entry: Any) -> None:
    """Put an index with one entry of Volcano."""
    sha256 = internet.tree.put("https://volcano-sh.github.io/other/v.tgz", b"archive")
    whole = {
        "version": "1.14.1",
        "urls": ["https://volcano-sh.github.io/other/v.tgz"],
        "digest": sha256,
        **entry,
    }
    internet.tree.put(INDEX, json.dumps({"entries": {"volcano": [whole]}}).encode())


@pytest.mark.parametrize("changed", [{}, {"version": "v1.14.1"}, {"urls": ["../other/v.tgz"]}])
def test_an_index_names_a_chart_in_several_ways(
    web: Web, internet: Served, changed: dict[str, Any]
) -> None:
    listed(internet, **changed)
    found = upstream(web, internet, VOLCANO, "1.14.1")
    assert found.url == "https://volcano-sh.github.io/other/v.tgz"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "1.13.0"}, "got 1.13.0 / allowed 1.14.1"),
        ({"digest": None}, "got digest none"),
        ({"digest": "sha256:abc"}, "got digest abc"),
        ({"urls": ["http://volcano-sh.github.io/v.tgz"]}, "address http://volcano"),
        ({"urls": []}, "address none"),
    ],
)
def test_an_entry_that_proves_nothing_is_refused(
    web: Web, internet: Served, changed: dict[str, Any], said: str
) -> None:
    listed(internet, **changed)
    with pytest.raises(ResolveError, match=said):
        upstream(web, internet, VOLCANO, "1.14.1")


@pytest.mark.parametrize("index", ["entries: {", "entries: {kueue: []}", "- 1", ""])
def test_what_is_no_index_of_the_chart_is_refused(web: Web, internet: Served, index: str) -> None:
    internet.tree.put(INDEX, index.encode())
    with pytest.raises(ResolveError, match="got no chart volcano"):
        upstream(web, internet, VOLCANO, "1.14.1")


@pytest.fixture
def site(tmp_path: Path, internet: Served) -> Path:
    """The demo's site with Kueue, the stand-in as its mirror, and a bill whose chart is there."""
    copy = mirrored_demo(tmp_path / "site", internet.url, bedplate_schedulers=["kueue"])
    made = make(copy)
    version = made.files["kueue-chart"].version
    put_chart(internet.tree, KUEUE, version, b"archive")
    with_chart = {"kueue-chart": mirrored(Web(), internet, KUEUE, version)}
    write_bill(copy, made.model_copy(update={"files": made.files | with_chart}))
    internet.records.forget()
    return copy


def asked(internet: Served) -> list[int]:
    """Return the status of each request that was answered."""
    return [one.status for one in internet.records.requests()]


def test_an_add_on_brings_its_chart_and_its_image_into_the_bill(site: Path) -> None:
    bill = load_bill(site) or Bill()
    assert bill.files["kueue-chart"].version == "0.19.2"
    assert bill.images["registry.k8s.io/kueue/kueue:v0.19.2"].needed_by == "kueue"
    assert artifact.image(site, load_lock(site), "kueue").startswith(
        "registry.k8s.io/kueue/kueue:v0.19.2@sha256:"
    )


def test_a_plan_from_the_makers_names_the_charts_that_nobody_has_fetched(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = site / "group_vars/all/bedplate.yml"
    content = yaml.safe_load(settings.read_text()) | {"bedplate_sources": {"mode": "upstream"}}
    settings.write_text(yaml.safe_dump(content))
    assert main(["plan", str(site), "--allow-planned"]) == 0  # its courses' image is not built
    capsys.readouterr()
    assert main(["explain", str(site), "cluster"]) == 0
    said = capsys.readouterr().out
    assert "no test of this project has downloaded from" in said
    assert "kueue-chart" in said
    assert "nvidia-dra-driver" not in said


def test_a_stack_gets_the_chart_once_by_a_path_that_is_the_same_everywhere(
    site: Path, internet: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = site.parent / "stacks" / "schedulers"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    found = artifact.chart(site, load_lock(site), "kueue")
    assert found == Path("../../site/.bedplate/charts/kueue-0.19.2.tgz")
    assert found.read_bytes() == b"archive"
    assert artifact.chart(site, load_lock(site), "kueue") == found
    assert asked(internet) == [200]
    found.write_bytes(b"damaged")
    artifact.chart(site, load_lock(site), "kueue")
    assert found.read_bytes() == b"archive"


def test_a_chart_with_a_changed_byte_is_refused_and_not_kept(site: Path, internet: Served) -> None:
    with (
        internet.records.fault(Fault(path="*/blobs/*", flip=0)),
        pytest.raises(StackError, match=r"file has another digest than the bill .*/blobs/sha256"),
    ):
        artifact.chart(site, load_lock(site), "kueue")
    assert list((site / ".bedplate").rglob("*.tgz")) == []


def test_a_chart_that_the_mirror_lacks_is_refused_with_what_to_do(
    site: Path, internet: Served
) -> None:
    with (
        internet.records.fault(Fault(path="*/blobs/*", status=404)),
        pytest.raises(StackError, match=r"file cannot be fetched .* got HTTP 404 .* start it"),
    ):
        artifact.chart(site, load_lock(site), "kueue")


def test_a_chart_that_the_lock_does_not_have_is_refused(site: Path) -> None:
    with pytest.raises(StackError, match="got no volcano-chart"):
        artifact.chart(site, load_lock(site), "volcano")
