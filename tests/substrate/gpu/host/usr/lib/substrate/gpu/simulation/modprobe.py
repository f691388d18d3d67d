"""modprobe: configuration, names, dependencies. Behaves as kmod's does where roles can tell."""

import fnmatch
import glob
import os
import shlex
import subprocess
import sys

from . import driver, kernel, paths

CONFIGURATION = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
LOAD_LISTS = (
    "/etc/modules-load.d",
    "/run/modules-load.d",
    "/usr/local/lib/modules-load.d",
    "/usr/lib/modules-load.d",
)
#: Both NVIDIA's module and nouveau claim every display device of the vendor.
CLAIMS = "pci:v000010DEd*sv*sd*bc03sc*i*"
WITH_VALUE = ("-C", "-d", "-S", "--config", "--dirname", "--set-version")


def _text(path):
    """A configuration file's text. As kmod does, a link that leads nowhere is skipped: a power cut
    in the middle of dpkg leaves such ones."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


class Configuration:
    """What the files of modprobe.d say."""

    def __init__(self):
        self.aliases, self.install, self.remove, self.blacklist = [], {}, {}, set()
        self.options = {}
        self.lines = []
        for line in self._lines():
            words = line.split(None, 2)
            if len(words) < 2:
                continue
            self.lines.append(line)
            name = words[1].replace("-", "_")
            if words[0] == "blacklist":
                self.blacklist.add(name)
            elif len(words) == 3 and words[0] == "alias":
                self.aliases.append((words[1], words[2].strip()))
            elif len(words) == 3 and words[0] in ("install", "remove"):
                getattr(self, words[0])[name] = words[2]
            elif len(words) == 3 and words[0] == "options":
                self.options.setdefault(name, []).extend(words[2].split())

    @staticmethod
    def _lines():
        chosen = {}
        for folder in CONFIGURATION:
            for path in glob.glob(paths.path(folder) + "/*.conf"):
                chosen.setdefault(os.path.basename(path), path)
        for name in sorted(chosen):
            for line in _text(chosen[name]).replace("\\\n", " ").splitlines():
                if line.strip() and not line.lstrip().startswith("#"):
                    yield line.strip()

    def resolve(self, name):
        """Modules that a name stands for: itself, or what aliases say, less the blacklist."""
        dashed = name.replace("_", "-")
        found = [t for a, t in self.aliases if fnmatch.fnmatchcase(dashed, a.replace("_", "-"))]
        if fnmatch.fnmatchcase(name, CLAIMS) or fnmatch.fnmatchcase(CLAIMS, name):
            found += ["nvidia", kernel.NOUVEAU]
            found = [module for module in found if available(module)]
        if not found:
            return None
        found = list(dict.fromkeys(found))
        return [module for module in found if module.replace("-", "_") not in self.blacklist]


def available(name):
    """Whether there is such a module, loaded or not."""
    name = kernel.normal(name)
    if name in kernel.NEEDS:
        return driver.installed() is not None or name in kernel.loaded()
    return name == kernel.NOUVEAU or kernel.built_in(name)


def _say(text, quiet=False):
    if not quiet:
        sys.stderr.write(f"modprobe: {text}\n")


def main(arguments):
    """modprobe [options] NAME [PARAMETER...], or several names with -a or -r."""
    try:
        options, names = _parse(arguments)
    except ValueError as error:
        _say(f"{error}")
        return 1
    configuration = Configuration()
    if options & {"-V", "--version"}:
        print("kmod version 30")
        return 0
    if options & {"-c", "--showconfig"}:
        print("\n".join(configuration.lines))
        return 0
    if not names:
        _say("ERROR: missing parameters. See -h.")
        return 1
    several = options & {"-a", "--all", "-r", "--remove"}
    results = [
        _one(name, names[1:], options, configuration) for name in (names if several else names[:1])
    ]
    return max(results)


def _parse(arguments):
    options, names, skip = set(), [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in WITH_VALUE:
            skip = True
        elif argument.startswith("--"):
            options.add(argument.split("=")[0])
        elif argument.startswith("-") and len(argument) > 1:
            options |= {"-" + letter for letter in argument[1:]}
        else:
            names.append(argument)
    return options, names


def _one(name, parameters, options, configuration):
    quiet = bool(options & {"-q", "--quiet"})
    modules = configuration.resolve(name)
    if modules is None:
        modules = [name]
        if (
            options & {"-b", "--use-blacklist"}
            and name.replace("-", "_") in configuration.blacklist
        ):
            return 0
    if options & {"-R", "--resolve-alias"}:
        print("\n".join(kernel.normal(module) for module in modules))
        return 0
    act = _remove if options & {"-r", "--remove"} else _load
    return max((act(m, parameters, options, configuration, quiet) for m in modules), default=0)


def _load(name, parameters, options, configuration, quiet):
    key, module = name.replace("-", "_"), kernel.normal(name)
    ignore = options & {"-i", "--ignore-install"}
    parameters = configuration.options.get(key, []) + parameters
    dry = options & {"-n", "--dry-run", "--show", "-D", "--show-depends"}
    if key in configuration.install and not ignore:
        if options & {"-n", "--dry-run", "--show", "-D", "--show-depends"}:
            print("install " + configuration.install[key])
            return 0
        return _run("insert", configuration.install[key], name, parameters, quiet)
    if not available(name):
        _say(f"FATAL: Module {name} not found in directory /lib/modules/{driver.release()}", quiet)
        return 1
    if dry:
        return 0
    for needed in kernel.NEEDS.get(module, ()):
        if needed not in kernel.loaded():
            code = _load(needed, [], {"-i"}, configuration, quiet)
            if code:
                return code
    complaint = kernel.insert(name, parameters)
    if complaint:
        _say(f"ERROR: could not insert '{key}': {complaint}", quiet)
        return 1
    return 0


def _remove(name, parameters, options, configuration, quiet):
    key, module = name.replace("-", "_"), kernel.normal(name)
    if key in configuration.remove and not options & {"-i", "--ignore-remove"}:
        return _run("remove", configuration.remove[key], name, parameters, quiet)
    if module not in kernel.loaded():
        if module in kernel.COMMON or (kernel.built_in(module) and not available_driver(module)):
            _say(f"FATAL: Module {name} is builtin.", quiet)
            return 1
        if not available(name):
            _say(f"FATAL: Module {name} not found.", quiet)
            return 1
        return 0
    holders, held = kernel.users(module)
    if holders or held:
        by = " by: " + " ".join(holders) if holders else "."
        _say(f"FATAL: Module {key} is in use{by}", quiet)
        return 1
    if options & {"-n", "--dry-run", "--show"}:
        return 0
    kernel.remove(module)
    # As kmod does: what only this one needed goes too.
    for needed in kernel.NEEDS.get(module, ()):
        if kernel.users(needed) == ([], False):
            kernel.remove(needed)
    return 0


def available_driver(module):
    """Whether it is one of the modules that this simulation can load and unload."""
    return module in kernel.NEEDS or module == kernel.NOUVEAU


def _run(verb, command, name, parameters, quiet):
    environment = dict(os.environ, MODPROBE_MODULE=name)
    command = command.replace("$CMDLINE_OPTS", " ".join(shlex.quote(p) for p in parameters))
    code = subprocess.run(["/bin/sh", "-c", command], env=environment, check=False).returncode
    if code:
        kind = "install" if verb == "insert" else "remove"
        _say(
            f"ERROR: Error running {kind} command '{command}' for {name}: retcode {code}",
            quiet,
        )
        _say(
            "ERROR: could not {} '{}': Invalid argument".format(verb, name.replace("-", "_")), quiet
        )
    return 1 if code else 0


def modules_load():
    """As systemd-modules-load: load what the lists name; status 1 if one of them fails."""
    chosen, failed = {}, 0
    for folder in LOAD_LISTS:
        for path in glob.glob(paths.path(folder) + "/*.conf"):
            chosen.setdefault(os.path.basename(path), path)
    for name in sorted(chosen):
        for line in _text(chosen[name]).splitlines():
            module = line.strip()
            if module and module[0] not in "#;":
                failed |= main(["-b", module])
    return failed
