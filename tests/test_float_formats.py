"""Rounding to the formats of deployed networks, against what numpy and ml_dtypes do, and against lists of all numbers.

float16 and bfloat16 have so few numbers that all of them, and all ties between them, are tried.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache
from random import Random

import ml_dtypes
import numpy as np
import pytest

from intervalcert import InputError, Network, UsageError
from intervalcert.numbers.float_formats import FORMATS, get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.verify.deployed import as_deployed

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}
SMALL = ("float16", "bfloat16")
NARROW = ("float32", "float16", "bfloat16")


def rounded(name: str, values: list[Fraction] | np.ndarray) -> list[float]:
    """Many numbers through one call: a row of them."""
    if isinstance(values, np.ndarray):
        data = RationalMatrix.from_floats(values[None].astype(np.float64))
    else:
        data = RationalMatrix.from_fractions([values])
    found = get_format(name).rounded(data, "the numbers")
    return [float(found[0, k]) for k in range(found.shape[1])]


def one(name: str, value: Fraction) -> float:
    return rounded(name, [value])[0]


@cache
def all_numbers(name: str) -> list[Fraction]:
    """Every finite number that is not negative, in order: bit pattern k is number k."""
    with np.errstate(invalid="ignore"):  # signalling NaNs are among the patterns
        patterns = np.arange(2**15, dtype=np.uint16).view(TYPES[name]).astype(np.float64)
    found = [Fraction(x) for x in patterns[np.isfinite(patterns)].tolist()]
    assert found == sorted(set(found))
    return found


def by_list(name: str, x: Fraction) -> Fraction | None:
    """The nearest number of the list, ties to the even pattern; None if it is beyond: an independent reference."""
    numbers = all_numbers(name)
    beyond = 2 * numbers[-1] - numbers[-2]  # what would come next
    above = bisect_left([*numbers, beyond], abs(x))
    if above > len(numbers):
        return None
    candidates = [k for k in (above - 1, above) if k >= 0]
    best = min(candidates, key=lambda k: (abs([*numbers, beyond][k] - abs(x)), k % 2))
    if best == len(numbers):
        return None
    return numbers[best] if x >= 0 else -numbers[best]


# -- the constants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_the_constants_are_those_of_the_types(name: str) -> None:
    form, info = FORMATS[name], ml_dtypes.finfo(TYPES[name])
    assert form.name == name
    assert form.largest == Fraction(float(info.max))
    assert form.tiny == Fraction(float(info.smallest_subnormal))
    assert 2 * form.unit == Fraction(float(info.eps))
    assert Fraction(2) ** form.emin == Fraction(float(info.tiny))


def test_an_unknown_format_is_refused() -> None:
    for name in ("float8", "", "Float32", "real", "double"):
        with pytest.raises(UsageError, match="there is no format"):
            get_format(name)


# -- all numbers and all ties ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_every_number_of_a_small_format_is_itself(name: str) -> None:
    numbers = np.array([float(x) for x in all_numbers(name)])
    for sign in (1, -1):
        assert rounded(name, sign * numbers) == (sign * numbers).tolist()


@pytest.mark.parametrize("name", SMALL)
def test_every_tie_of_a_small_format_goes_to_the_even_neighbour(name: str) -> None:
    """The middles between all neighbours are float64 numbers; a hair to either side they are no longer ties."""
    numbers = np.array([float(x) for x in all_numbers(name)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    even = np.where(np.arange(len(middles)) % 2 == 0, numbers[:-1], numbers[1:])
    for sign in (1, -1):
        assert rounded(name, sign * middles) == (sign * even).tolist()
    assert rounded(name, np.nextafter(middles, np.inf)) == numbers[1:].tolist()
    assert rounded(name, np.nextafter(middles, -np.inf)) == numbers[:-1].tolist()


@pytest.mark.parametrize("name", SMALL)
def test_ties_that_only_float64_sees(name: str) -> None:
    """A middle plus or minus far less than float64 resolves: rounding to 53 bits first would make it a tie."""
    numbers = all_numbers(name)
    chosen = [*range(40), *Random(0).sample(range(40, len(numbers) - 1), 400), len(numbers) - 2]
    hair = Fraction(1, 3 * 2**400)
    middles = [(numbers[k] + numbers[k + 1]) / 2 for k in chosen]
    below, above = [float(numbers[k]) for k in chosen], [float(numbers[k + 1]) for k in chosen]
    assert rounded(name, [x + hair for x in middles]) == above
    assert rounded(name, [x - hair for x in middles]) == below
    assert rounded(name, [-x - hair for x in middles]) == [-x for x in above]
    assert rounded(name, [-x + hair for x in middles]) == [-x for x in below]


@pytest.mark.parametrize("name", SMALL)
def test_random_rationals_against_the_list(name: str) -> None:
    random = Random(1)
    values = []
    for _ in range(600):
        size = Fraction(2) ** random.randint(-30, 15) if name == "float16" else Fraction(2) ** random.randint(-140, 120)
        values.append(random.choice([-1, 1]) * size * Fraction(random.randint(0, 10**9), random.randint(1, 10**9)))
    kept = [(x, by_list(name, x)) for x in values]
    inside = [(x, y) for x, y in kept if y is not None]
    assert len(inside) > 400
    for x, y in inside:
        assert Fraction(one(name, x)) == y, x
    assert [Fraction(z) for z in rounded(name, [x for x, _ in inside])] == [y for _, y in inside]
    for x, y in kept:
        if y is None:
            with pytest.raises(InputError, match="beyond"):
                one(name, x)


# -- against the conversions of numpy --------------------------------------------------------------------------------


def float64_samples(seed: int) -> np.ndarray:
    """Patterns of all kinds: any bits, few bits, near powers of two, subnormal numbers of float64."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    scaled = np.ldexp(rng.standard_normal(20_000), rng.integers(-160, 130, 20_000))
    few = np.ldexp(rng.integers(-(2**26), 2**26, 20_000).astype(float), rng.integers(-180, 100, 20_000))
    tiny = rng.integers(0, 2**20, 100, dtype=np.uint64).view(np.float64)
    powers = np.ldexp(1.0, np.arange(-170, 128))
    near = np.concatenate([np.nextafter(powers, 0), powers, np.nextafter(powers, np.inf)])
    found = np.concatenate([anything, scaled, few, tiny, near, -near, [0.0]])
    return found[np.isfinite(found)]


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_floats_are_converted_as_numpy_does_it(name: str) -> None:
    samples = float64_samples(2)
    with np.errstate(over="ignore"):
        expected = samples.astype(TYPES[name]).astype(np.float64)
    inside = np.isfinite(expected)
    assert inside.sum() > 20_000
    assert rounded(name, samples[inside]) == expected[inside].tolist()


def test_float32_is_converted_to_bfloat16_as_ml_dtypes_does_it() -> None:
    samples = np.random.default_rng(3).integers(0, 2**32, 60_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    samples = samples[np.isfinite(samples)]
    expected = samples.astype(ml_dtypes.bfloat16).astype(np.float64)
    inside = np.isfinite(expected)
    assert rounded("bfloat16", samples[inside]) == expected[inside].tolist()


@pytest.mark.parametrize("name", NARROW)
def test_double_rounding_through_float64_or_float32_would_be_wrong(name: str) -> None:
    """1 + u + a hair: the nearest number is above, but rounding to an intermediate format first makes it a tie."""
    form = FORMATS[name]
    above = float(1 + 2 * form.unit)
    for bits in (25, 30, 52, 53, 54, 60, 100, 500):
        assert one(name, 1 + form.unit + Fraction(1, 2**bits)) == above, bits
        assert one(name, 1 + 3 * form.unit - Fraction(1, 2**bits)) == above, bits
    assert one(name, 1 + form.unit) == 1.0
    assert one(name, 1 + 3 * form.unit) == float(1 + 4 * form.unit)


@pytest.mark.parametrize("name", FORMATS)
def test_the_smallest_numbers(name: str) -> None:
    form = FORMATS[name]
    eta = form.tiny
    hair = eta / 2**60
    cases = {
        eta / 2: Fraction(0),
        eta / 2 + hair: eta,
        eta / 2 - hair: Fraction(0),
        eta: eta,
        3 * eta / 2: 2 * eta,
        3 * eta / 2 - hair: eta,
        5 * eta / 2: 2 * eta,
        5 * eta / 2 + hair: 3 * eta,
        eta / 3: Fraction(0),
        2 * eta / 3: eta,
        Fraction(1, 10**900): Fraction(0),
    }
    for x, y in cases.items():
        assert Fraction(one(name, x)) == y, x
        assert Fraction(one(name, -x)) == -y, x
    # In one matrix, too, beside numbers of another size.
    assert [Fraction(z) for z in rounded(name, [*cases, Fraction(1, 3)])[:-1]] == list(cases.values())


@pytest.mark.parametrize("name", FORMATS)
def test_the_largest_numbers(name: str) -> None:
    """Up to half a step beyond the largest number it is still the nearest; from there on there is none."""
    form = FORMATS[name]
    step = 2 * form.unit * Fraction(2) ** form.emax
    hair = step / 2**80
    for sign in (1, -1):
        for x in (form.largest, form.largest + step / 2 - hair, form.largest + step / 4, form.largest - step / 4):
            assert Fraction(one(name, sign * x)) == sign * form.largest
            assert Fraction(rounded(name, [Fraction(1, 3), sign * x])[1]) == sign * form.largest
        for x in (form.largest + step / 2, form.largest + step / 2 + hair, 2 * form.largest, Fraction(10) ** 400):
            with pytest.raises(InputError, match=rf"the numbers: the number in row 0, column 1 is beyond {name}"):
                rounded(name, [Fraction(1, 3), sign * x])


@pytest.mark.parametrize("name", NARROW)
def test_the_largest_float64_is_refused_without_a_warning(name: str) -> None:
    """(Warnings are errors in these tests.)"""
    with pytest.raises(InputError, match="beyond"):
        rounded(name, np.array([1.0, np.finfo(np.float64).max]))


def test_decimals_are_rounded_once() -> None:
    """As they are written, not by way of their float64."""
    decimals = [Fraction(k, 10**5) for k in range(-3000, 3000, 7)] + [Fraction(k, 10**9) for k in range(1, 10**6, 999)]
    for name in ("float32", "float16", "float64"):
        expected = [float(TYPES[name](str(float(x)))) if name == "float64" else None for x in decimals]
        found = rounded(name, decimals)
        for x, y, direct in zip(decimals, found, expected, strict=True):
            assert direct is None or direct == y
            here = TYPES[name](y)
            low, high = (Fraction(float(np.nextafter(here, TYPES[name](end)))) for end in (-np.inf, np.inf))
            assert abs(x - Fraction(y)) <= min(abs(x - low), abs(x - high)), (name, x)


def test_float64_leaves_floats_as_they_are() -> None:
    samples = float64_samples(4)[:5000]
    for part in (samples, samples[np.abs(samples) < 1e-300], np.array([5e-324, 1.7e308]), np.array([5e-324])):
        assert rounded("float64", part) == part.tolist()
    assert one("float64", Fraction(1, 10)) == 0.1
    assert one("float64", Fraction(1, 10**310)) == 1e-310


# -- networks --------------------------------------------------------------------------------------------------------


def test_weights_biases_and_slopes_are_rounded() -> None:
    network = Network.from_arrays(
        [[["0.1", "1/3"]], [["0.7"], ["-0.2"]]], [["1e-8"], ["16777217", 0]], between="leaky_relu:0.01"
    )
    for name in NARROW[:1]:
        made, kind = as_deployed(network, get_format(name)), TYPES[name]
        first, last = made.layers
        assert [first.weights[0, k] for k in range(2)] == [Fraction(float(kind(0.1))), Fraction(float(kind(1 / 3)))]
        assert first.bias is not None
        assert first.bias[0, 0] == Fraction(float(kind(1e-8)))
        assert last.bias is not None
        assert last.bias[0, 0] == 16777216
        assert first.activation is not None
        assert first.activation.piecewise_linear is not None
        assert first.activation.piecewise_linear.slope == Fraction(float(kind(0.01)))
        assert last.activation is None


def test_what_is_representable_is_left_alone() -> None:
    network = Network.from_arrays([np.ones((2, 3)), np.eye(2)], between="leaky_relu:0.25")
    for form in FORMATS.values():
        made = as_deployed(network, form)
        assert [layer.weights for layer in made.layers] == [layer.weights for layer in network.layers]
        assert made.layers[0].activation is not None
        assert made.layers[0].activation.piecewise_linear == network.layers[0].activation.piecewise_linear  # type: ignore[union-attr]
        assert made.sources == network.sources


@pytest.mark.parametrize("between", ["tanh", "sigmoid", "elu:1", "group_sort", "min_max"])
def test_activations_of_unknown_rounding_are_refused(between: str) -> None:
    network = Network.from_arrays([np.eye(2), np.eye(2)], between=between)
    with pytest.raises(InputError, match="layer 0"):
        as_deployed(network, get_format("float32"))


def test_numbers_beyond_the_format_name_their_place() -> None:
    form = get_format("float16")
    with pytest.raises(InputError, match="the weights of layer 1: the number in row 1, column 0 is beyond float16"):
        as_deployed(Network.from_arrays([np.eye(1), np.array([[1.0], [65520.0]])]), form)
    with pytest.raises(InputError, match="the bias of layer 0: the number in row 1, column 0 is beyond float16"):
        as_deployed(Network.from_arrays([np.eye(2)], [[0, -1e5]]), form)
    with pytest.raises(InputError, match="the slope of layer 0"):
        as_deployed(Network.from_arrays([np.eye(2), np.eye(2)], between="leaky_relu:1e6"), form)


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_of_many_digits(name: str) -> None:
    """A numerator beyond the floats does not make a number large."""
    form = FORMATS[name]
    hair = Fraction(1, 3 * 2**2000)
    assert one(name, 1 + form.unit + hair) == float(1 + 2 * form.unit)
    assert one(name, 1 + form.unit - hair) == 1.0
    assert one(name, -1 - form.unit - hair) == -float(1 + 2 * form.unit)
    assert Fraction(one(name, form.tiny / 2 + hair)) == (form.tiny if hair < form.tiny else 0)
