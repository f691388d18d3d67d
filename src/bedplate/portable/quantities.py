"""Amounts in Kubernetes' notation, read by one reader: settings, plans, jobs, pods and hosts.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/ (read 2026-11-27)
"""

import math
import re
from decimal import Decimal
from typing import Union

#: A decimal number, with an exponent or a suffix but not with both.
_FORM = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    "": Decimal(1),
}
_FACTORS.update({letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)})
_FACTORS.update({f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)})
MEBIBYTE = 2**20
#: MiB of a GiB.
GIB = 1024
#: A longer text is no amount of anything, and its number could be too large to work with.
_LONGEST = 40


def parse(quantity: Union[str, int]) -> Decimal:
    """Return the number that a quantity stands for. Raises ValueError."""
    text = str(quantity)
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(f"{text[:_LONGEST]} is not a quantity")
    number, exponent, suffix = found.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _FACTORS[suffix or ""])


def mebibytes(quantity: Union[str, int]) -> int:
    """Return an amount of memory in MiB, rounded up. Raises ValueError."""
    return math.ceil(parse(quantity) / MEBIBYTE)


def memory(mib: int) -> str:
    """Return MiB as Kubernetes has them: `8Gi`, `1500Mi`."""
    return f"{mib // GIB}Gi" if mib % GIB == 0 else f"{mib}Mi"
