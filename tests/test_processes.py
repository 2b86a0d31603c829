"""Runs in several processes end when they are told to: at once, whatever they do, and with nothing left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from intervalcert import Network, certify_inputs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

SOON = 15
"""Seconds that a busy machine may take for what takes a tenth of one; each phase would last for a minute."""

PROGRAM = """
import os, sys, time
from pathlib import Path
phase = os.environ["PHASE"]

def last(name):
    Path(f"{name}.{os.getpid()}").touch()
    time.sleep(60)

class Slow:
    def __del__(self):
        last("deleting")

def judge(self, block, on_input):
    if phase == "deleting":
        Slow()
    elif phase == "failing":
        return 1 // 0
    elif phase == "refusing":
        raise InputError(f"no block from {block.first} on")
    elif phase == "dying":
        os._exit(9)
    elif phase != "importing":
        last(phase)

if phase == "starting" and __name__ == "__mp_main__":  # a worker, before it has read what it is to do
    last(phase)
if phase == "importing":
    class Finder:
        def find_spec(self, name, *_):
            if name == "intervalcert.cli":
                last(phase)
    sys.meta_path.insert(0, Finder())
    from intervalcert.__main__ import run
else:
    from intervalcert import InputError
    from intervalcert.verify import points
    from intervalcert.__main__ import run
    points.PointVerifier.verdicts = judge
if __name__ == "__main__":
    raise SystemExit(run())
"""


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "model.npz", W0=np.eye(2), W1=np.eye(2))
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((300, 2)))
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@contextlib.contextmanager
def running(folder, phase, jobs, *program):
    """The command line with workers that are slow, in a group of processes of its own as on a terminal."""
    certify = ("certify", "--model", "model.npz", "--inputs", "x.npy", "--eps", "0.1", "-o", "out.csv")
    process = subprocess.Popen(
        [sys.executable, *(program or ("program.py", *certify)), "--jobs", str(jobs)],
        cwd=folder,
        env={**os.environ, "PHASE": phase},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def reached(folder, process, phase, count):
    """The processes that are in this phase, once there are so many."""
    end = time.monotonic() + 60
    while len(found := list(folder.glob(f"{phase}.*"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return [int(path.suffix[1:]) for path in found]


def ended(process):
    """Exit code and what was said. The pipes are at an end when no process holds them any more."""
    out, err = process.communicate(timeout=SOON)
    assert out == ""
    return process.returncode, err


def assert_gone(pids):
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


SAID = {
    "SIGINT": (130, "intervalcert: interrupted\n"),
    "SIGTERM": (143, "intervalcert: ended by SIGTERM\n"),
    "SIGHUP": (129, "intervalcert: ended by SIGHUP\n"),
}


@pytest.mark.parametrize(
    ("phase", "jobs", "name", "everyone"),
    [
        ("starting", 2, "SIGINT", True),
        ("starting", 2, "SIGTERM", False),
        ("judging", 2, "SIGINT", True),
        ("judging", 2, "SIGINT", False),
        ("judging", 2, "SIGTERM", True),
        ("judging", 2, "SIGHUP", True),
        ("judging", 1, "SIGINT", True),
        ("judging", 1, "SIGHUP", False),
        ("deleting", 1, "SIGINT", True),
    ],
)
def test_a_signal_ends_a_run_at_once(folder, phase, jobs, name, everyone):
    """As it comes from a terminal (to everyone) or from elsewhere; while workers start, while they judge, while we
    judge, and where an exception would be lost.
    """
    before = {path.name for path in folder.iterdir()}
    with running(folder, phase, jobs) as process:
        some = reached(folder, process, phase, jobs)
        for _ in range(3):  # who is impatient spoils nothing
            (os.killpg if everyone else os.kill)(process.pid, getattr(signal, name))
        assert ended(process) == SAID[name]
    assert_gone(some)
    assert {path.name for path in folder.iterdir()} - before == {f"{phase}.{pid}" for pid in some}


def test_an_interrupt_while_the_program_is_imported_is_quiet(folder):
    with running(folder, "importing", 2) as process:
        reached(folder, process, "importing", 1)
        os.killpg(process.pid, signal.SIGINT)
        assert ended(process) == (-signal.SIGINT, "")  # a shell says 130


@pytest.mark.parametrize(
    ("phase", "code", "phrases"),
    [
        ("refusing", 3, ["no block from 0 on"]),
        ("dying", 3, ["ended from outside", "fewer jobs"]),
        ("failing", 70, ["ZeroDivisionError", "in judge", "fault of the program"]),
    ],
)
def test_what_goes_wrong_in_a_worker_is_said(folder, phase, code, phrases):
    with running(folder, phase, 2) as process:
        found, err = ended(process)
    assert found == code
    assert all(phrase in err for phrase in phrases)
    assert code == 70 or err.count("\n") == 1
    assert not (folder / "out.csv").exists()


CALLER = """
import numpy as np
from intervalcert import Network, certify_inputs
import program
if __name__ == "__main__":
    certify_inputs(Network.from_arrays([np.eye(2), np.eye(2)]), np.load("x.npy"), "0.1", jobs=2)
"""


def test_an_interrupt_of_a_program_that_calls_us_reaches_it(folder):
    """By Python's own way, from the caller alone; the workers are gone."""
    (folder / "caller.py").write_text(CALLER)
    with running(folder, "judging", 2, "caller.py") as process:
        some = reached(folder, process, "judging", 2)
        os.killpg(process.pid, signal.SIGINT)
        code, err = ended(process)
    assert code == -signal.SIGINT
    assert err.count("Traceback") == 1
    assert err.endswith("KeyboardInterrupt\n")
    assert_gone(some)


ABANDONING = """
from fractions import Fraction
import numpy as np
from intervalcert import Network
from intervalcert.api import verification_job
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.jobs import batches_of
from intervalcert.execution.processes import verify_batches
if __name__ == "__main__":
    network = Network.from_arrays([np.eye(2), np.eye(2)])
    blocks = batches_of(NumberTable(np.load("x.npy")), network, Fraction(1), Epsilons.all_equal(Fraction(1)), 1)
    judged = verify_batches(PointVerifier(verification_job(network, None, None)), blocks, 2)
    next(judged)
"""


def test_a_program_that_wants_no_more_verdicts_ends(folder):
    """Its workers wait for it, and it is not to wait for them."""
    (folder / "abandoning.py").write_text(ABANDONING)
    with running(folder, "", 2, "abandoning.py") as process:
        process.wait(60)
        assert ended(process) == (0, "")


def test_signals_are_answered_after_a_run_as_before():
    network = Network.from_arrays([np.eye(2), np.eye(2)])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert len(certify_inputs(network, np.eye(2), "0.1", jobs=2)) == 2
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
