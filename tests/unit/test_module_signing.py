"""The module that has a key sign what DKMS builds: whose key, and what of ours speaks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.bedplate.gpu.plugins.modules import module_signing

from bedplate.portable import owned
from bedplate.portable.host import Host, Result
from bedplate.portable.kernel import secure_boot
from tests.unit.module_answers import answer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with our pair, which mokutil calls enrolled."""
    found = Host(str(tmp_path), lambda *_: Result(0, "it is already enrolled", ""))
    for name in secure_boot.PAIRS[1]:
        found.write(name, "")
    return found


def sign(host: Host, monkeypatch: pytest.MonkeyPatch, check: bool = False) -> dict[str, Any]:
    """What the module answers."""
    return answer(monkeypatch, module_signing, host, check, name="gpu-1")


def test_our_drop_in_goes_where_the_user_names_a_pair(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DKMS reads it last, and would go on signing with ours while the user's is called enrolled."""
    assert sign(host, monkeypatch)["changed"]
    assert not sign(host, monkeypatch)["changed"]
    assert secure_boot.DROP_IN in owned.load(host)
    host.write(secure_boot.CONFIGURATION, "mok_signing_key=/k\nmok_certificate=/c\n")
    host.write("/k", "")
    host.write("/c", "")
    foreseen = sign(host, monkeypatch, check=True)
    assert host.exists(secure_boot.DROP_IN)
    told = sign(host, monkeypatch)
    assert (told["changed"], told["certificate"]) == (True, "/c")
    assert told == foreseen
    assert not host.exists(secure_boot.DROP_IN)
    assert secure_boot.DROP_IN not in owned.load(host)
    assert not sign(host, monkeypatch)["changed"]


def test_what_openssl_says_is_to_be_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be there, and fail for another reason."""
    host = Host(str(tmp_path), lambda *_: Result(1, "", "no entropy"))
    assert sign(host, monkeypatch)["msg"] == (
        "no key pair could be made for signing kernel modules — gpu-1 — got no entropy / allowed a"
        " pair from 'openssl req' — Fix what openssl says, or install it where there is none, and"
        " run the play again."
    )
