"""How Ansible would reach a host: the options of its connection over SSH and of sudo.

Names, sources and their order are those in the documentation of Ansible's own plugins, read by its
own configuration manager: variables, then the environment, then ansible.cfg. What only a command
line says (`-u`, `--private-key`, `-b`) counts for that command alone, and not here.
`tests/unit/test_site_canary.py` compares the options with what Ansible itself loads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ansible
import yaml
from ansible import constants
from ansible.module_utils.common.text.converters import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The options of the two plugins that decide how a host is reached.
SSH = (
    "host",
    "port",
    "remote_user",
    "ssh_args",
    "ssh_common_args",
    "ssh_extra_args",
    "private_key_file",
    "host_key_checking",
    "ssh_executable",
    "pkcs11_provider",
    "private_key",
    "password",
)
SUDO = ("become_user", "become_pass")
#: The options that are passwords, by who asks for them, with Ansible's setting of a file with one.
PASSWORDS = {
    "sudo": ("become", "sudo", "become_pass", "BECOME_PASSWORD_FILE"),
    "login": ("connection", "ssh", "password", "CONNECTION_PASSWORD_FILE"),
}
#: What decides which plugin it is: variables that every connection has.
PLUGIN, BECOME, METHOD = "ansible_connection", "ansible_become", "ansible_become_method"
#: The host's name, which is its address where nothing else is.
NAME = "inventory_hostname"
ENVIRONMENT = "env: "
VARIABLE = "var: "
_DOCUMENTATION = re.compile(r"^DOCUMENTATION = r?('''|\"\"\")(.*?)\1", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Option:
    """A value, and where it comes from: `var: NAME`, `env: NAME`, a file, or `default`."""

    value: Any
    origin: str

    @property
    def variable(self) -> str | None:
        """Return the variable that has the value."""
        name = self.origin.removeprefix(VARIABLE)
        return name if name != self.origin else None


@dataclass(frozen=True)
class Reach:
    """How Ansible would reach a host, as it is written."""

    plugin: Option
    become: Option
    method: Option
    options: Mapping[str, Option]

    def __getitem__(self, name: str) -> Option:
        return self.options[name]


def documented(kind: str, name: str) -> dict[str, Any]:
    """Return the documented options of one of Ansible's own plugins, without importing it."""
    path = Path(ansible.__file__).parent / "plugins" / kind / f"{name}.py"
    found = _DOCUMENTATION.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise LookupError(f"{path} has no documentation of its options")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    options: dict[str, Any] = yaml.load(found[2], Loader=loader)["options"]  # noqa: S506
    return options


@cache
def _defined(kind: str, name: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Make the options known to Ansible's configuration, under a name that no plugin has.

    Ansible's own definition stays as it is, and so do its conversions and its command line.
    """
    known = documented(kind, name)
    kept = ("default", "vars", "env", "ini")
    found = {
        option: {key: known[option][key] for key in kept if key in known[option]}
        for option in options
    }
    constants.config.initialize_plugin_configuration_definitions(kind, _ours(name), found)
    return found


def _ours(name: str) -> str:
    return f"bedplate.{name}"


def _option(kind: str, name: str, option: str, variables: Mapping[str, Any]) -> Option:
    value, origin = constants.config.get_config_value_and_origin(
        option, plugin_type=kind, plugin_name=_ours(name), variables=variables
    )
    if isinstance(value, str):
        value = str(value)  # without Ansible's tags
    return Option(value, str(origin))


class Reaches:
    """Resolves hosts; what many of them share once."""

    def __init__(self) -> None:
        ssh, sudo = _defined("connection", "ssh", SSH), _defined("become", "sudo", SUDO)
        self._address = frozenset(str(entry["name"]) for entry in ssh["host"]["vars"])
        #: The variables that hold passwords.
        self.passwords = {
            kind: tuple(str(entry["name"]) for entry in (ssh | sudo)[option]["vars"])
            for kind, (_, _, option, _) in PASSWORDS.items()
        }
        #: Variables that decide how a host is reached. No password is among them.
        self.names = frozenset(
            {
                PLUGIN,
                BECOME,
                METHOD,
                *(
                    str(entry["name"])
                    for option in (*ssh.values(), *sudo.values())
                    for entry in option.get("vars", ())
                ),
            }
        ) - {NAME, *(name for names in self.passwords.values() for name in names)}
        self._shared: dict[tuple[object, ...], Reach] = {}

    def of(self, name: str, values: Mapping[str, Any]) -> Reach:
        """Return how Ansible would reach a host that has these of `names` as variables."""
        values = {key: _bare(value) for key, value in values.items()}
        others = {key: value for key, value in values.items() if key not in self._address}
        known = tuple((key, repr(value)) for key, value in sorted(others.items()))
        if known not in self._shared:
            self._shared[known] = self._resolved(others)
        shared = self._shared[known]
        variables = {NAME: name, **values}
        host = _option("connection", "ssh", "host", variables)
        return replace(shared, options={**shared.options, "host": host})

    def password(self, values: Mapping[str, Any], kind: str) -> str | None:
        """Return a password of a host that has these of `passwords` as variables."""
        plugin, name, option, setting = PASSWORDS[kind]
        value = _option(plugin, name, option, values).value
        if value is None and (file := constants.config.get_config_value(setting)):
            return _in_file(str(file))
        return None if value is None else str(value)

    def _resolved(self, values: Mapping[str, Any]) -> Reach:
        known = [name for name in SSH if name != PASSWORDS["login"][2]]
        options = {name: _option("connection", "ssh", name, values) for name in known}
        options["become_user"] = _option("become", "sudo", "become_user", values)
        return Reach(
            _plain(values, PLUGIN, "DEFAULT_TRANSPORT"),
            _plain(values, BECOME, "DEFAULT_BECOME"),
            _plain(values, METHOD, "DEFAULT_BECOME_METHOD"),
            options,
        )


@cache
def _in_file(path: str) -> str:
    """Return a password from a file, or of the program that it is. Raises AnsibleError."""
    from ansible.cli import CLI

    return str(to_text(CLI.get_password_from_file(path)))


def _bare(value: Any) -> Any:
    """Return a number without how it was written: Ansible tags values of its own types only."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int(value) if isinstance(value, int) else float(value)


def _plain(values: Mapping[str, Any], variable: str, setting: str) -> Option:
    if values.get(variable) is not None:
        return Option(values[variable], f"{VARIABLE}{variable}")
    value, origin = constants.config.get_config_value_and_origin(setting)
    return Option(value if isinstance(value, bool) else str(value), str(origin))
