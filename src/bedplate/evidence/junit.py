"""Evidence as JUnit XML, which every CI system can show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from bedplate.common.evidence_file import Result

if TYPE_CHECKING:
    from bedplate.common.evidence_file import Check, Evidence
    from bedplate.evidence.overview import Report

#: What XML 1.0 cannot hold, not even escaped; logs of drivers and programs have such characters.
UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Render one test suite per host (and one for the cluster), one test case per check.

    What has no evidence, evidence of another lock or not a single check appears as one failed case:
    nothing looked at is not success.
    """
    root = Element("testsuites", name="bedplate")
    for row in report.hosts:
        _suite(root, "host", row.name, row.evidence, stale=row.stale)
    if report.cluster is not None:
        subject = report.cluster.subject
        _suite(root, "cluster", subject.name, report.cluster, stale=report.cluster_stale)
    if report.preflight is not None:
        _suite(root, "measured", report.preflight.subject.name, report.preflight, stale=False)
    for count in ("tests", "failures", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    for element in root.iter():
        element.text = _speakable(element.text) if element.text else None
        for name, text in element.items():
            element.set(name, _speakable(text))
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, kind: str, name: str, evidence: Evidence | None, *, stale: bool) -> None:
    suite = SubElement(root, "testsuite", name=f"{kind} {name}")
    if evidence is not None:
        suite.set("timestamp", evidence.checked)
    if evidence is None or stale or not evidence.checks:
        case = SubElement(suite, "testcase", classname=name, name="checks.any")
        message = "no check was run"
        if evidence is None or stale:
            message = "no evidence" if evidence is None else "evidence of another lock"
        SubElement(case, "failure", message=message)
    else:
        for check in evidence.checks:
            _case(suite, name, check)
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))


def _case(suite: Element, subject: str, check: Check) -> None:
    case = SubElement(suite, "testcase", classname=subject, name=check.id)
    if check.result is Result.FAIL:
        failure = SubElement(case, "failure", message=check.reason or check.what)
        failure.text = f"requested: {check.wished}\nfound: {check.found}\nfix: {check.fix}"
    elif check.result is Result.SKIPPED:
        SubElement(case, "skipped", message=check.reason)


def _speakable(text: str) -> str:
    return UNSPEAKABLE.sub("\N{REPLACEMENT CHARACTER}", text)
