"""The form of every refusal: what — where — got / allowed — how to fix."""


def problem(what: str, where: str, got: str, allowed: str, fix: str) -> str:
    """Return one problem in the form that all parts of Bedplate use.

    ``what`` is a clause without full stop, ``fix`` an imperative sentence.
    """
    return f"{what} — {where} — got: {got}; allowed: {allowed} — {fix}"
