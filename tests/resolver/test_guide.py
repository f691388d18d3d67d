"""The resolver's guide has each file, rule and predicate, and is what the code says."""

from __future__ import annotations

from tests.resolver import guide


def test_the_page_is_what_the_code_says() -> None:
    assert guide.PAGE.read_text(encoding="utf-8") == guide.text(guide.where_rules_refuse())


def test_the_program_explains_each_of_its_predicates_and_no_other() -> None:
    assert set(guide.predicates()) == guide.used()
