"""Where `bedplate` begins: an interrupt ends it as the signal does, also while it is imported.

A program that pip makes imports its entry point's module before anything else, so this one
imports nothing that takes time.
"""

from __future__ import annotations


def command() -> int:
    """Entry point of `bedplate`."""
    import signal

    # Ignored where whoever started it has ignored it, as a shell does for what runs behind it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        from bedplate.cli.main import main

        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        from bedplate.cli.main import main

    return main()
