"""The hub's certificate: its dates and names, as `bedplate plan` and the stack read them."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from bedplate.cli import main as cli
from bedplate.common.errors import RefusedError
from bedplate.lock import hub_address
from bedplate.planning.hub import with_certificate
from bedplate.resolver.plan import plan
from tests.schedulers.certificates import Authority

DEMO = Path(__file__).parents[2] / "inventories" / "demo"
TODAY = datetime.now(UTC).date()
NAME = "hub.example.org"
SETTING = "bedplate_hub: {admins: [ada]}"
NAMED = f"bedplate_hub: {{admins: [ada], url: https://{NAME}, certificate: .tls/hub.pem}}"


def days(number: int) -> date:
    """Return the day that is so many days from now."""
    return TODAY + timedelta(days=number)


def made(folder: Path, *names: str, begins: float = -5, ends: float = 90, user: str = "hub") -> str:
    """Return a certificate of these names, with the days on which it begins and ends."""
    # TODAY stays the day of the import, and the authority counts from now.
    since = (datetime.now(UTC).date() - TODAY).days
    path, _ = Authority(folder).issue(user, names=names, days=(begins - since, ends - since))
    return path.read_text()


@pytest.mark.parametrize(
    ("name", "host", "serves"),
    [
        (NAME, NAME, True),
        (NAME, "HUB.Example.org.", True),
        (NAME, "example.org", False),
        ("*.example.org", NAME, True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "a.hub.example.org", False),
        ("*.org", NAME, False),
        ("*", NAME, False),
        ("h*.example.org", NAME, False),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8::7", "2001:db8:0::7", True),
        ("*.0.2.7", "192.0.2.7", False),
    ],
)
def test_a_name_covers_a_host(tmp_path: Path, name: str, host: str, serves: bool) -> None:
    found = list(hub_address.wrong(made(tmp_path, "other.example", name), host, TODAY))
    assert not found if serves else found[0].got == f"one of other.example, {name}"


def test_a_certificate_serves_on_its_days_alone(tmp_path: Path) -> None:
    text = made(tmp_path, NAME)

    def got(day: date) -> list[str]:
        return [one.got for one in hub_address.wrong(text, NAME, day)]

    assert got(days(-6)) == [f"one that begins on {days(-5)}"]
    assert got(days(-5)) == got(TODAY) == got(days(90)) == []
    assert got(days(91)) == [f"one that ended on {days(90)}"]
    assert hub_address.ends_soon(text, days(59)) == ""
    assert hub_address.ends_soon(text, days(61)).endswith(f"ends on {days(90)}, in 29 days")
    assert hub_address.ends_soon(text, days(91)) == ""


def test_the_common_name_alone_serves_nobody(tmp_path: Path) -> None:
    (found,) = hub_address.wrong(made(tmp_path, user=NAME), NAME, TODAY)
    assert (found.got, found.allowed) == ("one without subjectAltName", f"one of {NAME}")


def test_the_plan_refuses_a_certificate_that_does_not_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "demo"
    shutil.copytree(DEMO, site, ignore=shutil.ignore_patterns(".bedplate"))
    teams = site / "group_vars/all/teams.yml"
    teams.write_text(teams.read_text().replace(SETTING, NAMED))
    planned = plan(site, TODAY)
    (notice,) = set(with_certificate(planned, site, TODAY).plan.notices) - {*planned.plan.notices}
    assert notice.text == f"the hub has no certificate yet at {site / '.tls/hub.pem'}"
    pem = site / ".tls/hub.pem"
    pem.parent.mkdir()
    os.mkfifo(pem)
    with pytest.raises(RefusedError, match=f"got {pem}: a pipe, socket or device / allowed a PEM"):
        with_certificate(planned, site, TODAY)
    pem.unlink()
    pem.write_text("no certificate")
    with pytest.raises(RefusedError, match=f"got no certificate in {pem} / allowed a PEM file"):
        with_certificate(planned, site, TODAY)
    pem.write_text(made(tmp_path, NAME))
    assert with_certificate(planned, site, TODAY) == planned
    (notice,) = set(with_certificate(planned, site, days(80)).plan.notices) - {
        *planned.plan.notices
    }
    assert str(notice) == (
        f"the hub's certificate ends on {days(90)}, in 10 days; renew {pem}, and run: pulumi up"
    )
    pem.write_text(made(tmp_path, "localhost", ends=-2))
    before = (site / ".bedplate.lock.yml").read_text()
    assert cli.main(["plan", str(site), "--today", str(TODAY)]) == 3
    line = next(
        number
        for number, text in enumerate(teams.read_text().splitlines(), 1)
        if text.startswith("bedplate_hub")
    )
    said = capsys.readouterr().err
    place = f"{teams}:{line}:{NAMED.index('certificate') + 1}"
    what = "the hub's certificate does not serve — bedplate_hub.certificate — got one"
    assert f"{place}: {what} of localhost / allowed one of {NAME} — issue" in said
    assert (
        f"{place}: {what} that ended on {days(-2)} / allowed an end on {TODAY} or later — put a "
        "renewed one there\n  rule hub-certificate\n"
    ) in said
    assert "2 errors; no lock was written." in said
    assert (site / ".bedplate.lock.yml").read_text() == before
