"""The command line as a program: exit codes, streams, signals (`commands` does the work, `options` reads the words).

stdout is data, stderr is progress and messages. Exit codes: 0 ran; 1 with --check if something is not certified;
2 usage; 3 input refused, or stdout cannot be written; 4 a soundness self-check failed; 70 a fault of the program;
130 interrupted; 129 and 143 ended by SIGHUP or SIGTERM.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

from intervalcert.cli.commands import _COMMANDS
from intervalcert.cli.options import parsed
from intervalcert.cli.progress import print_message
from intervalcert.errors import InconclusiveError, InputError, IntervalcertError, SoundnessError, UsageError
from intervalcert.io.cleanup import clear_away

__all__ = ["main"]


_EXIT = {UsageError: 2, InputError: 3, SoundnessError: 4, InconclusiveError: 4}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; every foreseen failure is a message and an exit code, never a traceback.

    Without `argv` it is the program itself that runs: then a signal that ends it ends the process.
    """
    if argv is None and threading.current_thread() is threading.main_thread():
        _answer_signals()
    _prepare_streams()
    return _delivered(_ran(sys.argv[1:] if argv is None else argv))


def _ran(words: Sequence[str]) -> int:
    checked = False
    try:
        _calm_threads()
        arguments = parsed(words)
        checked = getattr(arguments, "check", False)
        return _COMMANDS[arguments.command](arguments)
    except IntervalcertError as error:
        print_message(f"intervalcert: {error}")
        return next(code for kind, code in _EXIT.items() if isinstance(error, kind))
    except KeyboardInterrupt:
        print_message("intervalcert: interrupted")
        return 130
    except SystemExit as left:  # argparse has said what there is to say
        return 0 if left.code is None else int(left.code)
    except BrokenPipeError:  # the reader of our output has gone: that is its right, but no answer to --check
        _abandon_stdout()
        return 3 if checked else 0
    except OSError as error:  # files have errors of their own: this is stdout
        return _undelivered(error)
    except MemoryError:
        print_message("intervalcert: this input needs more memory than there is")
        return 3
    except Exception as error:  # a fault of ours; Python's own exit code would say "not certified"
        print_message(
            "".join(traceback.format_exception(error)) + "intervalcert: a fault of the program; please report it"
        )
        return 70


def _answer_signals() -> None:
    """Ctrl-C, and a polite end (SIGTERM; SIGHUP when a terminal closes)."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _end)


def _end(number: int, _: object) -> None:
    """Ends the program from where it is. (An exception gets lost now and then: in imports, in destructors.)"""
    signal.signal(number, signal.SIG_IGN)
    clear_away()
    name = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    with contextlib.suppress(OSError):
        os.write(2, f"intervalcert: {name}\n".encode())  # whoever was about to write there holds the stream
    os._exit(128 + number)


class _Closed(io.TextIOBase):
    """A stream that is none. Python would lose what is printed there without a word, or print messages as data."""

    def write(self, _: str) -> int:
        raise OSError("it is closed")


def _prepare_streams() -> None:
    sys.stdout, sys.stderr = sys.stdout or _Closed(), sys.stderr or _Closed()
    for stream in (sys.stdout, sys.stderr):  # an ASCII terminal gets question marks, not an exception
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for number in range(3):  # no file of ours may get the number of a stream: libraries write messages there
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the least number that is free


def _delivered(code: int) -> int:
    """The exit code, after sending what is buffered: at exit the interpreter would only complain."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
    except OSError as error:
        return max(code, _undelivered(error))
    return code


def _undelivered(error: OSError) -> int:
    _abandon_stdout()
    print_message(f"intervalcert: standard output cannot be written: {error.strerror or error}")
    return 3


def _abandon_stdout() -> None:
    """Sends what is still buffered nowhere, so that the interpreter does not fail on it at exit."""
    with contextlib.suppress(AttributeError, ValueError, OSError):  # there may be none, or one without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _calm_threads() -> None:
    """One thread for BLAS, unless the user says otherwise; read when numpy is imported, which is after this.

    Layers are small: sharing their products out costs more than it gains, and on a busy machine many times as much.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
