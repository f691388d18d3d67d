"""No refusal shows a password, in whatever wrong place or form it stands; nor does a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bedplate.cli import main as cli
from tests.unit.test_site_broken import broken

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2SECRET"
PROXY = [
    f"{{url: {{a: {SECRET}}}}}",
    f"{{url: 'http://h:1', direct: ['a b {SECRET}']}}",
    f"{{url: 'http://h:1', direct: {SECRET}}}",
    f"{{url: 'http://h:1', direct: [[{SECRET}]]}}",
    f"{{url: [{SECRET}]}}",
    f"{{url: '{SECRET}'}}",
    f"{{url: 'http://u:a/{SECRET}@h'}}",
    f"{{url: 'http://h:1', pass: {SECRET}}}",
    f"{{url: 'http://h:1', 'u:{SECRET}': x}}",
    f"'http://u:{SECRET}@h'",
    f"[{SECRET}]",
    f"{SECRET}",
]
SOURCES = [
    f"http://mirror:5080/x?token={SECRET}",
    f"http://mirror:5080/x?{SECRET}",
    f"http://mirror:5080?a={SECRET}",
    f"http://mirror:5080/x#{SECRET}",
    f"http://u:{SECRET}@mirror:5080",
    f"http://mirror:5080/u:{SECRET}@x",
]
MORE = [
    # In a template that does not go through, and in the way to a host.
    f"""bedplate_cuda: "{{{{ 'http://u:{SECRET}@h' | nofilter }}}}" """,
    f"ansible_ssh_common_args: '-o ProxyCommand=\"sshpass -p {SECRET} ssh -W %h:%p jump\" -Q x'",
    f"ansible_connection: 'http://u:{SECRET}@h'",
    f"bedplate_images: {{x: {{pool: pool_train, image: 'u:{SECRET}@h/x'}}}}",
    f"bedplate_images: {{x: {{pool: pool_train, image: 'https://h/x?token={SECRET}'}}}}",
]
ALL = [
    *(f"bedplate_proxy: {one}" for one in PROXY),
    *(f"bedplate_sources: {{mode: mirror, url: '{one}'}}" for one in SOURCES),
    *(f"bedplate_sources: {{mode: upstream, pip: '{one}'}}" for one in SOURCES[:2]),
    *MORE,
]


@pytest.mark.parametrize("setting", ALL)
def test_a_refusal_shows_no_password(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site = broken(tmp_path, {"write": {"group_vars/gpu_pools.yml": f"{setting}\n"}})
    monkeypatch.chdir(tmp_path)
    # As one object it is printed from the same words: some of each kind are enough.
    for more in ([], ["--json"]) if setting in ALL[::4] else ([],):
        assert cli.main(["plan", "site", *more]) == 3
        printed = "".join(capfd.readouterr())
        assert setting.partition(":")[0] in printed
        assert "hunter2" not in printed
    assert not (site / ".bedplate.lock.yml").exists()
