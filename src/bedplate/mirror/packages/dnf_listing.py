"""A plugin of dnf's own: says what a transaction would install, and what modules there are.

dnf imports it into the system's Python, which may be 3.6. What it prints for people is no list.
"""

import json
import os

import dnf


class Listing(dnf.Plugin):  # type: ignore[misc]  # dnf has no types
    """Writes two files into the root that dnf installs into."""

    name = "bedplate_listing"

    def resolved(self) -> None:
        """Write the package files with their digests by the index, and the modules' text."""
        root = self.base.conf.installroot
        packages = [
            [os.path.basename(one.location), one.returnIdSum(), one.downloadsize]  # noqa: PTH119
            for one in self.base.transaction.install_set
        ]
        texts = [one.get_metadata_content("modules") for one in self.base.repos.iter_enabled()]
        with open(os.path.join(root, "packages.json"), "w") as stream:  # noqa: PTH118, PTH123
            json.dump(sorted(packages), stream)
        with open(os.path.join(root, "modules.yaml"), "w") as stream:  # noqa: PTH118, PTH123
            stream.write("\n".join(text for text in texts if text))
