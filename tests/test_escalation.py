"""The rational fallback: what one rung cannot settle goes to the next, and nothing is lost or hidden on the way."""

from fractions import Fraction

import pytest

from intervalcert.backends.escalation import SHARP_BITS, describe, escalate, is_sharp
from intervalcert.backends.registry import backend_names, get_backend, ladder_names, precision_ladder
from intervalcert.errors import InputError, SoundnessError, UnboundedError, UndecidedError, UsageError

FIRST, SECOND, LAST = get_backend("arb", 32), get_backend("arb", 32).refined(), get_backend("exact", 32)
LADDER = (FIRST, SECOND, LAST)


def answering(answers):
    """A computation with a prepared answer, or exception, for each rung; it records who was asked."""
    asked = []

    def compute(backend):
        asked.append(backend)
        answer = answers[LADDER.index(backend)]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return compute, asked


def test_the_first_answer_counts():
    compute, asked = answering(["first", "second", "last"])
    settled = escalate(LADDER, compute)
    assert (settled.value, settled.backend, settled.skipped_because) == ("first", FIRST, ())
    assert asked == [FIRST]


@pytest.mark.parametrize("error", [UndecidedError("too close"), UnboundedError("around zero")], ids=repr)
def test_an_inconclusive_rung_is_passed_over_and_named(error):
    compute, asked = answering([error, "second", "last"])
    settled = escalate(LADDER, compute)
    assert (settled.value, settled.backend) == ("second", SECOND)
    assert settled.skipped_because == (f"arb, 64 bits: {error}",)
    assert asked == [FIRST, SECOND]


def test_an_answer_of_no_use_is_passed_over_and_named():
    compute, _ = answering(["wide", UndecidedError("too close"), "exactly"])
    settled = escalate(LADDER, compute, is_useful=lambda answer: answer != "wide")
    assert (settled.value, settled.backend) == ("exactly", LAST)
    assert len(settled.skipped_because) == 2
    assert settled.skipped_because[0].startswith("arb, 64 bits: ")
    assert str(SHARP_BITS) in settled.skipped_because[0]
    assert settled.skipped_because[1] == "arb, 128 bits: too close"


def test_the_last_answer_counts_even_if_it_is_of_no_use():
    """It is sound all the same, and there is nobody left to ask."""
    compute, _ = answering(["wide", "wide", "last"])
    settled = escalate(LADDER, compute, is_useful=lambda _: False)
    assert (settled.value, settled.backend, len(settled.skipped_because)) == ("last", LAST, 2)


def test_the_error_of_the_last_rung_is_raised():
    compute, _ = answering([UndecidedError("a"), UndecidedError("b"), UnboundedError("c")])
    with pytest.raises(UnboundedError, match="c"):
        escalate(LADDER, compute)


@pytest.mark.parametrize(
    "error", [InputError("x"), SoundnessError("x"), ValueError("x"), ZeroDivisionError("x")], ids=repr
)
def test_other_errors_are_not_swallowed(error):
    """A failed self-check or a mistake in the code is no reason to try another precision."""
    compute, asked = answering([error, "second", "last"])
    with pytest.raises(type(error)):
        escalate(LADDER, compute)
    assert asked == [FIRST]


def test_a_single_rung():
    settled = escalate((LAST,), lambda backend: backend.prec)
    assert (settled.value, settled.skipped_because) == (32, ())


def test_an_undecided_branch_goes_on_to_the_rung_that_decides(backend_name):
    """1/3 and 1/3 + 2^-200: told apart by points alone, at this precision."""
    near = Fraction(1, 3) + Fraction(1, 2**200)
    settled = escalate(
        precision_ladder(backend_name, 16),
        lambda backend: bool(backend.scalar(Fraction(1, 3)).less(backend.scalar(near))),
    )
    assert settled.value is True
    assert settled.backend.working_bits is None
    assert len(settled.skipped_because) == len(precision_ladder(backend_name, 16)) - 1


@pytest.mark.parametrize(
    ("lower", "upper", "sharp"),
    [
        (Fraction(0), Fraction(0), True),
        (Fraction(5), Fraction(5), True),
        (Fraction(0), Fraction(1, 10**30), False),  # next to nothing, but all of it
        (Fraction(-1), Fraction(1), False),
        (Fraction(2**21), Fraction(2**21 + 2), True),
        (Fraction(2**21), Fraction(2**21 + 4), False),
        (Fraction(-(2**21) - 2), Fraction(-(2**21)), True),
        (Fraction(1, 10**300), Fraction(1, 10**300) * (1 + Fraction(1, 2**21)), True),
    ],
)
def test_sharpness_is_relative(lower, upper, sharp):
    class FloatBounds:
        def lower(self):
            return lower

        def upper(self):
            return upper

    assert is_sharp(FloatBounds()) is sharp


def test_descriptions_tell_the_rungs_apart():
    assert [describe(rung) for rung in LADDER] == ["arb, 64 bits", "arb, 128 bits", "exact"]
    assert len({describe(get_backend(name, 32)) for name in backend_names()}) == len(backend_names())


def test_auto_is_a_ladder_and_no_number_system():
    """It begins with float64 and ends with exact."""
    for prec in (40, 64):
        assert precision_ladder("auto", prec) == precision_ladder("float64", prec)
    assert list(dict.fromkeys(backend.name for backend in precision_ladder("auto"))) == ["float64", "arb", "exact"]
    assert ladder_names() == ("auto", *backend_names())
    assert "auto" not in backend_names()
    with pytest.raises(UsageError, match="no number system 'auto'"):
        get_backend("auto")


@pytest.mark.parametrize("name", ["", "Auto", "float", None, "auto "])
def test_other_ladders_are_refused_with_the_names_of_all(name):
    with pytest.raises(UsageError, match=f"there is no backend {name!r}: choose one of auto, arb, float64, exact, mpm"):
        precision_ladder(name)
