"""The command line as its users meet it: a process with arguments, files, streams and an exit code."""

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from bounds_files import set_margin

import intervalcert
from intervalcert import load_bounds, save_bounds

DATA = Path(__file__).resolve().parents[1] / "compare" / "models"
COMMANDS = ["bounds", "certify", "radius", "audit", "demo"]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and terminals are those of POSIX")


def command(*argv):
    return [sys.executable, "-m", "intervalcert", *map(str, argv)]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def run(*argv, cwd=None, **options):
    """A finished process; no test here expects a traceback."""
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 120, "check": False, **options}
    done = subprocess.run(command(*argv), cwd=cwd, **options)
    assert "Traceback" not in (done.stderr or ""), done.stderr
    return done


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with the small model of compare/, its outputs, its labels, and bounds of each backend (few steps)."""
    folder = tmp_path_factory.mktemp("cli")
    for name in ("segments.txt", "segments_outputs.txt", "segments_labels.txt"):
        shutil.copy(DATA / name, folder)
    (folder / "small.txt").write_text("[[1.0,2.0],[3.0,4.0]],[[0.5,0.25,-1],[1,1,2]]")
    (folder / "small_inputs.txt").write_text("0.5,0.25\n0.125,-1.5\n")
    for model, name in (("segments.txt", "bounds.json"), ("small.txt", "small.json")):
        done = run("bounds", model, "-o", name, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_bounds_prints_tables_and_writes_the_file(work):
    done = run("bounds", "segments.txt", "--iterations", "3", "-o", "three.json", cwd=work)
    assert done.returncode == 0
    assert done.stderr == "wrote three.json, and what proves it, three.json.witnesses.npz\n"
    assert "Operator norm of each layer" in done.stdout
    assert "Margin Lipschitz bound" in done.stdout
    bounds = load_bounds(work / "three.json")
    assert [layer.iterations for layer in bounds.layers] == [3] * len(bounds.layers)
    assert bounds.classes == 10


def test_bounds_without_output_writes_nothing(work):
    before = names_in(work)
    done = run("bounds", "small.txt", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    assert names_in(work) == before


def test_bounds_on_every_backend(work):
    """With equal steps and bits, every other backend is at least the exact one, entry by entry."""
    found = {}
    for backend in ("exact", "arb", "mpmath"):
        argv = ("bounds", "segments.txt", "--backend", backend, "--iterations", "1", "--prec", "40")
        done = run(*argv, "-o", f"{backend}.json", cwd=work)
        assert done.returncode == 0, done.stderr
        assert backend in done.stdout
        found[backend] = load_bounds(work / f"{backend}.json")
        assert found[backend].method.backend == backend
        assert found[backend].method.prec == 40
    for backend in ("arb", "mpmath"):
        for mine, exact in zip(found[backend].layers, found["exact"].layers, strict=True):
            assert mine.upper >= exact.upper
            assert mine.lower <= exact.lower
        for mine, exact in zip(found[backend].margins.matrix, found["exact"].margins.matrix, strict=True):
            assert all(m >= e for m, e in zip(mine, exact, strict=True))


def test_bounds_are_by_auto_unless_a_backend_is_named(work):
    for words, asked in (((), "auto"), (("--backend", "auto"), "auto"), (("--backend", "arb"), "arb")):
        done = run("bounds", "small.txt", *words, "-o", "asked.json", cwd=work)
        assert done.returncode == 0, done.stderr
        found = load_bounds(work / "asked.json")
        assert found.method.backend == asked
        assert {layer.computed_by.partition(",")[0] for layer in found.layers} == {asked.replace("auto", "float64")}
        assert found.layers[0].computed_by in done.stdout
    for name in ("bounds", "evaluate"):
        assert "auto (default)" in run(name, "--help").stdout
    by_default, by_name = (
        run("evaluate", "small.txt", "small_inputs.txt", *words, cwd=work) for words in ((), ("--backend", "float64"))
    )
    assert (by_default.returncode, by_default.stdout) == (0, by_name.stdout)


def test_tuning_rounds_have_an_old_word(work):
    for word in ("--tuning-rounds", "--effort"):
        done = run("bounds", "small.txt", word, "3", "-o", "tuned.json", cwd=work)
        assert done.returncode == 0, done.stderr
        assert load_bounds(work / "tuned.json").method.tuning_rounds == 3
    both = run("bounds", "small.txt", "--tuning-rounds", "3", "--effort", "3", cwd=work)
    assert (both.returncode, both.stdout) == (2, "")
    assert "--tuning-rounds" in both.stderr
    for name in ("bounds", "certify"):
        assert "effort" not in run(name, "--help").stdout


def test_an_activation_changes_the_margins(work):
    """Sigmoid has the constant 1/4: with one hidden layer the margins are a quarter, or a rounding above."""
    for name in ("relu", "sigmoid"):
        argv = ("bounds", "small.txt", "--activation", name, "--backend", "exact", "-o", f"{name}.json")
        assert run(*argv, cwd=work).returncode == 0
    relu, sigmoid = (load_bounds(work / f"{name}.json").margins.matrix[0][1] for name in ("relu", "sigmoid"))
    assert sigmoid == relu / 4


# -- certify ---------------------------------------------------------------------------------------------------------


def certified(work, *argv):
    done = run("certify", "bounds.json", "segments_outputs.txt", "--json", *argv, cwd=work)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def at_a_quarter(work):
    """What certify finds at the radius that those outputs carry."""
    return certified(work)


def test_certify_json(work):
    """One object on one line, nothing else on stdout; every number checked against the files."""
    found = certified(work, "--labels", "segments_labels.txt", "-o", "verdicts.csv")
    assert list(found) == [
        *("certified", "total", "eps", "accuracy", "vra", "decided_exactly"),
        *(
            "certified_locally",
            "falsified",
            "unknown",
            "right_and_falsified",
            "falsified_within_box",
            "open",
            "decided_by",
            "proved_by",
            "faults",
            "input_range",
            "semantics",
            "eps_space",
            "norm",
            "threshold",
        ),
    ]
    rows = list(csv.DictReader(io.StringIO((work / "verdicts.csv").read_text())))
    labels = [int(line) for line in (work / "segments_labels.txt").read_text().split()]
    sure = [row["verdict"] == "certified" for row in rows]
    right = [int(row["argmax"]) == label for row, label in zip(rows, labels, strict=True)]
    assert found["total"] == len(rows) == len(labels)
    assert found["certified"] == sum(sure)
    assert 0 < found["certified"] < found["total"], "a set that says nothing of either kind proves little"
    assert found["accuracy"] == sum(right) / len(rows)
    assert found["vra"] == sum(s and r for s, r in zip(sure, right, strict=True)) / len(rows)
    assert found["eps"] == "0.25"
    assert found["semantics"] == "real"
    assert found["decided_exactly"] >= 0


def test_certify_json_is_one_line(work):
    done = run("certify", "bounds.json", "segments_outputs.txt", "--json", cwd=work)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["accuracy"] is None
    assert found["vra"] is None


def test_eps_overrides_the_radius_of_the_lines(work, at_a_quarter):
    none, same = certified(work, "--eps", "0"), certified(work, "--eps", "64/256")
    assert same["certified"] == at_a_quarter["certified"]
    assert none["certified"] > at_a_quarter["certified"]
    assert none["eps"] == "0"


def test_lines_of_different_radii_have_no_common_eps(work):
    (work / "two.txt").write_text("1,2,5 0.1\n9,0,1 1000\n")
    assert run("bounds", "small.txt", "-o", "small.json", cwd=work).returncode == 0
    done = run("certify", "small.json", "two.txt", "--json", cwd=work)
    found = json.loads(done.stdout)
    assert found["eps"] is None
    assert (found["certified"], found["total"]) == (1, 2)
    assert "each output's own" in run("certify", "small.json", "two.txt", cwd=work).stdout


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".npy"])
def test_certify_writes_verdicts(work, at_a_quarter, ending):
    done = run("certify", "bounds.json", "segments_outputs.txt", "-o", f"v{ending}", cwd=work)
    assert done.returncode == 0
    assert done.stderr == f"wrote v{ending}\n"
    assert "certified" in done.stdout
    path = work / f"v{ending}"
    if ending == ".csv":
        verdicts = [row["verdict"] for row in csv.DictReader(io.StringIO(path.read_text()))]
    elif ending == ".jsonl":
        verdicts = [json.loads(line)["verdict"] for line in path.read_text().splitlines()]
    else:
        verdicts = ["certified" if sure else "not_certified" for sure in np.load(path)["certified"].tolist()]
    assert verdicts.count("certified") == at_a_quarter["certified"]


def test_check_is_the_only_way_to_1(work):
    argv = ("certify", "bounds.json", "segments_outputs.txt", "--json")
    assert run(*argv, "--eps", "1000", cwd=work).returncode == 0
    failed = run(*argv, "--eps", "1000", "--check", cwd=work)
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["certified"] == 0
    (work / "sure.csv").write_text("0,0,0,9,0,0,0,0,0,0\n")
    assert run("certify", "bounds.json", "sure.csv", "--eps", "1e-9", "--check", cwd=work).returncode == 0


def test_check_still_writes_the_verdicts(work):
    argv = ("certify", "bounds.json", "segments_outputs.txt", "--check", "--eps", "1000", "-o", "checked.csv")
    done = run(*argv, cwd=work)
    assert (done.returncode, done.stderr) == (1, "wrote checked.csv\n")
    assert "not_certified" in (work / "checked.csv").read_text()


# -- radius, audit, demo ---------------------------------------------------------------------------------------------


def test_radius_is_csv_on_stdout(work, at_a_quarter):
    done = run("radius", "bounds.json", "segments_outputs.txt", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == ["index", "argmax", "radius", "semantics", "eps_space"]
    assert [int(row["index"]) for row in rows] == list(range(len(rows)))
    sure = [Fraction(row["radius"]) > Fraction(1, 4) for row in rows]
    assert sum(sure) == at_a_quarter["certified"]


def test_radius_to_a_file(work):
    shown = run("radius", "bounds.json", "segments_outputs.txt", cwd=work).stdout
    done = run("radius", "bounds.json", "segments_outputs.txt", "-o", "radii.csv", cwd=work)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "wrote radii.csv\n")
    assert (work / "radii.csv").read_text() == shown


def test_audit(work):
    done = run("audit", "bounds.json", "--model", "segments.txt", cwd=work)
    assert (done.returncode, done.stderr) == (0, "")
    count = re.search(r"(\d+) of (\d+) claims confirmed", done.stdout)
    layers = len(load_bounds(work / "bounds.json").layers)
    assert count is not None
    # Two bounds of each layer, a sigma of each but the last, and a margin of each pair of ten classes.
    assert count[1] == count[2] == str(2 * layers + layers - 1 + 45)


def test_audit_of_another_model_is_3_and_of_false_claims_4(work):
    done = run("audit", "bounds.json", "--model", "small.txt", cwd=work)
    assert (done.returncode, done.stdout) == (3, "")
    assert "another model" in done.stderr
    data = json.loads((work / "bounds.json").read_text())
    set_margin(data, 0, 1, "1*2^0", "1")
    (work / "false.json").write_text(json.dumps(data))
    done = run("audit", "false.json", "--model", "segments.txt", cwd=work)
    assert done.returncode == 4
    assert "margin 0,1" in done.stderr


def test_demo(tmp_path):
    """In an empty folder: it needs no files and leaves none."""
    done = run("demo", cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "exact" in done.stdout
    assert "arb" in done.stdout
    assert "NO" not in done.stdout
    assert "convolution 5x5 stride 2" in done.stdout
    assert names_in(tmp_path) == []


# -- help, version, usage --------------------------------------------------------------------------------------------


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"intervalcert {intervalcert.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    done = run(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: intervalcert {name}")


def test_help_lists_every_command_and_exit_code():
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in COMMANDS:
        assert re.search(rf"^ +{name} ", done.stdout, re.MULTILINE), name
    words = " ".join(done.stdout.split())
    for meaning in ("0 ran", "1 --check", "2 usage", "3 input refused", "4 a soundness self-check failed"):
        assert meaning in words


def test_without_arguments_it_is_usage():
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: intervalcert" in done.stderr


def test_the_installed_command_is_the_same(work):
    script = Path(sys.executable).with_name("intervalcert")
    if not script.exists():
        pytest.skip("the package is not installed with its command")
    done = subprocess.run([script, "radius", "gone.json", "x"], cwd=work, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "intervalcert: gone.json: there is no such file\n"


# -- imports ---------------------------------------------------------------------------------------------------------

HEAVY = {"numpy", "flint", "mpmath", "rich"}


def imported(*argv, cwd=None):
    """The top-level packages that the command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *argv], cwd=cwd, capture_output=True, text=True, check=True, timeout=120
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


@pytest.mark.parametrize("argv", [("--help",), ("--version",), ("bounds", "--help"), ("certify", "--help")], ids=str)
def test_help_imports_nothing_heavy(argv):
    """That is what makes it instant, on any machine; a stopwatch would only measure this one."""
    found = imported("-m", "intervalcert", *argv)
    assert "argparse" in found
    assert found & HEAVY == set()


def test_importing_the_package_imports_nothing_heavy():
    found = imported("-c", "import intervalcert; intervalcert.__version__; intervalcert.InputError")
    assert "intervalcert" in found
    assert found & HEAVY == set()


def test_exact_never_imports_flint(work):
    """The reference does not depend on the library that it is compared with, nor on mpmath."""
    found = imported("-m", "intervalcert", "bounds", "small.txt", "--backend", "exact", "-o", "e.json", cwd=work)
    assert "numpy" in found
    assert found & {"flint", "mpmath"} == set()
    found = imported("-m", "intervalcert", "audit", "e.json", "--model", "small.txt", cwd=work)
    assert found & {"flint", "mpmath"} == set()
    program = "import numpy, intervalcert as i; i.compute_bounds(i.Network.from_arrays([numpy.eye(2)]), 'exact')"
    assert imported("-c", program) & {"flint", "mpmath"} == set()


def test_arb_imports_flint_and_not_mpmath(work):
    """So that the test before can fail."""
    found = imported("-m", "intervalcert", "bounds", "small.txt", "--backend", "arb", cwd=work)
    assert found & {"flint", "mpmath"} == {"flint"}


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ("bounds", "segments.txt", "--iterations", "2"),
        ("certify", "bounds.json", "segments_outputs.txt"),
        ("radius", "bounds.json", "segments_outputs.txt"),
        ("audit", "bounds.json", "--model", "segments.txt"),
    ],
    ids=lambda argv: argv[0],
)
def test_no_progress_and_no_colours_where_nobody_looks(work, argv):
    done = run(*argv, cwd=work)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


PRINTING = {
    "radius": ("radius", "bounds.json", "segments_outputs.txt"),
    "json": ("certify", "bounds.json", "segments_outputs.txt", "--json"),
    "certify": ("certify", "bounds.json", "segments_outputs.txt"),
    "bounds": ("bounds", "small.txt"),
    "evaluate": ("evaluate", "small.txt", "small_inputs.txt"),
    "audit": ("audit", "small.json", "--model", "small.txt"),
    "inspect": ("inspect", "small.txt"),
    "convert": ("convert", "small.txt", "small.npz"),
    "demo": ("demo",),
    "help": ("--help",),
}


def buffered(buffer):
    """An environment in which Python writes what is printed at once, or when it has much of it."""
    return {**os.environ, "PYTHONUNBUFFERED": "" if buffer else "1"}


def run_without_reader(*argv, cwd, buffer=True):
    """The reader of standard output is gone before the first byte."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run(*argv, cwd=cwd, capture_output=False, stdout=writer, stderr=subprocess.PIPE, env=buffered(buffer))
    finally:
        os.close(writer)


@POSIX
@pytest.mark.parametrize("buffer", [True, False])
@pytest.mark.parametrize("name", ["radius", "json", "certify", "bounds", "help"])
def test_a_reader_that_leaves_is_no_error(work, name, buffer):
    """`| head -1`, in the hardest form. In particular not 1, which means that something is not certified."""
    done = run_without_reader(*PRINTING[name], cwd=work, buffer=buffer)
    assert (done.returncode, done.stderr) == (0, "")


@POSIX
@pytest.mark.parametrize("buffer", [True, False])
def test_a_reader_that_leaves_does_not_hide_what_is_not_certified(work, buffer):
    """The code 0 would say that everything is."""
    argv = ("certify", "bounds.json", "segments_outputs.txt", "--eps", "1000", "--check")
    assert run(*argv, cwd=work).returncode == 1
    assert run_without_reader(*argv, cwd=work, buffer=buffer).returncode in {1, 3}


@POSIX
def test_head_takes_the_first_line(work):
    line = " ".join(command(*PRINTING["radius"]))
    done = subprocess.run(
        ["/bin/sh", "-c", f"{line} | head -1"], cwd=work, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "index,argmax,radius,semantics,eps_space\n", "")


def run_in_shell(line, redirections, cwd, buffer=True):
    return subprocess.run(
        ["/bin/sh", "-c", f"{' '.join(line)} {redirections}"],
        cwd=cwd,
        env=buffered(buffer),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@POSIX
@pytest.mark.parametrize("name", [name for name in PRINTING if name != "help"])
def test_what_is_printed_to_a_closed_stdout_is_not_lost_in_silence(work, name):
    done = run_in_shell(command(*PRINTING[name]), ">&-", work)
    assert done.returncode == 3
    assert done.stderr == "intervalcert: standard output cannot be written: it is closed\n"
    assert run_in_shell(command(*PRINTING[name]), "<&- >&- 2>&-", work).returncode == 3


@POSIX
def test_streams_that_are_not_needed_may_be_closed(work):
    """Not even processes, which get pipes, or the output file takes their place."""
    done = run_in_shell(command(*PRINTING["radius"], "-o", "closed.csv"), "<&- >&- 2>&-", work)
    assert done.returncode == 0
    assert (work / "closed.csv").read_text() == run(*PRINTING["radius"], cwd=work).stdout
    argv = ("certify", "--model", "small.txt", "--inputs", "small_inputs.txt", "--eps", "0.1", "--jobs", "2", "--json")
    done = run_in_shell(command(*argv), "<&- 2>&-", work)
    assert (done.returncode, json.loads(done.stdout)["total"]) == (0, 2)


@POSIX
@pytest.mark.parametrize(("argv", "code"), [(("bogus",), 2), (("inspect", "nothing.txt"), 3)])
def test_messages_do_not_turn_to_stdout(work, argv, code):
    done = run_in_shell(command(*argv), "2>&-", work)
    assert (done.returncode, done.stdout) == (code, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("buffer", [True, False])
@pytest.mark.parametrize("name", ["radius", "bounds", "json", "evaluate"])
def test_a_full_disk_is_a_message(work, name, buffer):
    """Nothing was delivered: neither success nor a traceback, and not the code of "not certified"."""
    done = run_in_shell(command(*PRINTING[name]), ">/dev/full", work, buffer)
    assert done.returncode == 3
    assert done.stderr.endswith("intervalcert: standard output cannot be written: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_does_not_hide_a_false_claim(work):
    """The table cannot be written; that the audit has failed is said all the same."""
    bounds = load_bounds(work / "small.json")
    small = replace(bounds.layers[0], upper=bounds.layers[0].upper / 2, lower=Fraction(0))
    save_bounds(replace(bounds, layers=(small, *bounds.layers[1:])), work / "false.json")
    argv = ("audit", "false.json", "--model", "small.txt")
    assert run(*argv, cwd=work).returncode == 4
    assert run_in_shell(command(*argv), ">/dev/full", work).returncode == 4


@pytest.mark.parametrize("name", ["certify", "bounds"])  # and the demo: `test_demo`
def test_a_terminal_that_knows_only_ascii_gets_ascii(work, name):
    done = run(*PRINTING[name], cwd=work, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


@pytest.mark.parametrize("name", ["bounds", "certify"])
def test_help_of_a_terminal_that_knows_only_ascii(name):
    assert run(name, "--help", env={**os.environ, "PYTHONIOENCODING": "ascii"}).returncode == 0


# -- interruption ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_a_terminal(argv, cwd):
    """A running process whose stderr is a terminal, and the reading end of that terminal."""
    import pty

    reader, terminal = pty.openpty()
    process = subprocess.Popen(command(*argv), cwd=cwd, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    try:
        yield process, reader
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reader)


def read_until(reader, phrase, seconds=60):
    """What the terminal shows until the phrase comes (or, if there is none, until the end)."""
    shown = ""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            piece = os.read(reader, 4096)
        except OSError:  # the other end is closed
            return shown
        if not piece:
            return shown
        shown += piece.decode(errors="replace")
        if phrase is not None and phrase in shown:
            return shown
    raise AssertionError(f"{phrase!r} did not come: {shown!r}")


@POSIX
def test_an_interrupt_leaves_no_file(tmp_path):
    """A run that would take a minute, interrupted once its progress shows that it is computing."""
    rows = np.random.default_rng(3).integers(-999, 999, size=(40, 40))
    np.savez(tmp_path / "model.npz", W0=rows, W1=rows)
    (tmp_path / "bounds.json").write_bytes(b"an older result")
    found = names_in(tmp_path)
    argv = ("bounds", "model.npz", "--backend", "mpmath", "--iterations", "40", "-o", "bounds.json")
    with on_a_terminal(argv, tmp_path) as (process, reader):
        read_until(reader, "map 1 of 2, step 1")
        process.send_signal(signal.SIGINT)
        rest = read_until(reader, None)
        assert process.wait(timeout=60) == 130
        assert process.stdout.read() == b""
    assert "Traceback" not in rest
    assert "intervalcert: interrupted" in rest
    assert "\x1b[?25h" in rest, "the bar has hidden the cursor"
    assert names_in(tmp_path) == found
    assert (tmp_path / "bounds.json").read_bytes() == b"an older result"


@POSIX
def test_progress_on_a_terminal_leaves_the_data_alone(work):
    """The bar is on stderr; stdout has the same bytes as without it."""
    with on_a_terminal(PRINTING["radius"], work) as (process, reader):
        shown = read_until(reader, None)
        assert process.wait(timeout=60) == 0
        out = process.stdout.read().decode()
    assert "radius" in shown
    assert out == run(*PRINTING["radius"], cwd=work).stdout
