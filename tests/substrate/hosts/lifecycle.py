"""Bringing a description's hosts up, restarting them, showing them, and taking them down."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.common.lock_place import BILL
from tests.substrate import gpu
from tests.substrate.hosts import containers, image, machine, network, ssh
from tests.substrate.hosts.errors import SubstrateError
from tests.substrate.hosts.shell import run, say, step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.substrate.hosts.containers import State
    from tests.substrate.hosts.description import Description, Host

BOOT_SECONDS = 180.0
HARDWARE = "simulated-gpus.service"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")


def up(description: Description, site: Path) -> list[str]:
    """Make every host of the description run and answer over SSH with known keys.

    Returns the names of the hosts that had to be created or started; none on a second call.
    """
    machine.check()
    machine.load_modules()
    machine.allow_watchers()
    if network.ensure(description, site):
        say(f"network {description.network}: {description.subnet}")
    public_key = ssh.ensure_key(site)
    found = containers.states(description.network)
    _refuse_changed(description, found)
    absent = {h.os for h in description.hosts if description.container(h) not in found}
    with machine.exclusive("images"):
        images = {system: image.ensure(system) for system in absent}
    here = containers.Machine.here()

    def bring(host: Host) -> None:
        name = description.container(host)
        state = found.get(name)
        if state is None:
            environment = image.recipe(host.os).cgroup_v1_environment
            command = containers.create_command(
                description, host, images[host.os], here, environment
            )
            files = _files(description, host, public_key)
            containers.create(command, name, description.network, files)
        elif not state.running:
            containers.start(name)
        elif state.image != image.name(host.os):
            say(f"{host.name} runs on an older image: 'down' and 'up' renew it")
        ssh.wait(name, host.address, BOOT_SECONDS)
        if state is None:
            _settle(name)
        _authorise(name, public_key)

    waiting = [h.name for h in description.hosts if not _runs(found.get(description.container(h)))]
    if waiting:
        machine.await_watchers(len(waiting))
        with step(f"hosts {', '.join(waiting)}"):
            together(bring, description.hosts)
    else:
        together(bring, description.hosts)
        say(f"hosts {', '.join(host.name for host in description.hosts)} are running")
    ssh.write_known_hosts(site, ssh.render_known_hosts(_host_keys(description)))
    return waiting


def down(name: str) -> None:
    """Remove every container, volume and the network of a substrate, whatever became of them."""
    ours = ["--filter", f"label={containers.LABEL}={name}", "--format"]
    found = set(run(["podman", "ps", "--all", *ours, "{{.Names}}"]).split())
    volumes = run(["podman", "volume", "ls", *ours, "{{.Name}}"]).split()
    found |= {volume.removesuffix("-var") for volume in volumes}
    together(containers.remove, sorted(found))
    network.remove(name)


def forget(site: Path) -> None:
    """Remove what is left of a site whose hosts are gone: keys, evidence, bill, the stacks' state.

    State of a cluster that is no more would make the next `pulumi up` find nothing to do. The
    passphrase stays: the salts of the stacks' configuration belong to it.
    """
    shutil.rmtree(ssh.folder(site), ignore_errors=True)
    for name in ("pulumi", "evidence", "tmp"):
        shutil.rmtree(site / ".bedplate" / name, ignore_errors=True)
    for name in (BILL, *(Path(".bedplate", own) for own in ("kubeconfig", "resolve.json", "demo"))):
        (site / name).unlink(missing_ok=True)


def reboot(description: Description, host: Host) -> float:
    """Restart a host in order, as its own ``reboot`` does, and return the seconds it took."""
    name = description.container(host)
    if not _runs(containers.states(description.network).get(name)):
        raise SubstrateError(
            "a host that does not run can't be rebooted",
            f"{description.path}: hosts.{host.name}",
            status(description)[host.name],
            "running",
            f"run 'python -m tests.substrate up {description.path}' first",
        )
    before = boot_id(name)
    started = time.monotonic()
    # The host may be gone before podman has its answer; whether it went is asked below.
    with suppress(SubstrateError):
        containers.execute(name, "systemctl", "reboot", "--no-block")
    while True:
        if time.monotonic() - started > BOOT_SECONDS:
            raise SubstrateError(
                "a host did not come back from its reboot",
                name,
                f"the old boot after {BOOT_SECONDS:.0f} s",
                "a new boot",
                f"see 'podman logs {name}'",
            )
        time.sleep(0.2)
        try:
            if boot_id(name) != before:
                break
        except SubstrateError:
            # Between two boots there is nothing to ask.
            continue
    ssh.wait(name, host.address, BOOT_SECONDS)
    _refuse_without_hardware(name)
    return time.monotonic() - started


def boot_id(name: str) -> str:
    """Return the id of a host's present boot."""
    return containers.execute(name, "cat", BOOT_ID).strip()


def status(description: Description) -> dict[str, str]:
    """Return each host's state: ``running``, ``stopped``, ``changed`` or ``absent``."""
    found = containers.states(description.network)
    result: dict[str, str] = {}
    for host in description.hosts:
        state = found.get(description.container(host))
        if state is None:
            result[host.name] = "absent"
        elif state.spec != containers.spec_digest(description, host):
            result[host.name] = "changed"
        else:
            result[host.name] = "running" if state.running else "stopped"
    return result


def _runs(state: State | None) -> bool:
    return state is not None and state.running


def _refuse_changed(description: Description, found: Mapping[str, State]) -> None:
    for host in description.hosts:
        state = found.get(description.container(host))
        if state and state.spec != containers.spec_digest(description, host):
            raise SubstrateError(
                "a host runs that the description no longer describes",
                f"{description.path}: hosts.{host.name}",
                f"container {state.name} made for another address, system or cards",
                "a host as described, or none",
                f"run 'python -m tests.substrate down {description.path}' first",
            )


def _files(description: Description, host: Host, public_key: str) -> dict[str, bytes]:
    names = f"127.0.0.1 localhost\n{host.address} {host.name}\n"
    files = {"root/.ssh/authorized_keys": public_key.encode(), "etc/hosts": names.encode()}
    files |= _proxies(description)
    if host.gpus:
        files |= gpu.plug(host.gpus.model, host.gpus.count)
    return files


def _proxies(description: Description) -> dict[str, bytes]:
    """Carry this machine's proxies into the hosts; their own network is reached directly."""
    values = {
        key: os.environ.get(key) or os.environ.get(key.upper(), "") for key in PROXY_VARIABLES
    }
    if not values["http_proxy"] and not values["https_proxy"]:
        return {}
    direct = [values["no_proxy"], "localhost", "127.0.0.1", description.subnet, description.gateway]
    values["no_proxy"] = ",".join(filter(None, direct))
    lines = "".join(f'{key}="{value}"\n' for key, value in values.items() if value)
    return {"etc/environment": lines.encode()}


def _settle(name: str) -> None:
    """Wait for the end of a new host's first boot; a unit that failed is the substrate's fault."""
    ask = ["podman", "exec", name, "systemctl", "is-system-running", "--wait"]
    said = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=BOOT_SECONDS)
    if said.stdout.strip() != "running":
        failed = containers.execute(name, "systemctl", "--failed", "--plain", "--no-legend")
        raise SubstrateError(
            "a new host did not boot cleanly",
            name,
            f"{said.stdout.strip() or said.stderr.strip()}: {' | '.join(failed.split(chr(10)))}",
            "running, no failed unit",
            f"see 'podman exec {name} journalctl -b'",
        )


def _refuse_without_hardware(name: str) -> None:
    """Other units may fail after a reboot as they would anywhere; this one is the hardware."""
    ask = ["podman", "exec", name, "systemctl", "is-failed", "--quiet", HARDWARE]
    if subprocess.run(ask, check=False, timeout=BOOT_SECONDS).returncode == 0:
        log = containers.execute(name, "journalctl", "-b", "-u", HARDWARE, "-n", "5", "-o", "cat")
        raise SubstrateError(
            "a rebooted host has no simulated hardware",
            f"{name}: {HARDWARE}",
            f"failed: {' | '.join(log.strip().splitlines())}",
            "a unit that ended well",
            f"see 'podman exec {name} journalctl -b -u {HARDWARE}'",
        )


def _authorise(name: str, public_key: str) -> None:
    """Let the site's key in, should the host have been made for one that is lost."""
    keys = "/root/.ssh/authorized_keys"
    if containers.execute(name, "cat", keys) != public_key:
        containers.execute(name, "sh", "-c", f"cat > {keys}", stdin=public_key.encode())


def _host_keys(description: Description) -> dict[str, list[str]]:
    return {
        host.address: [
            containers.execute(
                description.container(host), "cat", "/etc/ssh/ssh_host_ed25519_key.pub"
            )
        ]
        for host in description.hosts
    }


def together[T](action: Callable[[T], object], items: Iterable[T]) -> None:
    """Do something to all items at once; raise the first error after all have ended."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        futures = [pool.submit(action, item) for item in items]
    errors = [error for future in futures if (error := future.exception())]
    for other in errors[1:]:
        say(f"also: {other}")
    if errors:
        raise errors[0]
