"""Exact numbers: read as what they say, refused when they say nothing, rounded the way the name says."""

import math
import time
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import below_dyadic, decimals, explain, fractions, is_dyadic, non_negative, positive

from intervalcert.errors import InputError
from intervalcert.numbers.matrices import RationalMatrix, RationalVector
from intervalcert.numbers.parsing import (
    MAX_BINARY_EXPONENT,
    MAX_DIGITS,
    MAX_EXPONENT,
    as_fraction,
    parse_decimal,
    parse_rational,
)
from intervalcert.numbers.rounding import float_below, float_enclosure, round_down, round_up
from intervalcert.numbers.text import decimal_lower, decimal_upper, format_exact, shortest_exact

# -- parsing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("-0.0", 0),
        ("+7", 7),
        ("0.3", Fraction(3, 10)),
        ("-.5", Fraction(-1, 2)),
        ("5.", 5),
        ("007.50", Fraction(15, 2)),
        ("1e-5", Fraction(1, 10**5)),
        ("1E+3", 1000),
        ("-2.5e-1", Fraction(-1, 4)),
        (" 0.3\n", Fraction(3, 10)),
        ("36/255", Fraction(12, 85)),
        ("-1/3", Fraction(-1, 3)),
        ("0.5/1e-2", 50),
        ("1/-4", Fraction(-1, 4)),
        ("3*2^-4", Fraction(3, 16)),
        ("-3*2^2", -12),
        ("0*2^0", 0),
        ("5e-324", Fraction(5, 10**324)),
    ],
)
def test_numbers_are_what_they_say(text, value):
    assert parse_rational(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "-",
        "+",
        "e5",
        ".e5",
        "1e",
        "1e+",
        "1e1.5",
        "--1",
        "+-1",
        "1 2",
        "1 e5",
        "1,5",
        "1_000",
        "0x10",
        "١",
        "１",
        "²",
        "1١",
        "1e١",
        "1\u00a02",
        "1\x00",
        "nan",
        "NaN",
        "-nan",
        "inf",
        "-Infinity",
        "1/0",
        "1/0.0",
        "0/0",
        "1/2/3",
        "/2",
        "1/",
        "1/nan",
        "3*2^",
        "3*2^x",
        "1.5*2^3",
        "3**2",
        "3*2^1.5",
        "1j",
        "True",
        "0.3f",
    ],
)
def test_what_is_no_number_is_refused(text):
    with pytest.raises(InputError):
        parse_rational(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "Infinity"])
def test_the_refusal_of_a_non_finite_number_says_so(text):
    with pytest.raises(InputError, match="not a finite number"):
        parse_decimal(text)


@pytest.mark.parametrize(
    "text",
    [
        "1e999999999",
        "1e-999999999",
        "1e" + "9" * 5_000,
        f"1e{MAX_EXPONENT + 1}",
        f"1e-{MAX_EXPONENT + 1}",
        "1" * (MAX_DIGITS + 1),
        "0." + "1" * MAX_DIGITS,
        "1" * 10_000_000,
        "1*2^999999999",
        "1*2^-999999999",
        f"1*2^{MAX_BINARY_EXPONENT + 1}",
        f"1*2^-{MAX_BINARY_EXPONENT + 1}",
        "1/1e999999999",
        "9" * 5_000 + "*2^1",
    ],
    ids=lambda text: text[:12],
)
def test_numbers_that_would_eat_the_machine_are_refused_at_once(text):
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        parse_rational(text)
    assert time.process_time() - start < 1
    assert len(str(caught.value)) < 200  # the message does not repeat megabytes


@pytest.mark.parametrize(
    "text", ["1e" + "0" * 5_000 + "1", "1e-" + "0" * 4_400], ids=["5000 zeros", "4400 zeros and nothing else"]
)
def test_an_exponent_of_thousands_of_zeros_is_refused_or_read(text):
    """Either is right; what is not is an error from inside Python's own conversion of integers."""
    with suppress(InputError):
        assert parse_rational(text) in (10, 1)


def test_the_limits_themselves_are_read():
    assert parse_rational(f"1e{MAX_EXPONENT}") == 10**MAX_EXPONENT
    assert parse_rational(f"1e-{MAX_EXPONENT}") == Fraction(1, 10**MAX_EXPONENT)
    assert parse_rational("1" * MAX_DIGITS) == (10**MAX_DIGITS - 1) // 9
    assert parse_rational("1e0000005") == 10**5


@pytest.mark.parametrize("exponent", [MAX_BINARY_EXPONENT, -MAX_BINARY_EXPONENT], ids=["largest", "smallest"])
def test_the_limits_of_binary_exponents_are_read(exponent):
    """The sign is not a digit: the smallest exponent that is promised must be read, like the largest."""
    assert parse_rational(f"1*2^{exponent}") == Fraction(2) ** exponent


@given(value=decimals(digits=9, whole=9))
def test_decimals_read_back(value):
    assert parse_rational(str(Decimal(value.numerator) / Decimal(value.denominator))) == value
    mantissa, exponent = parse_decimal(f"{value.numerator}e-3")
    assert mantissa * Fraction(10) ** exponent == Fraction(value.numerator, 1000)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float_is_a_decimal_and_the_float_its_binary_value(value):
    assert parse_rational(repr(value)) == Fraction(Decimal(repr(value)))
    assert as_fraction(value) == Fraction(value)
    assert as_fraction(np.float64(value)) == Fraction(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("36/255", Fraction(36, 255)),
        (7, 7),
        (Fraction(1, 3), Fraction(1, 3)),
        (np.int8(-128), -128),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.int64(-(2**63)), -(2**63)),
        (np.float16(0.1), Fraction(float(np.float16(0.1)))),
        (np.float32(0.1), Fraction(float(np.float32(0.1)))),
        (0.1, Fraction(3602879701896397, 36028797018963968)),
        (-0.0, 0),
        (np.longdouble(1) + np.finfo(np.longdouble).eps, 1 + Fraction(*np.finfo(np.longdouble).eps.as_integer_ratio())),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_exact_rationals_of_python_and_numpy_numbers(value, expected):
    found = as_fraction(value)
    assert type(found) is Fraction
    assert type(found.numerator) is int
    assert found == expected


@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        math.nan,
        math.inf,
        -math.inf,
        np.float32("nan"),
        np.longdouble("inf"),
        None,
        1j,
        b"1",
        Decimal("0.1"),
        [1],
        np.array([1.0]),
    ],
    ids=repr,
)
def test_what_is_no_real_number_is_refused(value):
    with pytest.raises(InputError):
        as_fraction(value)


# -- directed rounding -----------------------------------------------------------------------------------------------


@given(x=fractions(), bits=st.integers(1, 130))
@example(x=Fraction(-(2**20) + 1), bits=5)  # rounds away from zero to a power of two
@example(x=Fraction(2**20 - 1), bits=5)
@example(x=Fraction(1, 3), bits=1)
def test_rounding_gives_the_nearest_dyadic_on_its_side(x, bits):
    up, down = round_up(x, bits), round_down(x, bits)
    said = explain("rounded", x=x, bits=bits, up=up, down=down)
    assert down <= x <= up, said
    assert is_dyadic(up, bits), said
    assert is_dyadic(down, bits), said
    if up > 0:
        assert below_dyadic(up, bits) < x, said  # no such dyadic is nearer
    if down < 0:
        assert -below_dyadic(-down, bits) > x, said
    assert round_down(-x, bits) == -up


@given(x=fractions(), y=fractions(), bits=st.integers(1, 130))
def test_rounding_is_monotone(x, y, bits):
    x, y = sorted([x, y])
    close = x + abs(x) / 2**bits
    for larger in (y, close):
        assert round_up(x, bits) <= round_up(larger, bits), explain("round_up", x=x, y=larger, bits=bits)
        assert round_down(x, bits) <= round_down(larger, bits), explain("round_down", x=x, y=larger, bits=bits)


@given(x=positive())
@example(x=Fraction(5e-324))
@example(x=Fraction(5e-324) / 2)
@example(x=Fraction(2.2250738585072014e-308))
@example(x=Fraction(10) ** 400)
@example(x=Fraction(1.7976931348623157e308))
@example(x=Fraction(2**1024))
@example(x=Fraction(1))
@example(x=1 + Fraction(1, 2**53))
@example(x=1 + Fraction(1, 2**54))
def test_float_below_is_strict_and_no_float_lies_between(x):
    found = float_below(x)
    assert type(found) is float
    assert math.isfinite(found)
    assert 0 <= found < x
    above = math.nextafter(found, math.inf)
    assert above == math.inf or above >= x, explain("a float lies between", x=x, found=found)


@given(x=fractions())
@example(x=Fraction(2) ** 1024)
@example(x=-(Fraction(10) ** 400))
@example(x=Fraction(1, 3 * 2**1074))
@example(x=Fraction(-1, 10**400))
@example(x=1 + Fraction(1, 2**54))
@example(x=1 - Fraction(1, 2**55))
def test_floats_on_both_sides_are_the_nearest_ones(x):
    low, high = float_enclosure(x, x)
    assert low <= x <= high, explain("not around", x=x, low=low, high=high)
    assert low == high or high == math.nextafter(low, math.inf), explain(
        "a float lies between", x=x, low=low, high=high
    )


@pytest.mark.parametrize("x", [Fraction(0), Fraction(-1)])
def test_no_float_above_zero_is_below_zero(x):
    assert float_below(x) == 0.0


@given(x=non_negative(), digits=st.integers(1, 40))
@example(x=Fraction(999999), digits=3)  # carries into another digit
@example(x=Fraction(10) ** 400, digits=17)
@example(x=Fraction(99999, 10**10), digits=4)
def test_decimals_for_people_err_on_the_side_of_their_name(x, digits):
    upper, lower = decimal_upper(x, digits), decimal_lower(x, digits)
    said = explain("decimals", x=x, digits=digits, upper=upper, lower=lower)
    assert parse_rational(lower) <= x <= parse_rational(upper), said
    assert (parse_rational(upper) - parse_rational(lower)) * 10 ** (digits - 1) <= x, said  # at most one unit apart
    for text in (upper, lower):
        significant = text.partition("e")[0].replace(".", "").strip("0")
        assert len(significant) <= digits, said


def test_decimals_for_people_look_like_it():
    assert decimal_upper(Fraction(0)) == decimal_lower(Fraction(0)) == "0"
    assert decimal_upper(Fraction(1, 3), 3) == "0.334"
    assert decimal_lower(Fraction(2, 3), 3) == "0.666"
    assert decimal_upper(Fraction(100)) == "100"
    assert decimal_upper(Fraction(5, 2)) == "2.5"
    assert decimal_upper(Fraction(1, 10**9), 3) == "1e-9"
    for write in (decimal_upper, decimal_lower):
        with pytest.raises(ValueError, match="not negative"):
            write(Fraction(-1))


@given(x=fractions())
def test_exact_text_reads_back(x):
    assert parse_rational(format_exact(x)) == x


def test_exact_text_tells_dyadics_from_other_rationals():
    assert format_exact(Fraction(-12)) == "-3*2^2"
    assert format_exact(Fraction(5, 8)) == "5*2^-3"
    assert format_exact(Fraction(0)) == "0*2^0"
    assert format_exact(Fraction(-1, 3)) == "-1/3"


@given(x=fractions())
def test_the_shortest_text_is_exact_unless_it_is_marked(x):
    text = shortest_exact(x)
    if not text.startswith("≈"):
        assert parse_rational(text) == x


def test_the_shortest_text_is_short():
    assert shortest_exact(Fraction(3, 10)) == "0.3"
    assert shortest_exact(Fraction(-1, 8)) == "-0.125"
    assert shortest_exact(Fraction(-12)) == "-12"
    assert shortest_exact(Fraction(36, 255)) == "12/85"
    assert shortest_exact(Fraction(1, 100)) == "0.01"
    assert shortest_exact(Fraction(0)) == "0"
    assert shortest_exact(-(Fraction(10) ** 4000)) == "≈-1e+4000"


# -- exact matrices --------------------------------------------------------------------------------------------------


def entries(matrix):
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def check_exact(array):
    matrix = RationalMatrix.from_floats(array)
    assert matrix.shape == array.shape
    assert all(type(n) is int for n in matrix.numerators.ravel().tolist())
    assert matrix.denominator >= 1
    assert not matrix.numerators.flags.writeable
    assert entries(matrix) == [[Fraction(x) for x in row] for row in array.tolist()]


FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, -0.5, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 2.0**53]),
)


@given(values=st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=4))
@example(values=[(5e-324, 1.7976931348623157e308)])
@example(values=[(0.0, -0.0)])
@example(values=[(2.0**60, 2.0**1000)])  # all exponents positive: the denominator is 1
@example(values=[(0.0, 3e-320)])
def test_floats_of_all_scales_are_taken_exactly(values):
    check_exact(np.array(values))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_all_widths_of_floats_are_taken_exactly(dtype):
    info = np.finfo(dtype)
    values = [
        [info.max, info.min, info.tiny],
        [info.smallest_subnormal, -info.smallest_subnormal, info.eps],
        [0.1, 0, 3],
    ]
    check_exact(np.array(values, dtype=dtype))


def test_every_float16_is_taken_exactly():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    check_exact(finite.reshape(-1, 16)[:, :])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integers_are_taken_exactly(dtype):
    info = np.iinfo(dtype)
    check_exact(np.array([[info.min, info.max], [0, 1]], dtype=dtype))


def test_arrays_in_any_memory_order_are_taken_exactly():
    array = np.arange(12.0).reshape(3, 4) / 7
    for view in (array.T, array[::-1, ::2], np.asfortranarray(array), array.astype(">f8")):
        check_exact(view)


@given(rows=st.lists(st.lists(decimals(), min_size=3, max_size=3), min_size=1, max_size=3))
def test_decimals_and_fractions_give_the_same_matrix(rows):
    decimal = RationalMatrix.from_decimals([[(int(x * 10**5), -5) for x in row] for row in rows])
    assert entries(decimal) == rows
    assert decimal == RationalMatrix.from_fractions(rows)


def test_decimals_of_unequal_exponents():
    matrix = RationalMatrix.from_decimals([[(3, 2), (5, -3)], [(0, 7), (-1, 0)]])
    assert entries(matrix) == [[300, Fraction(5, 1000)], [0, -1]]
    vector = RationalVector.from_decimals([(3, 2), (5, -3)])
    assert [Fraction(n, vector.denominator) for n in vector.numerators] == [300, Fraction(5, 1000)]
    assert len(vector) == 2


@given(values=st.lists(fractions(), min_size=1, max_size=5))
def test_vectors_of_fractions_are_exact(values):
    vector = RationalVector.from_fractions(values)
    assert [Fraction(n, vector.denominator) for n in vector.numerators] == values


def test_equality_is_of_values_not_of_scaling():
    half = RationalMatrix.from_integers([[1, 2]], 2)
    assert half == RationalMatrix.from_integers([[2, 4]], 4)
    assert half != RationalMatrix.from_integers([[1, 2]], 3)
    assert half != RationalMatrix.from_integers([[1], [2]], 2)
    assert half != RationalMatrix.from_integers([[1, 2, 0]], 2)
    assert half != "a matrix"
    with pytest.raises(TypeError):
        hash(half)


def test_views_of_a_matrix():
    matrix = RationalMatrix.from_integers([[1, 2, 3], [4, 5, 6]], 7)
    assert entries(matrix.transposed()) == [list(column) for column in zip(*entries(matrix), strict=True)]
    with pytest.raises(ValueError, match="read-only"):
        matrix.numerators[0, 0] = 9


@pytest.mark.parametrize("part", [slice(0, 2), slice(1, 3), slice(2, None), slice(None), slice(None, None, -2)])
def test_some_rows_of_a_matrix(part):
    """Of integers and of floats, which stay floats: nobody makes Python's integers of them."""
    rows = [[Fraction(k, 7), Fraction(-k), Fraction(k * k, 3)] for k in range(3)]
    found = RationalMatrix.from_fractions(rows).rows(part)
    assert entries(found) == rows[part]
    assert found.shape == (len(rows[part]), 3)
    assert not found.numerators.flags.writeable
    array = np.array([[0.1, -5e-324], [1e300, 0.0], [3.0, 2.0**-60]])
    for exponent in (0, -3000):
        matrix = RationalMatrix.from_floats(array, exponent)
        for _ in range(2):  # and once more when the integers are known
            floats = matrix.rows(part)
            assert floats._integers is None
            assert entries(floats) == [
                [Fraction(x) * Fraction(2) ** exponent for x in row] for row in array[part].tolist()
            ]
            assert floats == RationalMatrix(matrix.numerators, matrix.denominator).rows(part)
            floats = matrix.rows(part)
            near = floats.near_floats()
            assert floats._integers is None
            assert near.values.shape == array[part].shape


@pytest.mark.parametrize("part", [slice(0, 0), slice(2, 5), slice(1, 0)])
def test_a_matrix_without_rows_is_none(part):
    for matrix in (RationalMatrix.from_integers([[1], [2]]), RationalMatrix.from_floats(np.ones((2, 1)))):
        with pytest.raises(ValueError, match="no rows"):
            matrix.rows(part)


@pytest.mark.parametrize("scale", [-2000, -1080, 0, 1020, 5000])
@pytest.mark.parametrize("divisor", [1, 3, 10**20])
def test_near_floats_are_the_nearest_on_a_scale_of_ones(scale, divisor):
    factor = Fraction(2) ** scale / divisor
    matrix = RationalMatrix.from_fractions([[3 * factor, -4 * factor], [0 * factor, factor]])
    near = matrix.near_floats()
    assert 2.0**-64 <= np.abs(near.values).max() <= 2.0**64
    for row, exact in zip(near.values.tolist(), entries(matrix), strict=True):
        for found, x in zip(row, exact, strict=True):
            wanted = x / Fraction(2) ** near.exponent
            assert abs(Fraction(found) - wanted) <= abs(Fraction(found)) / 2**53
            assert not near.exact or Fraction(found) == wanted
    assert near.exact == (divisor == 1)
    assert matrix.near_floats() is near, "it is computed once"


def test_near_floats_of_zero_and_of_floats():
    assert RationalMatrix.from_integers([[0]]).near_floats().values.tolist() == [[0.0]]
    array = np.array([[0.1, -5e-324], [1e300, 0.0]])
    matrix = RationalMatrix.from_floats(array)
    near = matrix.near_floats()
    assert not near.exact, "5e-324 vanishes on the scale of 1e300, and this is said"
    assert near.values[0, 1] == 0
    assert entries(matrix) == [[Fraction(0.1), Fraction(-5e-324)], [Fraction(1e300), 0]]
    same = RationalMatrix.from_floats(array[:, :1], -3)
    assert entries(same) == [[Fraction(0.1) / 8], [Fraction(1e300) / 8]]
    assert same.near_floats().exact
    array[0, 0] = 7.0
    assert matrix[0, 0] == Fraction(0.1), "the caller's array is its own"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5), st.integers(-2000, 2000))
def test_matrices_of_floats_and_of_their_integers_are_the_same(values, exponent):
    matrix = RationalMatrix.from_floats(np.array([values]), exponent)
    again = RationalMatrix(matrix.numerators, matrix.denominator)
    assert entries(matrix) == [[Fraction(x) * Fraction(2) ** exponent for x in values]]
    for made in (matrix, again):
        near = made.near_floats()
        for found, x in zip(near.values[0].tolist(), entries(matrix)[0], strict=True):
            off = abs(Fraction(found) - x / Fraction(2) ** near.exponent)
            assert off <= max(abs(Fraction(found)) / 2**53, Fraction(1, 2**1075))
            assert not near.exact or off == 0
