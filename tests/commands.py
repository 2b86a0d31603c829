"""The command line, as tests run it: in this process, with what it printed."""

from intervalcert.cli.program import main

__all__ = ["ran"]


def ran(capture, *argv):
    """The exit code, standard output and standard error of one command; `capture` is pytest's capsys or capfd."""
    capture.readouterr()
    try:
        code = main([str(word) for word in argv])
    except SystemExit as left:
        code = left.code
    found = capture.readouterr()
    return code, found.out, found.err
