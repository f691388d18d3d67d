"""What a user reads uses one term for one thing: the old words of the glossary are found."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.static.texts import ROOT, Text, messages, page, settings, tasks, template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = yaml.safe_load((Path(__file__).parent / "data/words.yml").read_text(encoding="utf-8"))
WORDS = {word["old"]: re.compile(word["pattern"], re.IGNORECASE) for word in DATA["words"]}
#: Which files hold what a user reads, and how their texts are found.
READERS: list[tuple[str, Callable[[Path], Iterator[Text]]]] = [
    ("README.md", page),
    ("CHANGELOG.md", page),
    ("CONTRIBUTING.md", page),
    ("SECURITY.md", page),
    ("docs/*.md", page),
    ("docs/adr/*.md", page),
    ("roles/*/README.md", page),
    ("playbooks/**/*.yml", tasks),
    ("roles/**/*.yml", tasks),
    ("roles/**/*.j2", template),
    ("templates/**/*.j2", template),
    ("src/bedplate/pods/hub/pages/*.html", template),
    ("inventories/*/hosts.yml", settings),
    ("inventories/*/group_vars/**/*.yml", settings),
    ("examples/**/*.yml", settings),
    ("stacks/*/Pulumi.yaml", settings),
    ("src/bedplate/catalogue/facts/*.yml", settings),
    ("src/bedplate/site/presets/*.yml", settings),
    ("src/bedplate/site/*.yml", settings),
    ("src/bedplate/**/*.py", messages),
    ("plugins/*/*.py", messages),
]


def excepted(text: Text, found: re.Match[str]) -> bool:
    """Whether the list of exceptions holds these words in this file."""
    return any(
        fnmatch(text.file, one["file"])
        and one["text"] in text.text
        and (at := text.text.index(one["text"])) <= found.start() < at + len(one["text"])
        for one in DATA["exceptions"]
    )


def old_words(text: Text) -> list[str]:
    """Name the old words of a text, each with what is around it."""
    found = []
    for old, pattern in WORDS.items():
        for match in pattern.finditer(text.text):
            if not excepted(text, match):
                around = text.text[max(0, match.start() - 40) : match.end() + 30].strip()
                found.append(f"{text.file}:{text.line}: {old}: {around!r}")
    return found


def texts(glob: str, reader: Callable[[Path], Iterator[Text]]) -> Iterator[Text]:
    """Yield all texts of a glob's files."""
    for path in sorted(ROOT.glob(glob)):
        if "molecule" not in path.parts and not path.is_symlink():
            yield from reader(path)


@pytest.mark.parametrize(("glob", "reader"), READERS, ids=[glob for glob, _ in READERS])
def test_what_a_user_reads_has_no_old_word(
    glob: str, reader: Callable[[Path], Iterator[Text]]
) -> None:
    read = list(texts(glob, reader))
    assert read
    assert [found for text in read for found in old_words(text)] == []


def test_every_exception_is_needed() -> None:
    """An exception without its words would hide the next mistake."""
    unused = []
    read = [t for glob, reader in READERS for t in texts(glob, reader)]
    for one in DATA["exceptions"]:
        assert one["why"]
        if not any(fnmatch(t.file, one["file"]) and one["text"] in t.text for t in read):
            unused.append(one)
    assert unused == []


@pytest.mark.parametrize(
    ("kind", "source", "found"),
    [
        (page, "The driver of `wish` is as wished.\n", ["wish"]),
        (page, "A list is empty, a pod pending, a network card up.\n", []),
        (tasks, "- name: Set aside this host\n  when: wish is mended\n", ["set aside"]),
        (tasks, "- fail: {msg: \"{{ card }} is {{ 'let go' }}\"}\n", ["let go"]),
        (settings, "key: value # nobody reads it\n", ["somebody, nobody, whoever"]),
        (template, "{{ beside }} {# anew #} goes back\n", ["take back, go back"]),
        (messages, '"""Mend it."""\nx = "wish"\ny = f"mend {x}"\n', ["mend, put right"]),
        (messages, 'print("the node is closed", "close the file")\n', ["close (a node)"]),
    ],
)
def test_old_words_are_found_in_texts_alone(
    kind: Callable[[Path], Iterator[Text]],
    source: str,
    found: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.static.texts.ROOT", tmp_path)
    path = tmp_path / "text"
    path.write_text(source, encoding="utf-8")
    hits: list[Any] = [hit for text in kind(path) for hit in old_words(text)]
    assert [hit.split(": ")[1] for hit in hits] == found
