"""`bedplate mirror serve|status|list`: by the lock's address, against the bill."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from bedplate.bill import Bill, File, Known, write_bill
from bedplate.common.errors import BedplateError, LockError
from bedplate.mirror import Contents, MirrorError
from bedplate.mirror.command import run
from bedplate.mirror.store import Store, cache
from tests.substrate.images.placing import put

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "dl.k8s.io/v1/node.tar.gz"


def filled() -> Contents:
    store = Store(cache() / "mirror")
    contents = Contents(files={ADDRESS: put(store, b"content", ADDRESS)})
    store.record(contents)
    return contents


def test_a_site_without_a_mirror_is_refused(site: Path) -> None:
    lock = site / ".bedplate.lock.yml"
    text = re.sub(r"(?m)^  mode: mirror\n  url: .*\n", "  mode: upstream\n", lock.read_text())
    lock.write_text(text)
    with pytest.raises(MirrorError, match=r"no mirror — .* — got bedplate_sources\.mode up"):
        run(["serve", str(site)])


def test_serve_refuses_what_the_bill_does_not_list(site: Path) -> None:
    contents = filled()
    known = Known(checksum_file=f"https://{ADDRESS}.sha256")
    sha256 = contents.files[ADDRESS].sha256
    entries = {
        "node": File(version="1", url=f"https://{ADDRESS}", sha256=sha256, size=7, known=known),
        "other": File(version="1", url="https://ghcr.io/o", sha256=sha256, size=7, known=known),
    }
    write_bill(site, Bill(files=entries))
    with pytest.raises(MirrorError, match=r"got other: missing \(.*/ghcr\.io/o\) / allowed"):
        run(["serve", str(site)])
    entries["node"] = entries["node"].model_copy(update={"size": 8})
    write_bill(site, Bill(files={"node": entries["node"]}))
    with pytest.raises(MirrorError, match=r"got node: truncated: 7 bytes \(.*node\.tar\.gz\)"):
        run(["serve", str(site)])


def test_status_of_a_mirror_that_does_not_run(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", str(site)]) == 1
    assert "not serving" in capsys.readouterr().out


def test_status_is_not_that_of_a_stale_lock(site: Path) -> None:
    settings = site / "group_vars/all/bedplate.yml"
    settings.write_text(settings.read_text().replace("10.213.0.1:5080", "10.213.0.1:5081"))
    with pytest.raises(LockError, match=rf"lock is stale: .* — run: bedplate plan {site}"):
        run(["status", str(site)])


@pytest.mark.parametrize("verb", [["fill"], ["packages"], ["push"], ["pack", "out.tar"]])
def test_nothing_is_brought_by_a_stale_lock(verb: list[str], site: Path) -> None:
    settings = site / "group_vars/all/bedplate.yml"
    settings.write_text(settings.read_text().replace("10.213.0.1:5080", "10.213.0.1:5081"))
    with pytest.raises(LockError, match=rf"lock is stale: .* — run: bedplate plan {site}"):
        run([verb[0], str(site), *verb[1:]])


@pytest.mark.parametrize("verb", [["check"], ["list"], ["unpack", "in.tar"]])
def test_a_store_is_compared_with_the_bill_of_a_stale_lock(
    verb: list[str], site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = site / "group_vars/all/bedplate.yml"
    settings.write_text(settings.read_text().replace("10.213.0.1:5080", "10.213.0.1:5081"))
    with pytest.raises(BedplateError, match="bill"):
        run([verb[0], str(site), *verb[1:]])
    assert re.fullmatch(
        rf"warning: lock is stale: .* — {site}\S* — run: bedplate plan {site}\n",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize("verb", [["check"], ["fill"], ["push"]])
def test_a_machine_needs_no_password_of_the_vault(
    verb: list[str], site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mirror's machine has the site's folder, and none of its secrets."""
    vault = VaultLib([("default", VaultSecret(b"right"))])
    pool = site / "group_vars/pool_train.yml"
    pool.write_bytes(vault.encrypt(pool.read_bytes()))
    with pytest.raises(BedplateError) as raised:
        run([verb[0], str(site), *verb[1:]])
    assert "vault" not in str(raised.value)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: lock is not compared with the settings: {pool}")
