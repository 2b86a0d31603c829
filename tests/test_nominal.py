"""Uncertain factors taken to be one: how far that may be from the truth, and what is decided with it."""

from fractions import Fraction
from random import Random

import pytest
from test_uncertain_scale import factors, inner_values, point, random_network

from intervalcert import certify_inputs, compute_bounds
from intervalcert.backends.registry import get_backend
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import nominal as module
from intervalcert.proof.nominal import NominalDistance, nominal_network

NAMES = ("relu", "identity", "leaky_relu:1/2", "leaky_relu:-1/2", "hard_tanh", "clip:1/4:2")


def ones(network):
    rows = [layer.weights.shape[0] for layer in network.layers]
    return [[Fraction(1)] * network.inputs, *([[Fraction(1)] * n, [Fraction(1)] * n] for n in rows)]


def within(random, count, eps):
    """A step of at most that length."""
    step = [Fraction(random.randint(-8, 8), 8) for _ in range(count)]
    length = sum(s * s for s in step)
    return step if length <= eps**2 else [s * eps / (1 + length) for s in step]


def entered(network, x):
    """The column that the first layer takes, before any uncertain factor."""
    return network.entered(RationalMatrix.from_fractions([[a] for a in x]))


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_of_factors_is_further_off(seed):
    random = Random(seed)
    network = random_network(random, NAMES)
    if network.is_exact:
        return
    nominal = nominal_network(network)
    assert nominal.is_exact
    norms = [layer.upper for layer in compute_bounds(network, "float64", margins="product").layers]
    distance = NominalDistance(network, norms, get_backend("exact"))
    for _ in range(6):
        x, eps = point(random, network.inputs), Fraction(random.randint(1, 8), 8)
        deduction = distance.deduction(entered(network, x), eps)
        for _ in range(6):
            step = within(random, network.inputs, eps)
            one = inner_values(network, ones(network), x, step)[-1]
            other = inner_values(network, factors(random, network), x, step)[-1]
            for j in range(len(one)):
                for i in range(j):
                    assert abs((one[j] - one[i]) - (other[j] - other[i])) <= deduction


def test_the_nominal_network_is_the_one_with_all_factors_one():
    met = 0
    for seed in range(40):
        random = Random(seed)
        network = random_network(random, NAMES)
        nominal, x = nominal_network(network), point(random, network.inputs)
        met += not network.is_exact
        column = entered(network, x)
        values = [column[k, 0] for k in range(network.inputs)]
        found = inner_values(nominal, ones(nominal), values)[-1]
        assert found == inner_values(network, ones(network), x)[-1]
    assert met > 20


def test_without_a_part_of_it_some_network_is_further_off(monkeypatch):
    """A control: the factors of one kind forgotten."""
    monkeypatch.setattr(module, "_scaled", lambda value, by, size: value)

    def is_noticed(seed):
        try:
            test_no_choice_of_factors_is_further_off(seed)
        except AssertionError:
            return True
        return False

    assert any(map(is_noticed, range(60)))


def test_points_of_such_networks_are_decided_for_all_factors():
    statuses = {"certified": 0, "falsified": 0, "unknown": 0}
    methods = set()
    for seed in range(30):
        random = Random(seed)
        network = random_network(random, ("relu", "leaky_relu:1/2"))
        if network.is_exact:
            continue
        x = [point(random, network.inputs) for _ in range(3)]
        for eps in (Fraction(1, 64), Fraction(1, 4)):
            found = certify_inputs(network, [list(map(str, row)) for row in x], eps, complete=True, scale=1)
            for row, verdict in zip(x, found, strict=True):
                statuses[verdict.status] += 1
                methods.add(verdict.method)
                if verdict.status == "falsified":
                    continue  # by enclosures for all factors: tests of counterexamples
                for _ in range(20 if verdict.status == "certified" else 0):
                    chosen, step = factors(random, network), within(random, network.inputs, eps)
                    logits = inner_values(network, chosen, row, step)[-1]
                    assert all(logits[verdict.argmax] > y for k, y in enumerate(logits) if k != verdict.argmax)
    assert min(statuses["certified"], statuses["falsified"]) > 3
