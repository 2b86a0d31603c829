"""Fixtures that all tests share, and how hypothesis searches: the same examples in every run, no clock."""

import os
import signal
from pathlib import Path

# One thread of BLAS for each worker of the tests: more would wait for each other. It is read when numpy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# A shell starts what runs in its background deaf to interrupts, and programs pass that on to those that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["INTERVALCERT_RAISE_FAULTS"] = "1"  # a fault in an attempt is counted elsewhere; here it is raised

import pytest
from hypothesis import HealthCheck, settings

from intervalcert.backends.registry import backend_names

settings.register_profile(
    "intervalcert",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("intervalcert")


@pytest.fixture(scope="session", params=backend_names())
def backend_name(request):
    """Every registered number system: a test that asks for this runs on a new one without being changed."""
    return request.param


@pytest.fixture(scope="session")
def paper_dir():
    """The published model, outputs and verdicts; they are not part of the project."""
    path = Path(__file__).resolve().parents[1].parent / "shared" / "paper"
    if not path.is_dir():
        pytest.skip("the paper's files (../shared/paper) are not on this machine")
    return path
