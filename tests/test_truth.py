"""Three-valued truth: an undecided comparison must never be read as an answer."""

import pytest

from intervalcert.backends.protocol import Truth
from intervalcert.errors import InconclusiveError, UndecidedError


def test_decided_truth_is_a_bool():
    assert bool(Truth.TRUE) is True
    assert bool(Truth.FALSE) is False


@pytest.mark.parametrize(
    "use",
    [
        bool,
        lambda truth: 1 if truth else 0,
        lambda truth: not truth,
        lambda truth: truth and True,
        lambda truth: truth or True,
        lambda truth: any([Truth.FALSE, truth]),
        lambda truth: all([Truth.TRUE, truth]),
    ],
    ids=["bool", "if", "not", "and", "or", "any", "all"],
)
def test_undecided_truth_cannot_be_used_as_a_bool(use):
    with pytest.raises(UndecidedError):
        use(Truth.UNKNOWN)


def test_the_error_is_one_that_the_fallback_catches():
    assert issubclass(UndecidedError, InconclusiveError)


@pytest.mark.parametrize(("truth", "certainly"), [(Truth.TRUE, True), (Truth.FALSE, False), (Truth.UNKNOWN, False)])
def test_certainly_is_decided_for_all_three(truth, certainly):
    assert truth.certainly() is certainly


def test_from_the_two_halves_of_a_comparison():
    assert Truth.of(proved=True, refuted=False) is Truth.TRUE
    assert Truth.of(proved=False, refuted=True) is Truth.FALSE
    assert Truth.of(proved=False, refuted=False) is Truth.UNKNOWN
