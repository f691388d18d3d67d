"""The kernel: settings that last, the release that is to run, Secure Boot."""
