"""Code that also runs on the hosts: standard library only, Python 3.9, no I/O at import.

Ansible modules import it as ``module_utils.portable``, everything else as ``bedplate.portable``.
"""
