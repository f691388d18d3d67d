"""A site's own images in bill and mirror: by the digest that the site names, as pods ask for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bedplate.bill.model import Bill
from bedplate.bill.needs import Needs, own_of
from bedplate.bill.partial import Partial
from bedplate.bill.places import Places
from bedplate.bill.resolve import Resolver
from bedplate.bill.web import Web
from bedplate.catalogue import load_catalogue
from bedplate.lock import load_lock
from bedplate.lock.model import TeamImage
from bedplate.mirror.fill import Filling
from bedplate.mirror.store import Store
from tests.substrate.internet.fixtures import serving
from tests.unit.mirror.conftest import DEMO

if TYPE_CHECKING:
    from pathlib import Path

NAME = "nvcr.io/lab/own"


def needs(*digests: str) -> Needs:
    """What the demo's lock needs of its own images: one for each digest, all by one tag."""
    lock = load_lock(DEMO)
    assert lock.cluster is not None
    images = {
        f"mine-{number}": TeamImage(image=f"{NAME}:autumn@{digest}", pool="pool_class")
        for number, digest in enumerate(digests)
    }
    cluster = lock.cluster.model_copy(update={"images": images})
    own = own_of(lock.model_copy(update={"cluster": cluster}), load_catalogue())
    return Needs(images=dict(own))


def test_a_tag_that_moved_changes_nothing_and_a_new_digest_is_a_new_image(tmp_path: Path) -> None:
    """The mirror then serves both, by digest: notebooks that run keep theirs."""
    with serving(tmp_path / "internet") as internet, internet.names():
        first = internet.tree.image(f"{NAME}:autumn", (b"autumn",))
        second = internet.tree.image(f"{NAME}:autumn", (b"spring",))
        web, places = Web(internet.authority), Places(None, {})
        resolver = Resolver(web, places, {}, Bill(), Partial(tmp_path, {}), tmp_path / "bill.yml")
        bill = resolver.bill(needs(first))
        # What was resolved before holds no image of a new digest for an exchanged one.
        after = replace(resolver, before=bill).bill(needs(second))
        store = Store(tmp_path / "mirror")
        with store.filling():
            for one in (bill, after):
                Filling(store, web, places).fill(one)
        web.close()
    assert [one.digest for one in bill.images.values()] == [first]
    assert [one.needed_by for one in after.images.values()] == ["bedplate_images.mine-0"]
    asked = {(name, reference) for name, reference, _ in store.images.references()}
    for digest in (first, second):
        assert (NAME, digest) in asked
        assert (NAME, f"bedplate-{digest.removeprefix('sha256:')[:16]}") in asked
    assert (NAME, "autumn") not in asked
