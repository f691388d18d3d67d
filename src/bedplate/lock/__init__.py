"""The decision on disk, its digest and its differences."""

from bedplate.common.lock_place import lock_path
from bedplate.lock.difference import differences
from bedplate.lock.file import content_of, digest, load_lock, render, write_lock
from bedplate.lock.in_words import in_words
from bedplate.lock.model import FORMAT, Lock

__all__ = [
    "FORMAT",
    "Lock",
    "content_of",
    "differences",
    "digest",
    "in_words",
    "load_lock",
    "lock_path",
    "render",
    "write_lock",
]
