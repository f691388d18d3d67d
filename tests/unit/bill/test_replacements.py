"""What the stand-in's archives have in place of a driver that is gone, and a site's own facts."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bedplate.bill import load_bill
from bedplate.bill.replacements import offered
from bedplate.catalogue import load_catalogue
from bedplate.cli.main import main
from bedplate.lock import load_lock
from tests.unit.bill.test_resolve import resolve
from tests.unit.bill.vendors import planned, put_archive
from tests.unit.test_site_facts import DRIVER, PATCH, REST, newer_driver

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from bedplate.catalogue.driver_facts import DriverPackages
    from tests.substrate.internet.fixtures import Served
    from tests.substrate.standin.signing import Key

NEW = "535.321.07"


def archives(internet: Served, key: Key, driver: DriverPackages) -> None:
    """Let Debian 12 have one driver; nobody answers for other systems."""
    for fact in load_catalogue().distribution_archives.values():
        if fact.value.os == "debian-12":
            put_archive(internet.tree, fact.value, key, list(driver.packages.items()))


def test_what_a_site_adds_is_resolved(tmp_path: Path, internet: Served, key: Key) -> None:
    facts = {
        "kubernetes.yml": [{"value": PATCH, **REST}],
        "driver-packages.yml": [{"value": newer_driver(), **REST}],
    }
    site = planned(tmp_path / "site", internet, key, {"mode": "upstream"}, facts)
    driver = load_lock(site).pools["pool_class"].nvidia_driver
    assert driver is not None
    assert driver.version == NEW
    value = load_catalogue().fact(DRIVER).value
    archives(internet, key, value.model_copy(update={"packages": driver.packages}))
    with internet.names():
        assert resolve(site, "--ca", str(internet.authority)) == 0
    bill = load_bill(site)
    assert bill is not None
    assert bill.files["kubernetes-node"].version == "1.36.4"
    assert "/v1.36.4/" in bill.files["kubernetes-node"].url
    assert "registry.k8s.io/kube-apiserver:v1.36.4" in bill.images
    found = bill.packages["debian-12 distro"]
    assert set(driver.packages.items()) <= set(found.offered.items())
    assert found.gone == {}


def test_a_driver_that_left_its_archive_has_a_fact_ready_and_a_snapshot(
    tmp_path: Path, internet: Served, key: Key, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = {"archive": "debian-12", "url": "https://snapshot.example/debian/{time}/"}
    facts = {"snapshots.yml": [{"value": snapshot, **REST}]}
    site = planned(tmp_path / "site", internet, key, {"mode": "upstream"}, facts)
    gone = load_catalogue().fact(DRIVER)
    newer = newer_driver()["packages"] | {"nvidia-persistenced": "535.300.00-1~deb12u1"}
    archives(internet, key, gone.value.model_copy(update={"packages": newer}))
    with internet.names():
        assert resolve(site, "--ca", str(internet.authority)) == 2
    said = capsys.readouterr().err
    assert f"pool_class: driver {NEW} is offered in place of 535.309.01" in said
    ready = site / ".bedplate" / "facts" / f"driver-packages.debian-12-distro-{NEW}-proprietary.yml"
    assert f"cp {ready} {site}/facts/" in said
    day = gone.source.read
    sources = (site / ".bedplate" / "facts" / f"debian-12-{day}.sources").read_text()
    assert f"URIs: https://snapshot.example/debian/{day:%Y%m%d}T235959Z/\n" in sources
    assert "Suites: bookworm bookworm-updates\nComponents: contrib non-free\n" in sources
    # As the message has it: the file is moved, the version pinned, and the plan takes it.
    shutil.copy(ready, site / "facts")
    assert f"bedplate_pins: {{nvidia_driver: {NEW}}}" in said
    text = (site / "group_vars" / "pool_class.yml").read_text()
    (site / "group_vars" / "pool_class.yml").write_text(
        f"{text}bedplate_pins: {{nvidia_driver: {NEW}}}\n"
    )
    assert main(["plan", str(site)]) == 0
    added = f"{site}/facts adds to the catalogue: driver/debian-12-distro-{NEW}-proprietary"
    assert added in " ".join(capsys.readouterr().out.split())
    assert str(datetime.now(UTC).date()) in ready.read_text()
    driver = load_lock(site).pools["pool_class"].nvidia_driver
    assert driver is not None
    assert dict(driver.packages) == newer
    with internet.names():
        assert resolve(site, "--ca", str(internet.authority)) == 0


def test_half_a_set_is_no_replacement() -> None:
    """Nor is another branch, or the version that is gone."""
    gone = load_catalogue().fact(DRIVER).value
    there = {name: ["535.321.07-1", "550.1.1-1"] for name in gone.packages}
    whole = offered(gone, there)
    assert whole is not None
    assert whole.version == NEW
    assert offered(gone, there | {"nvidia-smi": ["550.1.1-1"]}) is None
    assert offered(gone, there | {"nvidia-modprobe": []}) is None
    assert offered(gone, {name: ["550.1.1-1"] for name in gone.packages}) is None
    assert offered(gone, {name: [version] for name, version in gone.packages.items()}) is None
