"""What people read must not say more than was proved."""

import io
import sys
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import Network, compute_bounds
from intervalcert.bounds.audit import AuditedClaim, AuditReport
from intervalcert.cli.program import main
from intervalcert.report.text import audit_table, bounds_tables, excess_text, percent, print_data


@pytest.mark.parametrize(
    ("part", "total", "shown"),
    [
        (99_999, 100_000, "99.99 %"),
        (100, 100, "100.00 %"),
        (9540, 10_000, "95.40 %"),
        (0, 7, "0.00 %"),
        (1, 3, "33.33 %"),
    ],
)
def test_a_share_is_rounded_down(part, total, shown):
    assert percent(part, total) == shown


def test_no_digit_is_cut_off_on_a_narrow_terminal(monkeypatch, capsys):
    """An upper bound without its last digits, or without its exponent, reads as a smaller one."""
    monkeypatch.setenv("COLUMNS", "60")
    rng = np.random.default_rng(0)
    bounds = compute_bounds(
        Network.from_arrays([rng.normal(size=(20, 30)), rng.normal(size=(12, 20)) * 1e60]), "exact", 4
    )
    print_data(bounds_tables(bounds))
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert shown.count("e+6") >= 12 * 11


def test_a_claim_that_fails_by_little_is_shown_failing(capsys):
    """Claimed and exact are rounded apart, whichever way the claim errs."""
    exact = Fraction(10, 3)
    hair = Fraction(1, 2**70)
    print_data(
        audit_table(
            AuditReport(
                (
                    AuditedClaim("layer 0, upper", exact - hair, exact, confirmed=False),
                    AuditedClaim("layer 0, lower", exact + hair, exact, confirmed=False),
                )
            ),
            "input",
        )
    )
    below, above = "3.3333333333333333", "3.3333333333333334"
    lines = [line for line in capsys.readouterr().out.splitlines() if "layer 0" in line]
    assert [line.index(below) < line.index(above) for line in lines] == [True, False]


def test_tightness_is_rounded_up():
    assert excess_text(Fraction(1001, 1000), Fraction(1)) == "+0.001"
    assert excess_text(Fraction(100101, 100000), Fraction(1)) == "+0.0011"
    assert excess_text(Fraction(1), Fraction(1)) == "exact"
    assert excess_text(Fraction(1), Fraction(0)) == "unknown"


def test_without_stderr_the_work_is_done(monkeypatch, tmp_path):
    """A closed stderr is None: no bar, no message, and above all no exit code that means something else."""
    np.savez(tmp_path / "model.npz", W0=np.eye(3))
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(["bounds", str(tmp_path / "model.npz"), "-o", str(tmp_path / "b.json")]) == 0
    assert (tmp_path / "b.json").exists()


def test_a_fault_of_the_program_is_not_a_verdict(monkeypatch, capsys, tmp_path):
    """Exit code 1 means "not certified": a bug must not say that."""
    np.savez(tmp_path / "model.npz", W0=np.eye(3))
    monkeypatch.setattr("intervalcert.api.compute_bounds", lambda *_, **__: 1 / 0)
    assert main(["bounds", str(tmp_path / "model.npz")]) == 70
    assert "report" in capsys.readouterr().err


@pytest.mark.parametrize("first", ["NA,NA,NA", "None,None,None", '"1","2","3"', "nan,nan,nan"])
def test_a_first_line_without_numbers_is_not_always_a_header(first, tmp_path, capsys):
    np.savez(tmp_path / "model.npz", W0=np.eye(3))
    (tmp_path / "y.csv").write_text(f"{first}\n1,2,3\n")
    assert main(["bounds", str(tmp_path / "model.npz"), "-o", str(tmp_path / "b.json")]) == 0
    assert main(["certify", str(tmp_path / "b.json"), str(tmp_path / "y.csv"), "--eps", "0.1"]) == 3


def test_a_skipped_header_is_mentioned(tmp_path, capsys):
    np.savez(tmp_path / "model.npz", W0=np.eye(3))
    (tmp_path / "y.csv").write_text("cat,dog,fish\n1,2,3\n")
    assert main(["bounds", str(tmp_path / "model.npz"), "-o", str(tmp_path / "b.json")]) == 0
    assert main(["certify", str(tmp_path / "b.json"), str(tmp_path / "y.csv"), "--eps", "0.1"]) == 0
    assert "cat,dog,fish" in capsys.readouterr().err


@pytest.mark.parametrize("eps", ["-1e-3", "-1/3", "-inf", "-.5"])
def test_a_negative_eps_is_refused_as_input(eps, tmp_path, capsys):
    np.savez(tmp_path / "model.npz", W0=np.eye(3))
    (tmp_path / "y.csv").write_text("1,2,3\n")
    assert main(["bounds", str(tmp_path / "model.npz"), "-o", str(tmp_path / "b.json")]) == 0
    assert main(["certify", str(tmp_path / "b.json"), str(tmp_path / "y.csv"), "--eps", eps]) == 3
    assert "--eps" in capsys.readouterr().err


def test_an_input_is_not_overwritten(tmp_path, capsys):
    np.savez(tmp_path / "model.npz", W0=np.eye(3))
    before = (tmp_path / "model.npz").read_bytes()
    assert main(["bounds", str(tmp_path / "model.npz"), "-o", str(tmp_path / "model.npz")]) == 2
    assert (tmp_path / "model.npz").read_bytes() == before
