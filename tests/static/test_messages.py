"""Every refusal has one form, with one punctuation, whoever prints it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from bedplate.common import cel
from bedplate.common.errors import Problem
from bedplate.portable.message import problem
from bedplate.provider.errors import message
from tests.static.test_words import READERS, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.static.texts import Text

#: `got: `, `allowed: ` and `; allowed`: another punctuation than that of `portable.message`.
OTHER = re.compile(r"(?:^|— |; |\s)(?:got|allowed): |; allowed(?= )")
#: The form, written out instead of made.
BY_HAND = re.compile(r"— (?:got|allowed) |/ allowed ")
PROGRAMS = [(glob, reader) for glob, reader in READERS if glob.endswith(".py")]
#: These run without the module; argparse puts more before the last's text.
ALONE = re.compile(
    r"src/bedplate/pods/|plugins/plugin_utils/package\.py"
    r"|src/bedplate/common/arguments\.py"
)


@pytest.mark.parametrize(("glob", "reader"), READERS, ids=[glob for glob, _ in READERS])
def test_messages_have_one_punctuation(glob: str, reader: Callable[[Path], Iterator[Text]]) -> None:
    found = [text for text in texts(glob, reader) if OTHER.search(text.text)]
    assert found == []


@pytest.mark.parametrize(
    "text", ["what — h — got: a; allowed: b — fix", "what — h — got a; allowed b — fix"]
)
def test_another_punctuation_is_found(text: str) -> None:
    assert OTHER.search(text)


@pytest.mark.parametrize(("glob", "reader"), PROGRAMS, ids=[glob for glob, _ in PROGRAMS])
def test_no_program_writes_the_form_by_hand(
    glob: str, reader: Callable[[Path], Iterator[Text]]
) -> None:
    read = [text for text in texts(glob, reader) if not ALONE.match(text.file)]
    assert read
    assert [text for text in read if BY_HAND.search(text.text)] == []


def test_what_is_written_by_hand_is_found() -> None:
    for text in ("what — h — got a — fix", "' — allowed ' + a", "got a / allowed b"):
        assert BY_HAND.search(text)


def test_the_api_server_writes_the_form() -> None:
    """An expression of CEL, in which a text may have quotes."""
    made = cel.message("not {a.b['c']}'s", "in {a}", None, "\\", "write {a}")
    assert made == (r"""'not ' + a.b['c'] + '\'s — in ' + a + ' — allowed \\ — write ' + a""")


def test_python_plays_and_provider_share_the_form() -> None:
    parts = ("what", "h", "a", "b", "Fix it.")
    assert problem(*parts) == message(*parts) == "what — h — got a / allowed b — Fix it."
    assert str(Problem("what", "h", got="a", allowed="b", fix="Fix it.")) == problem(*parts)


def test_a_place_in_a_file_comes_first() -> None:
    """As compilers print it, so that an editor can jump there."""
    found = Problem("what", "f.yml", 2, 19, "key", got="a", fix="fix")
    assert str(found) == "f.yml:2:19: what — key — got a — fix"
    assert str(Problem("what", "f.yml", 2, fix="fix")) == "f.yml:2: what — fix"
    assert str(Problem("what", "f.yml", key="key", fix="fix")) == "what — f.yml key — fix"
