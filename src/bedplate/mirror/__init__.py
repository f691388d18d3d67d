"""The local mirror: files at their vendors' paths and images, served at one address."""

from bedplate.mirror.errors import MirrorError
from bedplate.mirror.index import Contents, FileEntry, ImageEntry

__all__ = ["Contents", "FileEntry", "ImageEntry", "MirrorError"]
