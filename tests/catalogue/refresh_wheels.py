"""Read the wheels' metadata again: `python -m tests.catalogue.refresh_wheels`."""

from __future__ import annotations

import datetime
import json

from packaging.version import Version

from tests.catalogue.wheels import DATA, fetch, wanted


def main() -> None:
    """Write an excerpt for each distribution; those that the catalogue no longer has go."""
    for old in DATA.glob("*.json"):
        old.unlink()
    for distribution, versions in wanted().items():
        said = {}
        for version in sorted(versions, key=Version):
            needs = fetch(distribution, version)
            said[version] = {
                "requires_python": needs.requires_python,
                "requires": needs.requires,
            }
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        data = {"refresh": f"python -m {__spec__.name}", "read": today, "versions": said}
        (DATA / f"{distribution}.json").write_text(json.dumps(data, indent=1) + "\n")
        print(f"{distribution}: {', '.join(said)}")


if __name__ == "__main__":
    main()
