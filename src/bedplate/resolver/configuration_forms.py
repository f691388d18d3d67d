"""The forms of values in the configuration of kubelet and kube-proxy, as both read them."""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from decimal import Decimal
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

from bedplate.portable.quantities import parse

if TYPE_CHECKING:
    from collections.abc import Callable

#: Go's units of a duration, in seconds.
UNITS = {"ns": "1e-9", "us": "1e-6", "µs": "1e-6", "ms": "0.001", "s": "1", "m": "60", "h": "3600"}
DURATION = re.compile(r"[+-]?0|([+-]?)((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|ms|s|m|h))+")
PART = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)")
#: In the YAML that is written for the programs, `1e3` would be a number.
EXPONENT = re.compile(r"[0-9.][eE][+-]?[0-9]")


def duration(text: str) -> Decimal | None:
    """Return the seconds of a duration as Go writes it, as `1m30s`; None if it is none."""
    if not DURATION.fullmatch(text):
        return None
    total = sum((Decimal(n) * Decimal(UNITS[unit]) for n, unit in PART.findall(text)), Decimal(0))
    return -total if text.startswith("-") else total


def quantity(value: object) -> Decimal | None:
    """Return the number of an amount as Kubernetes writes it, as `500Mi`; None if it is none."""
    text = str(value)
    if not isinstance(value, bool) and not EXPONENT.search(text):
        with suppress(ValueError):
            return parse(text)
    return None


def size(value: object) -> Decimal | None:
    """Return a number, a duration in seconds or an amount as a number; None for all else."""
    if isinstance(value, str) and (seconds := duration(value)) is not None:
        return seconds
    return quantity(value) if isinstance(value, int | float | str) else None


def percentage(text: str) -> Decimal | None:
    """Return the number of a percentage, as `5%`; None if it is none."""
    return quantity(text[:-1]) if re.fullmatch(r"[+-]?[0-9.]+%", text) else None


def _amount(text: str) -> bool:
    share, amount = percentage(text), quantity(text)
    return 0 <= share <= 100 if share is not None else amount is not None and amount > 0


def _reclaim(text: str) -> bool:
    share, amount = percentage(text), quantity(text)
    return share > 0 if share is not None else amount is not None and amount >= 0


def _share(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]+%", text)) and int(text[:-1]) <= 100


def _cpus(text: str) -> bool:
    if not re.fullmatch(r"([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?", text):
        return False
    pairs = (part.split("-") for part in text.split(",") if "-" in part)
    return all(int(first) <= int(last) for first, last in pairs)


def _path(text: str) -> bool:
    # One that is not absolute is put below the folder of the configuration, and normalised.
    return text.isascii() and (text[0] != "/" or posixpath.normpath(text) == text)


def _address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(text))
    return False


def _listener(text: str) -> bool:
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    of_port = _address(bare) and (":" in bare) == (bare != host)
    return _address(text) or (of_port and port.isdecimal() and 1 <= int(port) <= 65535)


def _cidr(text: str) -> bool:
    with suppress(ValueError):
        return bool(re.search(r"/[0-9]+$", text)) and bool(ip_network(text, strict=False))
    return False


class Form(NamedTuple):
    """What values of a form are for Python, what else they have to be, and the words for them.

    `inside` is the form of a mapping's values.
    """

    types: tuple[type, ...]
    words: str
    reads: Callable[[str], bool] | None = None
    inside: str | None = None


def _of(form: str, words: str) -> Form:
    return Form((dict,), f"a mapping of {words}", inside=form)


_PERIOD = "a duration, as 30s or 1h30m"
FORMS = {
    "text": Form((str,), "text"),
    "path": Form((str,), "a path without . and .., in ASCII", _path),
    "cpus": Form((str,), "a list of CPUs, as 0-3,8", _cpus),
    "address": Form((str,), "an IP address", _address),
    "listener": Form((str,), "an IP address, or one with a port", _listener),
    "cidr": Form((str,), "a subnet, as 10.0.0.0/8", _cidr),
    "subnet": Form((str,), "primary, or a subnet", lambda text: text == "primary" or _cidr(text)),
    "duration": Form((str,), _PERIOD, lambda text: duration(text) is not None),
    "quantity": Form((str,), "an amount, as 10Mi", lambda text: quantity(text) is not None),
    "amount": Form((str,), "an amount, or 0% to 100%", _amount),
    "reclaim": Form((str,), "an amount, or a percentage", _reclaim),
    "percentage": Form((str,), "0% to 100%", _share),
    "size": Form((str, int), "an amount, as 1Gi", lambda text: quantity(text) is not None),
    "period": Form((str, int), _PERIOD, lambda text: duration(text) is not None),
    "number": Form((int, float), "a number"),
    "whole": Form((int,), "a whole number"),
    "long": Form((int,), "a whole number"),
    "truth": Form((bool,), "true or false"),
    "list": Form((list,), "a list"),
    "mapping": Form((dict,), "a mapping"),
    "texts": _of("text", "text"),
    "lists": _of("list", "lists"),
    "quantities": _of("quantity", "amounts"),
    "percentages": _of("percentage", "percentages"),
    "amounts": _of("amount", "amounts"),
    "reclaims": _of("reclaim", "amounts"),
    "durations": _of("duration", "durations"),
    "sizes": _of("size", "amounts"),
    "truths": _of("truth", "true and false"),
}


#: What a whole number has to stay under, by how many bits Go's type has.
LARGEST = {"whole": 2**31, "long": 2**63}


def is_of(value: object, form: str) -> bool:
    """Tell whether a value has a form; not what is inside a mapping or a list."""
    wanted = FORMS[form]
    # For Python, true and false are numbers.
    if not isinstance(value, wanted.types) or isinstance(value, bool) > (form == "truth"):
        return False
    if isinstance(value, int) and form in LARGEST and not -LARGEST[form] <= value < LARGEST[form]:
        return False
    # Empty text is an unset field.
    return not (isinstance(value, str) and value and wanted.reads) or wanted.reads(value)


def said(value: object) -> str:
    """Return a value as a message has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value)[:80]
