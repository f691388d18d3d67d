"""Evidence as JUnit XML, which every CI system can show."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from bedplate.evidence.model import Result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.evidence.model import Check, Evidence


def junit(evidence: Iterable[Evidence]) -> str:
    """Render one test suite per host (and one for the cluster), one test case per check.

    A subject without a single check appears as one failed case: nothing looked at is not success.
    """
    root = Element("testsuites", name="bedplate")
    for item in evidence:
        suite = SubElement(root, "testsuite", name=f"{item.subject.kind} {item.subject.name}")
        suite.set("timestamp", item.checked)
        for check in item.checks:
            _case(suite, item.subject.name, check)
        if not item.checks:
            case = SubElement(suite, "testcase", classname=item.subject.name, name="checks.any")
            SubElement(case, "failure", message="no check was run")
        _count(suite)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, subject: str, check: Check) -> None:
    case = SubElement(suite, "testcase", classname=subject, name=check.id)
    if check.result is Result.FAIL:
        failure = SubElement(case, "failure", message=check.reason or check.what)
        failure.text = f"wished: {check.wished}\nfound: {check.found}\nfix: {check.fix}"
    elif check.result is Result.SKIPPED:
        SubElement(case, "skipped", message=check.reason)


def _count(suite: Element) -> None:
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
