"""The filter gives the answer of exact arithmetic: verdict and radius, row by row, whatever the numbers.

Every check compares with `Certifier` on exact rationals, the one-by-one path. What the filter calls settled is compared
before the exact path can correct it. The same checks must catch filters that are broken on purpose.
"""

import math
import random
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import InputError
from intervalcert.backends.registry import get_backend
from intervalcert.numbers.matrices import RationalVector
from intervalcert.numbers.rounding import float_below
from intervalcert.proof.decision import Certifier, Status, Verdict
from intervalcert.verify import filter as filtering
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import Verdicts

EXACT = get_backend("exact")
DTYPES = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
TYPES = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)


def exact(row):
    return RationalVector.from_fractions([Fraction(float(x)) for x in row])


def symmetric(values):
    """Margins of three classes from three numbers."""
    a, b, c = values
    return [[Fraction(0), a, b], [a, Fraction(0), c], [b, c, Fraction(0)]]


def truths(margins, array, radii):
    reference = Certifier(margins, (EXACT,))
    return [[reference.verdict(exact(row), eps) for row in array] for eps in radii]


def mistakes(margins, array, radii, expected=None):
    """Rows where the filter claims something that exact arithmetic does not say; and how many it left open."""
    tables = filtering.MarginTables(margins)
    tile = np.ascontiguousarray(np.asarray(array).astype(np.float64).T)
    wrong, left = [], 0
    for eps, row_truths in zip(radii, expected or truths(margins, array, radii), strict=True):
        ends = Epsilons.all_equal(eps)
        found = filtering.filter_exact(tables, tile, ends.lower, ends.upper)
        coarse = filtering.filter_rounded(tables, tile, ends.lower, ends.upper)
        for index, (row, truth) in enumerate(zip(array, row_truths, strict=True)):
            mine = found.argmax[index], found.certified[index], found.radius[index]
            if found.settled[index] and mine != (truth.argmax, truth.certified, truth.radius):
                wrong.append((row, eps, mine, truth))
            rough = coarse.argmax[index], coarse.certified[index]
            if coarse.settled[index] and rough != (truth.argmax, truth.certified):
                wrong.append((row, eps, rough, truth))
            left += not found.settled[index]
    return wrong, left


def check_bulk(margins, array, radii):
    """The whole path, exact rationals included: always the truth, for one radius and for one per row."""
    reference, bulk = Certifier(margins, (EXACT,)), VectorisedCertifier(margins, EXACT)
    rows = NumberTable.of_array(array)
    for eps in radii:
        expected = [reference.verdict(exact(row), eps, index) for index, row in enumerate(array)]
        assert bulk.verdicts(rows, Epsilons.all_equal(eps)) == expected
        rough = bulk.verdicts(rows, Epsilons.all_equal(eps), with_radius=False)
        assert rough.certified.tolist() == [verdict.certified for verdict in expected]
    own = [radii[index % len(radii)] for index in range(len(array))]
    expected = [
        reference.verdict(exact(row), eps, index) for index, (row, eps) in enumerate(zip(array, own, strict=True))
    ]
    assert bulk.verdicts(rows, Epsilons.of(own)) == expected


# -- any numbers -----------------------------------------------------------------------------------------------------

SCALES = st.sampled_from(
    [Fraction(1), Fraction(2) ** 400, Fraction(2) ** -400, Fraction(10) ** 300, Fraction(2) ** -2000]
)
MARGIN = st.one_of(
    st.just(Fraction(0)),
    st.integers(1, 9).map(Fraction),
    st.fractions(Fraction(1, 1000), 1000, max_denominator=10**6),
    st.builds(lambda m, e, s: Fraction(m, 2**e) * s, st.integers(2**64, 2**200), st.integers(60, 220), SCALES),
)
RADIUS = st.one_of(
    st.just(Fraction(0)),
    st.fractions(0, 10, max_denominator=1000),
    st.floats(0, allow_infinity=False).map(Fraction),
    st.just(Fraction(10) ** 400),
)


def logits(dtype):
    width = {"float16": 16, "float32": 32, "float64": 64, "bfloat16": 16}[np.dtype(dtype).name]
    some = st.one_of(
        st.floats(width=width, allow_nan=False, allow_infinity=False),
        st.integers(-4, 4).map(float),
        st.sampled_from([0.0, 5e-324, 1e-45, 6e-8, 1e300, -1e300, 3e38, 65504.0]),
    )
    finite = some.map(lambda x: np.array(x).astype(np.float64).astype(dtype)).filter(lambda x: np.isfinite(float(x)))
    return st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=6).map(lambda r: np.array(r, dtype=dtype))


@TYPES
@given(data=st.data())
def test_any_row_has_the_verdict_and_radius_of_exact_arithmetic(dtype, data):
    with np.errstate(over="ignore"):
        array = data.draw(logits(dtype))
    margins = symmetric(data.draw(st.tuples(MARGIN, MARGIN, MARGIN)))
    radii = data.draw(st.lists(RADIUS, min_size=1, max_size=3))
    assert mistakes(margins, array, radii)[0] == []
    check_bulk(margins, array, radii)


# -- rows built to sit on the edge -----------------------------------------------------------------------------------


def neighbours(x, dtype):
    up = np.nextafter(x, np.inf, dtype=dtype) if dtype is not ml_dtypes.bfloat16 else bfloat_step(x, 1)
    down = np.nextafter(x, -np.inf, dtype=dtype) if dtype is not ml_dtypes.bfloat16 else bfloat_step(x, -1)
    return down, x, up


def bfloat_step(x, step):
    """Positive ones are integers in their order."""
    return (np.array([x]).view(np.uint16) + np.uint16(step) if step > 0 else np.array([x]).view(np.uint16) - 1).view(
        ml_dtypes.bfloat16
    )[0]


def on_the_edge(dtype, seed):
    """(margins, rows, radii): y_j - y_i = eps·L exactly, y_j a unit in the last place either side, and knife edges."""
    rng = random.Random(seed)
    low, high = (
        dtype(x) for x in (rng.uniform(-3, 3), rng.choice([rng.uniform(4, 60), 4.0, 2.0 ** rng.randrange(3, 6)]))
    )
    lead = Fraction(float(high)) - Fraction(float(low))
    rows = [[top, low, dtype(-64.0)] for top in neighbours(high, dtype)]
    rows += [[low, top, dtype(-64.0)] for top in neighbours(high, dtype)]
    # A decimal, a float and a random long dyadic as radius; the margin makes the lead equal to eps·L.
    eps = rng.choice([Fraction(3, 10), Fraction(0.3), Fraction(rng.getrandbits(180) | 1, 2**182), Fraction(1, 4)])
    edge = lead / eps
    # Knife edges: the supremum is a float, but for a part of 2^-55 … 2^-190 of it, or not even that.
    r = Fraction(rng.choice([rng.uniform(0.1, 5), 2.0 ** rng.randrange(-3, 4)]))
    knife = lead / (r * (1 + rng.choice([-1, 0, 1]) * Fraction(1, 2 ** rng.choice([55, 90, 100, 110, 150, 190]))))
    third = rng.choice([Fraction(1, 1000), edge, knife, knife * (1 + Fraction(1, 2**70)), Fraction(0)])
    margins = symmetric(rng.sample([rng.choice([edge, knife]), third, Fraction(1, 10**6)], 3))
    tilt = Fraction(1, 2**300)
    radii = [eps, eps * (1 - tilt), eps * (1 + tilt), r, r * (1 - tilt), r * (1 + tilt), Fraction(float_below(r))]
    return margins, np.array(rows, dtype=dtype), radii


def knife(seed):
    """One rival, and a supremum within 2^-98 … 2^-150 of a float: where the correction of the quotient is all error."""
    rng = random.Random(seed)
    r, tilt = Fraction(rng.uniform(0.1, 5)), Fraction(rng.choice([-1, 1]), 2 ** rng.choice([98, 104, 107, 110, 150]))
    row = [rng.uniform(4, 60), rng.uniform(-3, 3), -100.0]
    margin = (Fraction(row[0]) - Fraction(row[1])) / (r * (1 + tilt))
    return symmetric([margin, Fraction(1, 10**6), Fraction(1)]), np.array([row]), [r, Fraction(1, 7)]


def crowd(seed):
    """Two rivals whose quotients differ by far less than floats can tell, on either side of a float."""
    rng = random.Random(seed)
    r, tilt = Fraction(rng.uniform(0.5, 2)), Fraction(1, 2 ** rng.choice([54, 60, 75]))
    row = [rng.uniform(5, 6), rng.uniform(-1, 1), rng.uniform(-1, 1)]
    leads = [Fraction(row[0]) - Fraction(x) for x in row[1:]]
    first, second = rng.sample([r * (1 - tilt), r * (1 + tilt)], 2)
    return symmetric([leads[0] / first, leads[1] / second, Fraction(1)]), np.array([row]), [r, r * (1 - tilt)]


@pytest.fixture(scope="module")
def cases():
    """Rows on the edge, and the truth about them."""
    tie = symmetric([Fraction(1)] * 3), np.array([[1.0, 1.0, 0.0]]), [Fraction(0)]
    found = [on_the_edge(dtype, seed) for dtype in DTYPES for seed in range(40)]
    found += [make(seed) for make in (crowd, knife) for seed in range(40)]
    return [(*case, truths(*case)) for case in [*found, tie]]


def test_rows_on_the_edge(cases):
    assert [mistake for case in cases for mistake in mistakes(*case)[0]] == []
    for margins, array, radii, _ in cases[::4]:
        check_bulk(margins, array, radii)


def test_the_edges_are_edges(cases):
    """Among the rows are certified ones, refused ones, and ones that the filter must leave to exact rationals."""
    certified = [verdict.certified for *_, expected in cases for rows in expected for verdict in rows]
    assert 0.1 < sum(certified) / len(certified) < 0.9
    assert sum(mistakes(*case)[1] for case in cases) > 100


def verdicts(margins, array, eps):
    return VectorisedCertifier(margins, EXACT).verdicts(NumberTable.of_array(array), Epsilons.all_equal(eps))


def with_source(old, new):
    """The filter with a line of its source changed."""

    def change(monkeypatch):
        source = Path(filtering.__file__).read_text()
        assert source.count(old) == 1, old
        broken = ModuleType("broken")
        monkeypatch.setitem(sys.modules, "broken", broken)
        exec(source.replace(old, new), broken.__dict__)
        for name in ("MarginTables", "filter_exact", "filter_rounded"):
            monkeypatch.setattr(filtering, name, getattr(broken, name))

    return change


BROKEN = {
    "at most, not below": with_source("- (d <= 0)).view", "- (d < 0)).view"),
    "eps at the next float": with_source("(eps_upper <= radius)", "(eps_lower <= radius)"),
    "refuted at the radius": with_source("(eps_lower > radius)", "(eps_upper > radius)"),
    "no tolerance": with_source(">= _TOLERANCE * q", ">= 0 * q"),
    "the lead rounded": with_source("e = (best - (s - v)) - (other + v)", "e = 0 * v"),
    "the margin rounded": with_source("float_near(rest, whole), rest == 0", "0.0, True"),
    "the quotient rounded": with_source("t = q + c", "t = q; c = 0 * c"),
    "rivals not compared": with_source("settled & ~alone", "settled & (alone & ~alone)"),
    "ties certified": with_source("(eps_upper <= radius) & ~tied", "(eps_upper <= radius)"),
    "no slack": with_source("slack = 2.0**-49 *", "slack = 0.0 *"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_filter_is_caught(name, monkeypatch, cases):
    """Negative controls: were one of these not noticed, the tests above would prove little."""
    BROKEN[name](monkeypatch)
    assert any(mistakes(*case)[0] for case in reversed(cases)) or rounding_mistakes()


# -- logits that are not floats --------------------------------------------------------------------------------------


def rounding_mistakes():
    """Decimals near the edge, judged by their nearest floats."""
    wrong = []
    rng = random.Random(7)
    for count in range(900):
        row = [Fraction(rng.randrange(10**19, 3 * 10**19), 10**19) for _ in range(3)]
        if count % 3 == 1:
            row = [-x for x in row]  # the largest is not the largest in size
        if count % 3 == 2:
            row[row.index(min(row))] /= 10**12  # nor is it the size of all
        top = max(row)
        second = max(x for x in row if x != top)
        margins = symmetric([Fraction(1)] * 3)
        eps = (top - second) * (1 + Fraction(rng.randrange(-2, 3), 10**17))
        tile = np.array([[float(x)] for x in row])
        ends = Epsilons.all_equal(eps)
        found = filtering.filter_rounded(filtering.MarginTables(margins), tile, ends.lower, ends.upper)
        truth = Certifier(margins, (EXACT,)).verdict(RationalVector.from_fractions(row), eps)
        if found.settled[0] and (found.certified[0], found.argmax[0]) != (truth.certified, truth.argmax):
            wrong.append((row, eps))
    return wrong


def test_rounded_logits_near_the_edge():
    assert rounding_mistakes() == []


@given(
    st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3), min_size=1, max_size=5),
    st.sampled_from([Fraction(0), Fraction(1), Fraction(2) ** 60, Fraction(1, 3)]),
)
def test_integers_beyond_the_floats(rows, eps):
    margins = symmetric([Fraction(1), Fraction(3, 2), Fraction(1, 7)])
    expected = [
        Certifier(margins, (EXACT,)).verdict(RationalVector(row, 1), eps, index) for index, row in enumerate(rows)
    ]
    assert verdicts(margins, np.array(rows, dtype=np.int64), eps) == expected


def test_neighbouring_integers_are_told_apart():
    """2^53 + 1 is not a float: as one it would tie with 2^53."""
    margins = symmetric([Fraction(1, 4)] * 3)
    (verdict,) = verdicts(margins, np.array([[2**53, 2**53 + 1, 0]]), Fraction(1))
    assert (verdict.argmax, verdict.certified, verdict.radius) == (1, True, float_below(Fraction(4)))


# -- the edges of the range ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 2.3e-308, 1e-200])
def test_smallest_leads(tiny):
    margins = symmetric([Fraction(1), Fraction(2), Fraction(1, 3)])
    array = np.array([[tiny, 0.0, -tiny], [0.0, tiny, 0.0], [tiny, tiny, 0.0]])
    check_bulk(margins, array, [Fraction(0), Fraction(tiny) / 2, Fraction(tiny)])


@pytest.mark.parametrize(
    "margin", [Fraction(2) ** 20000, Fraction(2) ** -20000, Fraction(10) ** 308, Fraction(2) ** 301]
)
def test_margins_beyond_the_floats(margin):
    array = np.array([[1.0, 0.5, 0.25], [1e308, -1e308, 0.0], [1.0, 1.0, 0.0]])
    check_bulk(symmetric([margin, Fraction(1), margin]), array, [Fraction(0), Fraction(1, 4), 1 / margin])


def test_without_margins_nothing_limits_the_radius():
    found = verdicts(symmetric([Fraction(0)] * 3), np.array([[1.0, 2.0, 0.0], [2.0, 2.0, 0.0]]), Fraction(10) ** 500)
    assert found.certified.tolist() == [True, False]
    assert found.radius.tolist() == [math.inf, 0.0]
    assert not found.exactly.any()


def test_ordinary_rows_and_ties_need_no_rationals():
    rng = np.random.default_rng(1)
    margins = [
        [Fraction(0) if i == j else Fraction(rng.random()) + Fraction(1, 2**90) for j in range(10)] for i in range(10)
    ]
    for dtype in DTYPES:
        array = (rng.standard_normal((5000, 10)) * 4).astype(dtype)
        array[::7, 3] = array[::7, 4] = array[::7].astype(np.float64).max(axis=1).astype(dtype)
        assert verdicts(margins, array, Fraction(3, 10)).exactly.sum() == 0
    # The same margin and the same logit twice is one quotient, not two close ones.
    assert not verdicts(symmetric([Fraction(1)] * 3), np.array([[3.0, 1.0, 1.0]]), Fraction(1)).exactly.any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@TYPES
def test_what_is_not_finite_is_refused_with_its_place(dtype, value):
    array = np.ones((20_000, 3), dtype=dtype)
    array[15_000, 1] = value
    with pytest.raises(InputError, match=f"the outputs: {value} in row 15000, column 1"):
        verdicts(symmetric([Fraction(1)] * 3), array, Fraction(0))


def test_negative_radii_are_refused_with_their_place():
    with pytest.raises(InputError, match=r"output 8: .*-0\.5"):
        Epsilons.of_floats(np.array([0.0, -0.5]), 7)
    with pytest.raises(InputError, match=r"output 1: .*-1/3"):
        Epsilons.of([Fraction(0), Fraction(-1, 3)])
    alone = Certifier(symmetric([Fraction(1)] * 3), (EXACT,))
    with pytest.raises(InputError, match=r"output 4: .*-1/3"):
        alone.verdict(RationalVector((3, 2, 1), 1), Fraction(-1, 3), 4)
    assert alone.verdict(RationalVector((3, 2, 1), 1), Fraction(0)).certified


def test_where_the_processor_drops_subnormals_floats_decide_nothing(monkeypatch):
    monkeypatch.setattr("intervalcert.verify.vectorised.arithmetic_fault", lambda: "broken")
    found = verdicts(symmetric([Fraction(1)] * 3), np.array([[3.0, 1.0, 0.0]]), Fraction(1))
    assert found.exactly.all()
    assert found == [Verdict(0, 0, Status.CERTIFIED, float_below(Fraction(2)), "real", "input")]
    with pytest.raises(InputError, match="nan in row 0, column 0"):
        verdicts(symmetric([Fraction(1)] * 3), np.array([[np.nan, 1.0, 0.0]]), Fraction(1))


# -- the sequence of verdicts ----------------------------------------------------------------------------------------


def test_verdicts_are_a_sequence():
    listed = [
        Verdict(4, 1, Status.CERTIFIED, 0.5, "real", "input"),
        Verdict(5, 0, Status.UNKNOWN, 0.0, "real", "input", exactly=True),
    ]
    found = Verdicts.of(listed)
    assert found == listed == list(found) == [found[0], found[-1]]
    assert found == tuple(listed)
    assert found != listed[:1]
    assert found != 3
    assert found[1:] == listed[1:]
    assert [v.exactly for v in found] == [False, True]
    assert listed[1] in found
    assert "2 verdicts, 1 certified" in repr(found)
    with pytest.raises(IndexError):
        found[2]
    with pytest.raises(ValueError, match="read-only"):
        found.certified[1] = True
