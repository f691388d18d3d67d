"""rmmod, insmod, lsmod and modinfo."""

import os
import sys

from . import driver, kernel, modprobe, paths


def rmmod(arguments):
    """rmmod NAME...: no configuration, no dependencies."""
    failed = 0
    for name in (a for a in arguments if not a.startswith("-")):
        module = kernel.normal(name)
        if module not in kernel.loaded():
            builtin = kernel.built_in(module)
            sys.stderr.write(
                "rmmod: ERROR: Module {} is {}\n".format(
                    name, "builtin." if builtin else "not currently loaded"
                )
            )
            failed = 1
            continue
        holders, held = kernel.users(module)
        if holders or held:
            by = " by: " + " ".join(holders) if holders else ""
            sys.stderr.write(f"rmmod: ERROR: Module {module} is in use{by}\n")
            failed = 1
            continue
        kernel.remove(module)
    return failed


def insmod(arguments):
    """insmod FILE: the file's name says which module it is."""
    if not arguments:
        sys.stderr.write("insmod: ERROR: missing filename.\n")
        return 1
    module = os.path.basename(arguments[0]).split(".ko")[0]
    if not modprobe.available(module):
        sys.stderr.write(
            f"insmod: ERROR: could not load module {arguments[0]}: No such file or directory\n"
        )
        return 1
    complaint = kernel.insert(module)
    if complaint:
        sys.stderr.write(f"insmod: ERROR: could not insert module {arguments[0]}: {complaint}\n")
        return 1
    return 0


def lsmod(_arguments):
    """lsmod: the table of /proc/modules."""
    print("{:<23} {:<9} Used by".format("Module", " Size").rstrip())
    for line in (paths.read(paths.SHOWN + "/modules") or "").splitlines():
        name, size, count, by = line.split()[:4]
        print(
            "{:<19} {:>8}  {}{}".format(
                name, size, count, "" if by == "-" else " " + by.rstrip(",")
            )
        )
    return 0


def modinfo(arguments):
    """modinfo [-F FIELD] NAME..."""
    field, names = None, []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-F", "--field"):
            field = rest.pop(0) if rest else None
        elif word.startswith("--field="):
            field = word.split("=", 1)[1]
        elif word in ("-n", "--filename"):
            field = "filename"
        elif not word.startswith("-"):
            names.append(word)
    failed = 0
    for name in names:
        fields = _fields(name)
        if fields is None:
            sys.stderr.write(f"modinfo: ERROR: Module {name} not found.\n")
            failed = 1
        elif field is not None:
            if field in fields:
                print(fields[field])
        else:
            for key, value in fields.items():
                print("{:<16}{}".format(key + ":", value))
    return failed


def _fields(name):
    module, found = kernel.normal(name), driver.installed(name)
    if module in kernel.NEEDS:
        if found is None:
            return None
        fields = {"filename": found.file(module), "version": found.version}
        fields["license"] = "Dual MIT/GPL" if found.is_open else "NVIDIA"
        fields["alias"] = modprobe.CLAIMS
        fields["depends"] = ",".join(kernel.NEEDS[module])
        fields["name"] = module
        fields["vermagic"] = driver.release() + " SMP preempt mod_unload modversions "
        return fields
    if module == kernel.NOUVEAU:
        path = f"/lib/modules/{driver.release()}/kernel/drivers/gpu/drm/nouveau/nouveau.ko"
        return {
            "filename": path,
            "license": "GPL and additional rights",
            "alias": modprobe.CLAIMS,
            "name": module,
        }
    if kernel.built_in(module):
        return {"name": module, "filename": "(builtin)"}
    return None
