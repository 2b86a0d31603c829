"""Who may import whom: the contracts in pyproject.toml hold, and breaking one is noticed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter")

ROOT = Path(__file__).resolve().parents[1]


def lint(folder):
    """Runs import-linter on the package in `folder`, with the contracts of the pyproject.toml there."""
    program = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def copy(tmp_path):
    """The package and its contracts, to be broken."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "intervalcert", tmp_path / "intervalcert", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_contracts_hold(copy):
    """In the repository, and in an untouched copy, so that the failures below have one cause."""
    for folder in (ROOT, copy):
        done = lint(folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("proof/norms.py", "import intervalcert.backends.arb", "rooms receive a number system and never choose one"),
        ("verify/points.py", "from intervalcert.backends import registry", "rooms receive a number system"),
        ("proof/norms.py", "import intervalcert.search.factors", "proof never searches"),
        ("model/network.py", "from intervalcert import cli", "rooms look down only"),
        ("backends/protocol.py", "from intervalcert.model import network", "rooms look down only"),
        ("backends/exact.py", "import flint", "only backends.arb knows FLINT"),
        ("model/network.py", "import flint", "only backends.arb knows FLINT"),
        ("backends/arb.py", "import intervalcert.backends.exact", "number systems do not know each other"),
        ("checker/core.py", "import numpy", "the checker is of the standard library"),
        ("checker/core.py", "import intervalcert.errors", "rooms look down only"),
        ("verify/points.py", "import intervalcert.checker.core", "the checker stands alone"),
    ],
)
def test_a_broken_contract_is_noticed(copy, module, line, contract):
    path = copy / "intervalcert" / module
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint(copy)
    assert done.returncode != 0
    assert re.search(rf"{re.escape(contract)}.* BROKEN", done.stdout), done.stdout + done.stderr


def test_a_module_without_a_place_is_noticed(copy):
    """Whoever adds a module must say in which layer it is."""
    (copy / "intervalcert" / "extra.py").write_text('"""Nobody knows me."""\n')
    done = lint(copy)
    assert done.returncode != 0
    assert "extra" in done.stdout
