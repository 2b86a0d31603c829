"""Dyadics and the symmetric matrix made of them: exact in, exact out, and each pair once."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert.numbers.pairs import Dyadics, PairMatrix, floats_above
from intervalcert.numbers.rounding import dyadic_value, float_enclosure

dyadics = st.builds(dyadic_value, st.integers(-(2**70), 2**70), st.integers(-1200, 1200))
bounds = dyadics.map(abs)


@given(values=st.lists(dyadics))
def test_what_goes_in_comes_out(values):
    made = Dyadics.of_fractions(values)
    assert list(made) == values
    assert [made[k] for k in range(len(values))] == values
    assert list(made[1:]) == values[1:]
    assert all(m % 2 or (m, e) == (0, 0) for m, e in made.parts()), "equal numbers are held alike"
    assert made == Dyadics.of((m * 8, e - 3) for m, e in made.parts())
    assert hash(made) == hash(Dyadics.of_fractions(values))


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), exponent=st.integers(-5000, 5000))
def test_floats_are_taken_at_their_exact_value(values, exponent):
    made = Dyadics.of_floats(np.array(values), np.full(len(values), exponent))
    assert list(made) == [Fraction(x) * Fraction(2) ** exponent for x in values]
    assert made == Dyadics.of_fractions(made)


@given(pairs=st.lists(st.tuples(dyadics, dyadics)))
def test_the_smaller_of_two(pairs):
    one, other = (Dyadics.of_fractions(side) for side in ([x for x, _ in pairs], [y for _, y in pairs]))
    assert list(one.smaller(other)) == [min(pair) for pair in pairs]


@given(values=st.lists(bounds, min_size=1))
def test_floats_from_above(values):
    """The least ones: among the subnormals, in the midst of a step, and beyond the largest."""
    found = Dyadics.of_fractions(values).rounded_up().tolist()
    assert found == [float_enclosure(x, x)[1] for x in values]


@pytest.mark.parametrize(
    ("exact", "expected"),
    [
        (Fraction(2**53 + 1), 2.0**53 + 2),
        (Fraction(1, 2**1200), 5e-324),
        (3 * Fraction(1, 2**1075), 1e-323),
        (Fraction(2**1024 - 2**970 + 1), np.inf),
        (Fraction(2**1024 - 2**971), 1.7976931348623157e308),
        (Fraction(0), 0.0),
    ],
)
def test_floats_from_above_at_the_ends(exact, expected):
    assert Dyadics.of_fractions([exact]).rounded_up().tolist() == [expected]


def table_of(entries, classes):
    rows = [[Fraction(0)] * classes for _ in range(classes)]
    places = ((i, j) for j in range(classes) for i in range(j))
    for (i, j), value in zip(places, entries, strict=True):
        rows[i][j] = rows[j][i] = value
    return rows


@given(data=st.data(), classes=st.integers(1, 6))
def test_a_matrix_of_pairs_is_that_matrix(data, classes):
    entries = data.draw(st.lists(bounds, min_size=classes * (classes - 1) // 2, max_size=classes * (classes - 1) // 2))
    rows = table_of(entries, classes)
    made = PairMatrix(Dyadics.of_fractions(entries))
    assert len(made) == classes
    assert [[made[i][j] for j in range(classes)] for i in range(classes)] == rows
    assert [list(row) for row in made] == rows
    assert [made[i][-1] for i in range(-classes, 0)] == [row[-1] for row in rows]
    assert [list(row) for row in made[1:]] == rows[1:]
    assert [list(row[1:]) for row in made] == [row[1:] for row in rows]
    assert made == tuple(map(tuple, rows))
    assert tuple(map(tuple, rows)) == made
    assert made == PairMatrix.of(rows) == pickle.loads(pickle.dumps(made))
    assert hash(made) == hash(PairMatrix.of(rows))
    floats = [[float_enclosure(x, x)[1] for x in row] for row in rows]
    for matrix in (made, rows):
        assert floats_above(matrix).tolist() == floats
        assert not floats_above(matrix).flags.writeable
    with pytest.raises(IndexError):
        made[classes]
    with pytest.raises(IndexError):
        made[0][classes]


def test_another_number_makes_another_matrix():
    one = PairMatrix.of(table_of([Fraction(1), Fraction(2), Fraction(3)], 3))
    assert one != PairMatrix.of(table_of([Fraction(1), Fraction(2), Fraction(4)], 3))
    assert one != ((0, 1, 2), (1, 0, 3), (2, 4, 0))
    assert one[0] != one[1]
    assert one != "margins"


BAD = {
    "asymmetric": [[0, 1], [2, 0]],
    "a diagonal": [[1, 1], [1, 0]],
    "not square": [[0, 1]],
    "no dyadic": [[0, Fraction(1, 3)], [Fraction(1, 3), 0]],
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_such_matrix_is_refused(name):
    with pytest.raises(ValueError, match=r"matrix|power of two"):
        PairMatrix.of([[Fraction(x) for x in row] for row in BAD[name]])


def test_a_number_of_pairs_that_no_classes_have_is_refused():
    with pytest.raises(ValueError, match="pairs"):
        PairMatrix(Dyadics.of_fractions([Fraction(1)] * 2))


def test_nobody_changes_what_is_held():
    made = PairMatrix.of(table_of([Fraction(1)], 2))
    with pytest.raises(ValueError, match="read-only"):
        made.entries.mantissas[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        made.entries.exponents[0] = 9
