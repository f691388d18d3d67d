"""Running pods keep their GPUs when systemd reads its units again: goes on from test_site.py.

Debian 12's runc (1.1.5) leaves out of a container's unit what has no link in /dev/char. Newer ones
do not ask for it where systemd is of version 240 or later.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.site.cluster import gpu_pod, wait_for
from tests.site.hosts import on_host
from tests.site.test_swapped_card import drift

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.substrate.commands import SiteCommands

#: On Debian 12; the second is the one that `drift` looks at.
NODES = ("gpu-b", "gpu-c")
RELOADS = ("daemon-reload", "daemon-reexec")
UNIT = "/etc/systemd/system/bedplate-cdi-refresh.service"
#: A package with a unit, whose script after installation is what Debian's own packages have.
TRANSACTION = """
set -e
made=$(mktemp -d)
mkdir -p "$made/DEBIAN" "$made/lib/systemd/system"
cat > "$made/DEBIAN/control" <<'END'
Package: with-a-unit
Version: 1
Architecture: all
Maintainer: Nobody <nobody@example.com>
Description: one unit
END
printf '[Service]\\nType=oneshot\\nExecStart=/bin/true\\n' \
  > "$made/lib/systemd/system/with-a-unit.service"
printf '#!/bin/sh\\nset -e\\nsystemctl --system daemon-reload\\n' > "$made/DEBIAN/postinst"
chmod 755 "$made" "$made/DEBIAN/postinst"
dpkg-deb --build "$made" "$made.deb"
apt-get install --yes "$made.deb"
systemctl show --property FragmentPath with-a-unit
apt-get purge --yes with-a-unit
rm -r "$made" "$made.deb"
"""


def gpus(site: SiteCommands, pod: str) -> str:
    """Return what nvidia-smi lists in a running pod."""
    return site.kubectl("exec", pod, "--", "nvidia-smi", "-L").stdout


@contextmanager
def running(site: SiteCommands, pod: str, name: str, folder: Path) -> Iterator[str]:
    """Run a pod with a GPU on a node; yield what it sees of it."""
    gpu_pod(site, pod, name, ["sleep", "3600"], folder)
    try:
        phase = ["get", "pod", pod, "-o", "jsonpath={.status.phase}"]
        wait_for(f"pod {pod} runs", lambda: site.kubectl(*phase).stdout == "Running")
        seen = gpus(site, pod)
        assert seen.startswith("GPU 0: "), seen
        yield seen
    finally:
        site.kubectl("delete", "pod", pod, "--now")


def test_a_running_pod_keeps_its_gpu(site: SiteCommands, tmp_path: Path) -> None:
    (name, _) = NODES
    with running(site, "kept", name, tmp_path) as seen:
        for reload in RELOADS:
            on_host(site, name, f"systemctl {reload}")
            assert gpus(site, "kept") == seen, reload
        assert "/with-a-unit.service" in on_host(site, name, TRANSACTION)
        assert gpus(site, "kept") == seen, "a transaction of apt"


@pytest.mark.prove
def test_a_pod_of_before_the_links_gets_its_gpu_back(site: SiteCommands, tmp_path: Path) -> None:
    """As on a node that was set up by an earlier release: drift names the pod, site.yml helps."""
    (_, name) = NODES
    on_host(site, name, "find /dev/char -name '195:*' -delete")
    with running(site, "early", name, tmp_path) as seen:
        on_host(site, name, f"systemctl daemon-reload; echo '# edited' >> {UNIT}")
        assert "GPU 0: " not in gpus(site, "early"), "without the links it loses its GPU"
        status, said = drift(site)
        assert status == 2
        assert "[devices.links]" in said
        assert "[devices.containers]" in said
        done = site.playbook("site.yml", "--limit", name)
        assert "TASK [bedplate.gpu.nvidia_container_toolkit" in done.stdout
        assert "# edited" not in on_host(site, name, f"cat {UNIT}")
        assert gpus(site, "early") == seen
        for reload in RELOADS:
            on_host(site, name, f"systemctl {reload}")
            assert gpus(site, "early") == seen, reload
    status, said = drift(site)
    assert "devices." not in said
