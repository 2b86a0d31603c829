"""Certificates on the command line: written beside results, checked by the checker alone, refused with a reason."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import ran

from intervalcert import Network, save_model

CHECKER = Path(__file__).resolve().parents[1] / "intervalcert" / "checker"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model, inputs and logits of it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    weights = [rng.integers(-8, 9, (m, n)) / 16 for n, m in ((3, 6), (6, 5), (5, 3))]
    save_model(Network.from_arrays(weights), "model.npz")
    inputs = rng.integers(-16, 17, (30, 3)) / 16
    values = inputs.T
    for k, w in enumerate(weights):
        values = w @ (np.maximum(values, 0) if k else values)
    np.save("inputs.npy", inputs)
    np.save("logits.npy", np.ascontiguousarray(values.T))
    return tmp_path


def alone(folder, *words):
    """The checker, copied, in a process without any other package."""
    copied = folder / "elsewhere"
    if not copied.exists():
        shutil.copytree(CHECKER, copied / "checker")
    program = "import sys; [sys.modules.__setitem__(n, None) for n in ('numpy', 'flint', 'mpmath', 'scipy')]; "
    program += f"sys.path.insert(0, {str(copied)!r}); sys.argv = ['checker', *sys.argv[1:]]; "
    program += "from checker.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", program, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_bounds_outputs_and_inputs(folder, capsys):
    runs = {
        "bounds.cert": ("bounds", "model.npz", "-o", "bounds.json"),
        "outputs.cert": ("certify", "bounds.json", "logits.npy", "--model", "model.npz", "--eps", "0.05"),
        "inputs.cert": ("certify", "--model", "model.npz", "--inputs", "inputs.npy", "--eps", "0.2", "--complete"),
    }
    tables = {"outputs.cert": ("--outputs", "logits.npy"), "inputs.cert": ("--inputs", "inputs.npy")}
    for name, words in runs.items():
        code, _, told = ran(capsys, *words, "--certificate", name)
        assert code == 0, told
        assert f"wrote {name}" in told
        done = alone(folder, name, "--model", "model.npz", *tables.get(name, ()))
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip().endswith("certificate accepted")
        code, shown, _ = ran(capsys, "audit", name, "--model", "model.npz", *tables.get(name, ()))
        assert code == 0
        assert shown == done.stdout
    shown = alone(folder, "inputs.cert", "--model", "model.npz", "--inputs", "inputs.npy").stdout
    for what in ("certified by margins", "certified at the input itself", "falsified by a counterexample"):
        assert what in shown


def test_counts_are_those_of_the_verdicts(folder, capsys):
    words = ("certify", "--model", "model.npz", "--inputs", "inputs.npy", "--eps", "0.2", "--local", "--json")
    _, shown, told = ran(capsys, *words, "--certificate", "run.cert", "--jobs", "2")
    found = json.loads(shown)
    margins, here = found["certified"] - found["certified_locally"], found["certified_locally"]
    assert f"{margins} by margins, {here} at the input itself, 0 counterexamples" in told
    assert here > 0


def test_of_something_else_it_is_refused(folder, capsys):
    ran(capsys, "certify", "--model", "model.npz", "--inputs", "inputs.npy", "--eps", "0.1", "--certificate", "c.cert")
    save_model(Network.from_arrays([np.eye(3)]), "other.npz")
    np.save("others.npy", np.zeros((30, 3)))
    for words, code, what in (
        (("--model", "other.npz", "--inputs", "inputs.npy"), 3, "another model"),
        (("--model", "model.npz", "--inputs", "others.npy"), 3, "another hash"),
        (("--model", "model.npz"), 3, "--inputs"),
        (("--model", "model.npz", "--inputs", "inputs.npy", "--input-scale", "1/2"), 3, "--input-scale"),
        (("--model", "model.npz", "--inputs", "inputs.npy", "--input-scale", "no"), 3, "--input-scale"),
        (("--model", "nowhere.npz"), 3, "nowhere.npz"),
    ):
        done = alone(folder, "c.cert", *words)
        assert (done.returncode, done.stdout) == (code, "") or "accepted" in done.stdout
        assert done.returncode == code
        assert what in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--model", "model.npz", "--inputs", "inputs.npy", "--eps", "0.1", "--deployed", "float32"), "over the reals"),
        (("bounds.json", "logits.npy", "--eps", "0.1"), "--model"),
        (("bounds.json", "logits.npy", "--model", "model.npz"), "--eps"),
    ],
)
def test_what_no_certificate_is_of_is_refused(folder, capsys, words, what):
    ran(capsys, "bounds", "model.npz", "-o", "bounds.json")
    code, _, told = ran(capsys, "certify", *words, "--certificate", "no.cert")
    assert code == 2
    assert what in told
    assert not Path("no.cert").exists()


def test_a_table_goes_with_a_certificate_alone(folder, capsys):
    ran(capsys, "bounds", "model.npz", "-o", "bounds.json")
    code, _, told = ran(capsys, "audit", "bounds.json", "--model", "model.npz", "--inputs", "inputs.npy")
    assert code == 2
    assert "certificate" in told


def test_a_network_that_no_certificate_is_of_is_refused_at_once(folder, capsys):
    between = Network.from_arrays([[[1.0, 2.0], [3.0, 4.0]]] * 2, mean=0.5, std=2.0, eps_space="normalised")
    save_model(between, "normalised.npz")
    words = ("normalised.npz", "--eps-space", "normalised", "--certificate", "no.cert")
    code, shown, told = ran(capsys, "bounds", *words)
    assert (code, shown) == (3, "")
    assert "space of the inputs" in told
    assert not Path("no.cert").exists()
