"""The local mirror: files and images by digest, served to hosts at one address."""

from bedplate.mirror.errors import MirrorError
from bedplate.mirror.index import Contents, FileEntry, ImageEntry, MirrorIndex, load_index

__all__ = ["Contents", "FileEntry", "ImageEntry", "MirrorError", "MirrorIndex", "load_index"]
