"""Text from elsewhere: what steers a terminal, and what must not be shown."""

from __future__ import annotations

import io
import time

import pytest

from bedplate.common.harmless import cleaned, printable, secrets_of, without_secrets
from bedplate.common.streams import Harmless


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
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{SECRET}\n-----END PGP PRIVATE KEY BLOCK-----",
        f"docker login -u '$oauthtoken' -p {SECRET} nvcr.io",
        f"helm registry login -p={SECRET} h",
        f"podman login --password {SECRET} h; curl -s h",
        f"echo {SECRET} | docker login --password-stdin h",
        f"echo '{SECRET}' | sudo -S true",
        f"ipmitool -I lanplus -H bmc -U admin -P {SECRET} chassis status",
        f"mysql -h db -p{SECRET}",
        f"sshpass -p{SECRET} ssh h",
        f'curl -u "ops:{SECRET} with blanks" http://h',
        f"curl -x http://p --proxy-user ops:{SECRET} http://h",
        f"true; curl -U ops:{SECRET} http://h && docker login -p {SECRET}",
        f"pw={SECRET}",
        f"bmc_pw: {SECRET}",
        f"ansible_become_pass: {SECRET}",
        f"apikey: {SECRET}",
        f"NGC_API_KEY: '{SECRET}'",
        f"ansible_become_password: {SECRET}",
        f"token: '{SECRET}'",
        f"    token: {SECRET}",
        f"clientSecret: {SECRET}",
        f"password: |\n  {SECRET}\n  {SECRET}\nnext: 1",
        f"password: 'never closed {SECRET}",
        f'{{"line": "{{\\"password\\": \\"{SECRET}\\"}}"}}',
        f'{{"password":    "{SECRET}"}}',
        f"url=http://mirror/x?token={SECRET}",
        f'args="--password {SECRET}"',
        f'env: ["DB_PASSWORD={SECRET}"]',
        f'{{"Authorization": "Bearer {SECRET}"}}',
        f"https://b/x?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}",
        f"kubeadm join h:6443 --control-plane --certificate-key {SECRET}",
        f"certificateKey: {SECRET}",
        f"client-key-data: {SECRET}",
        f"aws_secret_access_key = {SECRET}",
        f"<graphics passwd='{SECRET}'/>",
        f"<password>{SECRET}</password>",
        f"Cookie: a=1; session={SECRET}",
    ],
)
def test_secrets_are_found_by_what_is_around_them(text: str) -> None:
    assert SECRET not in without_secrets(text)
    assert "…" in without_secrets(text)


@pytest.mark.parametrize(
    "secret",
    [
        "nvapi-" + "aB3_-" * 12,
        "AKIA" + "ABCD2345" * 2,
        "ghp_" + "aB3d" * 9,
        "glpat-" + "aB3d" * 5,
        "hf_" + "aBcd" * 8,
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl",
        "abcdef.0123456789abcdef",
        "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo=",
    ],
)
@pytest.mark.parametrize("around", ["{}", "said: {}.", "unknown key '{}' of", "a\n{}\tb"])
def test_secrets_of_a_known_form_are_found_wherever_they_stand(secret: str, around: str) -> None:
    assert without_secrets(around.format(secret)) == around.format("…")


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
        # What is about a secret is none.
        "password_file: /etc/x and --password-file=/etc/x",
        "secretName=tls, token-ttl=24h, max_tokens=4096, input_tokens: 1234567890123",
        '{"automountServiceAccountToken": true, "tokenPath": "/var/run/x"}',
        # The hash of a public key.
        "--discovery-token-ca-cert-hash sha256:0123456789abcdef",
        "authorization: access denied",
        "the pw of old, pwd=/root, PWD=/root, pass=3 fail=1",
        "ssh -p 22 h: login failed",
        "echo done | tee log",
        "kubelet.conf, docker.io, a.b, version 1.36.3, nvidia.containertoolkit",
        "secret: default-token-12345 of the namespace",
        "secret default/ngc-2024 is not there",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert without_secrets(text) == text


#: Each would be read again and again by a pattern that looks for an end that never comes.
SLOW = (
    *("token-", "http://", "curl -u ", "'token", "--token", "-", "a ", "token ", "password='\\"),
    *(
        "password: ",
        "token='",
        'secret="',
        "Cookie: a",
        "echo x | ",
        "docker login -p",
        "<password>",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "eyJaaaaaaaaaaa.",
        "bearer ",
        "authorization: ",
        "abcdef.",
        "pw=|",
    ),
    *(
        "password: |\n ",
        "http://a@",
        "@",
        'token\\": \\"',
        "mysql -p",
        "sshpass ",
        "token" * 20 + " ",
    ),
)


@pytest.mark.parametrize("word", SLOW)
def test_a_hosts_text_ends_no_report(word: str) -> None:
    """Each is a megabyte."""
    text = word * (2**20 // len(word))
    started = time.process_time()
    assert without_secrets(text)
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


def test_only_a_commands_own_colours_and_bars_steer_a_terminal() -> None:
    out = io.StringIO()
    stream = Harmless(out)
    for text in ("\r10 %", "\x1b[31mred"):
        assert stream.write(text) == len(text)
        assert stream.steering.write(text) == len(text)
    assert out.getvalue() == "\ufffd10 %\r10 %\ufffd[31mred\x1b[31mred"
