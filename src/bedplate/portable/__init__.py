"""Code that also runs on the hosts: standard library only, Python 3.9, no I/O at import.

The folders are what hosts carry (driver, kernel, runtime, packages, rdma, slurm, passthrough) and
what is asked about them (discovery, evidence); what several of them use lies beside the folders.

Ansible modules import it as ``module_utils.portable``, everything else as ``bedplate.portable``.
"""
