"""Linear leads in halfspaces: the best multipliers reach the least lead, which is found otherwise here."""

import numpy as np
import pytest
from scipy.optimize import minimize

from intervalcert.proof.hinges import Goal
from intervalcert.search.dual import ChainForm
from intervalcert.search.halfspaces import best_multipliers, nothing_there
from intervalcert.search.hinges import Bends


def linear(seed, count, inputs=3):
    """(form, weights of the only hidden layer, signs, arguments at the input): all neurons are lines, and cut."""
    rng = np.random.default_rng(seed)
    weights, at = rng.normal(size=(count, inputs)), rng.normal(size=count) / 2
    signs, none = rng.choice([1.0, -1.0], count), np.zeros(0)
    site = Bends(np.ones(count), none.astype(np.intp), none, none, none, none, np.arange(count), signs, at)
    last = rng.normal(size=(1, count))
    return ChainForm([weights, last], [site], weights @ weights.T, 0.7), weights, last[0], signs, at


@pytest.mark.parametrize("seed", range(20))
def test_the_least_lead_is_reached(seed):
    """Where some point is in all halfspaces and the ball: strong duality. Where none is: more than is asked."""
    form, weights, last, signs, at = linear(seed, 4)
    value, eps = 0.3, 0.7
    found = best_multipliers(form, form.direction(Goal(1, 0)), value, eps)
    assert (found >= 0).all()
    dual = form.solved(found, form.direction(Goal(1, 0)), value, 0.0).value
    inside = [
        {"type": "ineq", "fun": lambda d: -signs * (at + weights @ d), "jac": lambda d: -signs[:, None] * weights},
        {"type": "ineq", "fun": lambda d: eps**2 - d @ d, "jac": lambda d: -2 * d},
    ]
    slope = last @ weights
    tries = [
        minimize(lambda d: value + slope @ d, start, jac=lambda _: slope, constraints=inside, method="SLSQP")
        for start in np.random.default_rng(1).normal(size=(8, 3)) / 3
    ]
    points = [t.x for t in tries if all((c["fun"](t.x) >= -1e-9).all() for c in inside)]
    if points:
        least = min(value + slope @ d for d in points)
        assert dual == pytest.approx(least, abs=1e-6)
    else:
        assert dual > 0


def test_both_kinds_are_among_them():
    """Some have points in all halfspaces, some have none, or the test above says less than it seems to."""
    kinds = set()
    for seed in range(20):
        form, weights, last, _, _ = linear(seed, 4)
        value = form.solved(
            best_multipliers(form, form.direction(Goal(1, 0)), 0.3, 0.7), form.direction(Goal(1, 0)), 0.3, 0.0
        ).value
        kinds.add(value > 0.3 + 0.7 * float(np.linalg.norm(last @ weights)))  # no lead is as large as that
    assert kinds == {False, True}


def test_without_halfspaces_it_is_the_length_of_the_gradient():
    form, weights, last, *_ = linear(1, 4)
    site = form.sites[0]
    free = Bends(site.base, site.neuron, *[site.weight] * 4, site.neuron, site.weight, site.weight)
    form = ChainForm([weights, last[None]], [free], weights @ weights.T, 0.7)
    found = best_multipliers(form, form.direction(Goal(1, 0)), 0.3, 0.7)
    value = form.solved(found, form.direction(Goal(1, 0)), 0.3, 0.0).value
    assert value == pytest.approx(0.3 - 0.7 * float(np.linalg.norm(last @ weights)))


def test_a_halfspace_that_everything_is_in_changes_nothing():
    """A neuron without weights, say: it has no direction."""
    form, weights, last, signs, at = linear(3, 4)
    more, none = np.vstack([weights, np.zeros((1, 3))]), np.zeros(0)
    site = Bends(
        np.ones(5),
        none.astype(np.intp),
        none,
        none,
        none,
        none,
        np.arange(5),
        np.append(signs, 1.0),
        np.append(at, -2.0),
    )
    wider = ChainForm([more, np.append(last, 0.0)[None]], [site], more @ more.T, 0.7)
    goal = Goal(1, 0)
    values = [
        each.solved(best_multipliers(each, each.direction(goal), 0.3, 0.7), each.direction(goal), 0.3, 0.0).value
        for each in (form, wider)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_where_nothing_is_multipliers_show_it(seed):
    """And where something is, none do: a point in all halfspaces and the ball is looked for otherwise."""
    form, weights, _, signs, at = linear(seed, 5, 2)
    form.direction(Goal(1, 0))
    shown = nothing_there(form, 0.7, 1.0)
    angles, lengths = np.meshgrid(np.linspace(0, 2 * np.pi, 721), np.linspace(0, 0.7, 141))
    some = np.stack([lengths * np.cos(angles), lengths * np.sin(angles)]).reshape(2, -1)
    outside = (signs[:, None] * (at[:, None] + weights @ some)).max(axis=0)
    if shown is None:
        assert outside.min() <= 0.02  # a point that is inside, or nearly
        return
    gamma, beta = shown[0], shown[1:]
    assert gamma >= 0
    assert (beta >= 0).all()
    terms = gamma * (np.square(some).sum(axis=0) - 0.7**2) + (beta * signs) @ (at[:, None] + weights @ some)
    assert terms.min() >= 1 - 1e-9
    assert outside.min() > 0


def test_both_are_among_them():
    shown = [nothing_there(linear(seed, 5, 2)[0], 0.7, 1.0) is None for seed in range(40)]
    assert 5 < sum(shown) < 35
