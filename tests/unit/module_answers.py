"""What an Ansible module answers on a host that a test describes, without Ansible around it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bedplate.portable.host import Host


class Exit(Exception):  # noqa: N818 the end of a module is no error
    """How a module ended, and with which answer."""


def answer(
    monkeypatch: pytest.MonkeyPatch, module: Any, host: Host, check: bool = False, **params: object
) -> dict[str, Any]:
    """Run a module's ``main`` and return its answer, a failure's too.

    ``params`` are all the options that it reads: no defaults are filled in.
    """

    def end(**values: object) -> None:
        raise Exit(values)

    made = SimpleNamespace(params=params, check_mode=check, exit_json=end, fail_json=end)
    monkeypatch.setattr(module, "AnsibleModule", lambda **_: made)
    monkeypatch.setattr(module, "Host", lambda: host)
    with pytest.raises(Exit) as ended:
        module.main()
    return dict(ended.value.args[0])
