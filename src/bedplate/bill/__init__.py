"""The bill of materials: what a lock installs, from where, and with which digest."""

from bedplate.bill.file import bill_path, load_bill, render, write_bill
from bedplate.bill.match import checked_bill
from bedplate.bill.model import Bill, File, Image, Known, Packages
from bedplate.bill.needs import Needs, needs_of
from bedplate.bill.places import Places

__all__ = [
    "Bill",
    "File",
    "Image",
    "Known",
    "Needs",
    "Packages",
    "Places",
    "bill_path",
    "checked_bill",
    "load_bill",
    "needs_of",
    "render",
    "write_bill",
]
