"""The command line as a program: ``python -m intervalcert``, or ``intervalcert``."""

import signal

__all__ = ["run"]


def run() -> int:
    """The exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # outside of `main` nothing is to be cleared away: no traceback
    from intervalcert.cli.program import main

    return main()


if __name__ == "__main__":
    raise SystemExit(run())
