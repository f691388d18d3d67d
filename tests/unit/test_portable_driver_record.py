"""The record of the drivers that worked: what is kept over changes, failures and rollbacks."""

from __future__ import annotations

import json

import pytest

from bedplate.portable.driver import record as driver_record
from bedplate.portable.driver import rollback as driver_rollback
from bedplate.portable.driver.record import Driver, Record

OLD = Driver("470.256.02", "proprietary", "distro", "6.1", {"old-dkms": "470", "shared": "1"})
NEW = Driver("535.261.03", "proprietary", "distro", "6.1", {"new-dkms": "535", "shared": "1"})
OPEN = NEW._replace(flavour="open", packages={"open-dkms": "535", "shared": "1"})


def after(*drivers: Driver) -> Record:
    """The record after drivers worked one after the other."""
    record = Record()
    for driver in drivers:
        record = driver_record.works(driver_record.begun(record, driver), driver)
    return record


def test_the_record_survives_the_disk() -> None:
    record = driver_record.gave_up(driver_record.begun(after(OLD, NEW), OPEN), OPEN, "no build")
    assert driver_record.parse(driver_record.render(record)) == record
    assert driver_record.parse("") == Record()


def test_the_format_before_is_understood() -> None:
    value = {"format": 1, "version": "535.1", "flavour": "open", "kernel": "6.1", "packages": {}}
    assert driver_record.parse(json.dumps(value)).good == (
        Driver("535.1", "open", "distro", "6.1", {}),
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 3}', '{"format": 2}', '"x"'])
def test_anything_else_is_no_record(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        driver_record.parse(text)


def test_two_drivers_are_kept_newest_first() -> None:
    assert after(OLD, NEW).good == (NEW, OLD)
    assert after(OLD, NEW, OPEN).good == (OPEN, NEW)
    assert after(OLD, NEW, OLD).good == (OLD, NEW)


def test_the_same_driver_on_another_kernel_is_the_same() -> None:
    moved = NEW._replace(kernel="6.12")
    assert after(OLD, NEW, moved).good == (moved, OLD)


def test_what_an_interrupted_change_brought_stays_ours() -> None:
    record = driver_record.begun(driver_record.begun(after(OLD), NEW), OPEN)
    assert record.names == ["new-dkms", "old-dkms", "open-dkms", "shared"]


def test_a_rollback_goes_to_the_last_good_one_while_a_change_is_unfinished() -> None:
    assert driver_record.target(driver_record.begun(after(OLD), NEW)) == OLD


def test_a_rollback_that_is_asked_for_goes_to_the_one_before() -> None:
    assert driver_record.target(after(OLD, NEW)) == OLD
    assert driver_record.target(after(NEW)) is None
    assert driver_record.target(Record()) is None


def test_no_rollback_goes_to_what_was_given_up() -> None:
    back = driver_record.works(after(OLD, NEW), OLD)
    assert driver_record.target(driver_record.gave_up(back, NEW, "slow")) is None


def test_a_driver_that_works_after_all_is_no_longer_given_up() -> None:
    record = driver_record.gave_up(after(OLD), NEW, "no build")
    assert driver_record.works(record, OLD).failed == NEW
    assert driver_record.works(record, NEW).failed is None


def test_a_rollback_that_was_cut_off_goes_on_to_the_same_driver() -> None:
    record = after(OLD, NEW)
    assert driver_record.target(record) == OLD
    cut = driver_record.begun(record._replace(back=True), OLD)
    assert driver_record.parse(driver_record.render(cut)) == cut
    assert driver_record.target(cut) == OLD, "asked for again, it would go forward to the bad one"
    assert driver_rollback.present(cut) == NEW
    assert driver_record.target(driver_record.begun(record, OPEN)) == NEW
    assert not driver_record.works(cut, OLD).back
