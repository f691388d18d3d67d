"""Text from elsewhere: what steers a terminal, and what must not be shown."""

from __future__ import annotations

import io
import time

import pytest

from bedplate.harmless import cleaned, printable, secrets_of, without_secrets
from bedplate.streams import Harmless


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]0;owned\x07",
        "\x1b[2J",
        "a\rb",
        "\x00",
        "\x7f",
        "\x9b31m",
        "\u202eoff",
        "\u2066x\u2069",
        "\u2028",
        "\ud800",
        "\x0b",
    ],
)
def test_nothing_steers_a_terminal(text: str) -> None:
    shown = printable(text)
    assert shown.replace("\N{REPLACEMENT CHARACTER}", "").isprintable()
    assert len(shown) == len(text)


def test_lines_tabs_and_words_of_all_languages_stay() -> None:
    text = "a\tb\n— ünï 日本語 עברית 👍\n"
    assert printable(text) == text


SECRET = "hunter2SECRET"


@pytest.mark.parametrize(
    "text",
    [
        f"proxy http://u:{SECRET}@h:3128 refused",
        f"http://u:hun/ter2#?{SECRET}@h/",
        f"http://u:p@{SECRET}@h/x and https://{SECRET}@other/y",
        f"socks5h://{SECRET}:@h",
        f"GET http://mirror:5080/x?token={SECRET}&a=b",
        f"https://bucket/x?X-Amz-Signature=a&api_key={SECRET}",
        f"https://blob/x?sv=2024&sig={SECRET}%3D",
        f"--discovery-token={SECRET}",
        f"export HF_TOKEN={SECRET}",
        f"MYSQL_PASSWORD='{SECRET}'",
        f"Password: {SECRET}",
        f"Authorization: Basic {SECRET}==",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"bearer eyJhbGciOiJSUzI1NiIsImtpZCI6.{SECRET}.x",
        f'{{"password": "{SECRET}", "user": "ops"}}',
        f'{{"client_secret":"a\\"{SECRET}"}}',
        f"{{'api_token': '{SECRET}'}}",
        f'{{"token": {SECRET}}}',
        f'password = "{SECRET} with blanks"',
        f"Passphrase: {SECRET}",
        f"kubeadm join 192.0.2.1:6443 --token {SECRET}",
        f"mysqldump --password {SECRET} all",
        f"X-Auth-Token: {SECRET}",
        f"Set-Cookie: session={SECRET}; Path=/",
        f"curl -s -u ops:{SECRET} http://h",
        f"curl --user ops:{SECRET} http://h",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_secrets_are_found_by_what_is_around_them(text: str) -> None:
    assert SECRET not in without_secrets(text)
    assert "…" in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "registry.k8s.io/pause@sha256:0123",
        "docker://registry.k8s.io/pause:3.10@sha256:0123 is another",
        "https://docs.nvidia.com/x?y=1#z",
        "module signature: unknown",
        "a secret: none",
        "Basic authentication failed",
        "the bearer of this",
        "token expired",
        "token: expired",
        '{"token": null, "secretName": "tls"}',
        "pulumi config set --secret bedplate:hubKey",
        "with --token-ttl 0 and --password-file /etc/x",
        "password == none",
        "a cookie: crumbs, and curl -u of old",
        "root@gpu-a: no route",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("word", ["token-", "http://", "curl -u ", "'token", "--token", "-"])
def test_a_hosts_text_ends_no_report(word: str) -> None:
    started = time.process_time()
    assert without_secrets(word * 60_000)
    assert time.process_time() - started < 20


def test_known_secrets_are_found_wherever_they_stand() -> None:
    known = secrets_of("http://ops:pl%40zq@9w@192.0.2.1:3128")
    assert known == {"pl%40zq@9w", "pl@zq@9w"}
    assert without_secrets("said: pl@zq@9w; then pl%40zq@9w.", known) == "said: …; then …."
    assert secrets_of("http://192.0.2.1:3128") == set()
    # A password of three letters would take them out of other words.
    assert without_secrets("a cat in a catalogue", {"cat"}) == "a cat in a catalogue"


def test_all_texts_of_a_value_are_cleaned() -> None:
    value = {"http://u:p@h": [1, None, True, {"x\x1b": ("http://u:p@h", 2.5)}]}
    assert cleaned(value) == {"http://…@h": [1, None, True, {"x\ufffd": ["http://…@h", 2.5]}]}


def test_a_commands_own_progress_is_written_over_itself() -> None:
    """A carriage return within a text came from elsewhere."""
    out = io.StringIO()
    stream = Harmless(out)
    for text in ("\r10 %", "\r\r", "x\ry", "\r"):
        assert stream.write(text) == len(text)
    assert out.getvalue() == "\r10 %\r\rx\ufffdy\r"
