"""The names, types and promises of `import intervalcert`."""

import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
from array import array
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest

import intervalcert
from intervalcert import (
    InputError,
    Network,
    UsageError,
    audit,
    certified_radius,
    certify,
    certify_deployed,
    certify_inputs,
    compute_bounds,
    evaluate,
    load_bounds,
    load_model,
    robust_radius,
    save_bounds,
    save_model,
)
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.pairs import PairMatrix

NAMES = [
    "AuditReport",
    "Bounds",
    "InputError",
    "InputWarning",
    "IntervalcertError",
    "Network",
    "Radii",
    "SoundnessError",
    "UsageError",
    "Verdict",
    "Verdicts",
    "__version__",
    "audit",
    "certified_radius",
    "certify",
    "certify_deployed",
    "certify_inputs",
    "compute_bounds",
    "evaluate",
    "from_torch",
    "load_bounds",
    "load_model",
    "robust_radius",
    "save_bounds",
    "save_model",
]


def type_name(given):
    return type(given).__name__


@pytest.fixture(scope="module")
def bounds():
    """The identity on two classes, one step: a single margin, near sqrt(2)."""
    return compute_bounds(Network.from_arrays([np.eye(2)]), "exact", 1)


# -- names -----------------------------------------------------------------------------------------------------------


def test_the_public_names_are_these():
    """A change here is a change for every user: make it on purpose."""
    assert intervalcert.__all__ == NAMES


def test_every_name_exists_and_star_gives_them_all():
    for name in NAMES:
        assert getattr(intervalcert, name) is not None
    space = {}
    exec("from intervalcert import *", space)
    assert set(NAMES) <= set(space)


def test_lazy_names_are_the_real_ones():
    assert intervalcert.certify is importlib.import_module("intervalcert.api").certify
    assert intervalcert.Bounds is importlib.import_module("intervalcert.bounds.results").Bounds
    assert issubclass(intervalcert.InputError, intervalcert.IntervalcertError)
    assert issubclass(intervalcert.UsageError, intervalcert.IntervalcertError)
    assert issubclass(intervalcert.SoundnessError, intervalcert.IntervalcertError)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="certfy"):
        _ = intervalcert.certfy
    assert not hasattr(intervalcert, "plots_of_nothing")


def test_submodules_do_not_shadow_the_functions():
    """Importing a package's module sets an attribute of the package: none may have the name of a function."""
    program = """
import importlib, pkgutil, intervalcert
for module in pkgutil.walk_packages(intervalcert.__path__, "intervalcert."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for name in ("certify", "audit", "certified_radius", "compute_bounds", "load_bounds", "load_model", "save_bounds"):
    assert type(getattr(intervalcert, name)).__name__ == "function", name
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_module_has_the_name_of_a_public_function():
    modules = {module.name for module in pkgutil.iter_modules(intervalcert.__path__)}
    assert modules & set(NAMES) == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "__version__"])
def test_everything_public_says_what_it_does(name):
    assert inspect.getdoc(getattr(intervalcert, name))


# -- frozen objects --------------------------------------------------------------------------------------------------


def test_results_are_frozen(bounds):
    network = Network.from_arrays([np.eye(2)])
    (verdict,) = certify(bounds, [3.0, 1.0], "0.5")
    report = audit(bounds, network)
    layer = bounds.layers[0]
    parts = [network, network.layers[0], network.sources[0], bounds, layer, bounds.margins, bounds.method]
    for thing in [*parts, verdict, report, report.claims[0]]:
        for field in dataclasses.fields(thing):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(thing, field.name, None)


def test_results_hold_nothing_that_can_be_changed(bounds):
    """Frozen to the bottom: tuples, strings, numbers, and arrays that refuse to be written to."""
    network = Network.from_arrays([np.eye(2), np.eye(2)], [[1.0, 2.0], None])
    pending = [network, bounds, *certify(bounds, [3.0, 1.0], 0), audit(compute_bounds(network, "exact", 1), network)]
    seen = set()
    while pending:
        thing = pending.pop()
        seen.add(type(thing).__name__)
        if dataclasses.is_dataclass(thing):
            pending += [getattr(thing, field.name) for field in dataclasses.fields(thing)]
        elif isinstance(thing, RationalMatrix):
            for name in ("numerators", "denominator", "shape"):
                pending.append(getattr(thing, name))
                with pytest.raises(AttributeError):
                    setattr(thing, name, pending[-1])
        elif isinstance(thing, PairMatrix):
            pending += [thing.entries.mantissas, thing.entries.exponents]
        elif isinstance(thing, tuple):
            pending += thing
        elif isinstance(thing, np.ndarray):
            assert not thing.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                thing[...] = 0
        else:
            assert isinstance(thing, str | int | float | Fraction | None), type(thing)
    assert {"Network", "Bounds", "PairMatrix", "Verdict", "AuditReport", "ndarray", "Fraction"} <= seen


def test_bounds_are_hashable_and_equal_by_value(bounds):
    again = compute_bounds(Network.from_arrays([np.eye(2)]), "exact", 1)
    assert again == bounds
    assert again is not bounds
    assert len({bounds, again}) == 1


def test_the_arguments_are_not_changed(bounds):
    weights, logits = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 1.0]])
    before = weights.copy(), logits.copy()
    compute_bounds(Network.from_arrays([weights]))
    certify(bounds, logits, 0.1)
    assert (weights == before[0]).all()
    assert (logits == before[1]).all()
    assert weights.flags.writeable


# -- certify ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["arb", "exact", "mpmath"])
def test_arrays_in_verdicts_out(backend):
    found = compute_bounds(Network.from_arrays([np.eye(2)]), backend, 4)
    verdicts = certify(found, np.array([[3.0, 1.0], [1.0, 1.5], [0.0, 0.0]]), "0.5")
    assert [(v.index, v.argmax, v.certified) for v in verdicts] == [(0, 0, True), (1, 1, False), (2, 0, False)]
    assert isinstance(verdicts, Sequence)
    for verdict in (*verdicts, verdicts[1], verdicts[-1]):
        assert {type(verdict.certified), type(verdict.exactly)} == {bool}
        assert {type(verdict.index), type(verdict.argmax)} == {int}
        assert type(verdict.radius) is float


@pytest.mark.parametrize(
    "one", [[3.0, 1.0], (3, 1), np.array([3.0, 1.0]), np.array([3, 1], "int8"), ["3", "1"], [Fraction(3), Fraction(1)]]
)
def test_a_single_output_may_be_a_vector(bounds, one):
    assert certify(bounds, one, 1) == certify(bounds, [[3.0, 1.0]], 1)
    assert certified_radius(bounds, one).tolist() == certified_radius(bounds, [[3.0, 1.0]]).tolist()
    assert len(certify(bounds, one, 1)) == 1


def test_one_radius_per_output(bounds):
    outputs = [[3.0, 1.0]] * 4
    verdicts = certify(bounds, outputs, ["0.5", 100, 0.25, Fraction(1, 3)])
    assert [v.certified for v in verdicts] == [True, False, True, True]
    assert [v.certified for v in certify(bounds, outputs, (1, 2, 1, 2))] == [True, False, True, False]


def test_radii_may_be_an_array(bounds):
    """Numpy users have arrays; each entry is its exact binary value."""
    verdicts = certify(bounds, [[3.0, 1.0]] * 2, np.array([1.0, 2.0]))
    assert [v.certified for v in verdicts] == [True, False]


def test_a_float_is_its_binary_value_and_text_is_what_it_says(bounds):
    """The float 0.3 is a little less than 3/10 (and 0.1 a little more than 1/10): a lead in between tells."""
    limit = bounds.margins.matrix[0][1]
    assert Fraction(0.3) < Fraction(3, 10)
    between = (Fraction(0.3) + Fraction(3, 10)) / 2 * limit
    logits = [[between, Fraction(0)]]
    assert certify(bounds, logits, 0.3)[0].certified
    assert certify(bounds, logits, np.float64(0.3))[0].certified
    assert not certify(bounds, logits, "0.3")[0].certified
    assert not certify(bounds, logits, Fraction(3, 10))[0].certified
    assert not certify(bounds, logits, "3/10")[0].certified
    assert Fraction(0.1) > Fraction(1, 10)
    between = (Fraction(0.1) + Fraction(1, 10)) / 2 * limit
    logits = [[between, Fraction(0)]]
    assert not certify(bounds, logits, 0.1)[0].certified
    assert certify(bounds, logits, "0.1")[0].certified
    assert certify(bounds, logits, "1e-1")[0].certified


def test_a_small_float_is_not_the_nearest_double(bounds):
    """float32(0.1) is larger than 0.1 by 1.5e-9."""
    logits = [[Fraction(np.float64(0.1)) * bounds.margins.matrix[0][1] + Fraction(1, 10**12), Fraction(0)]]
    assert certify(bounds, logits, np.float64(0.1))[0].certified
    assert not certify(bounds, logits, np.float32(0.1))[0].certified


def test_integers_beside_floats_are_not_rounded(bounds):
    """Numpy would make float64 of the whole list and round 2^53 + 3 up to 2^53 + 4: a lead of 1 would become 2."""
    large = 2**53
    eps = Fraction(105, 100)
    assert not certify(bounds, [Fraction(large + 3), Fraction(large + 2)], eps)[0].certified
    try:
        (verdict,) = certify(bounds, [large + 3, float(large + 2)], eps)
    except InputError:
        return  # to refuse is as good
    assert not verdict.certified


def test_floats_beside_text_keep_their_binary_value(bounds):
    """Numpy would print the float into text: 0.3 would become 3/10, which is more."""
    eps = Fraction(0.3) / bounds.margins.matrix[0][1]
    assert not certify(bounds, [Fraction(0.3), Fraction(0)], eps)[0].certified
    try:
        (verdict,) = certify(bounds, [0.3, "0"], eps)
    except InputError:
        return
    assert not verdict.certified


def test_masked_logits_are_not_used(bounds):
    """A masked entry is one that its owner declared not to be there."""
    with pytest.raises(InputError, match="mask"):
        certify(bounds, np.ma.masked_array([3.0, 1.0], mask=[True, False]), 0)


def test_certified_radius_is_the_radius_of_the_verdicts(bounds):
    rows = np.random.default_rng(0).normal(size=(20, 2))
    found = certified_radius(bounds, rows)
    assert found.tolist() == [v.radius for v in certify(bounds, rows, 7)]
    assert (found.dtype, found.shape) == (np.float64, (20,))
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_margins_are_floats_too_rounded_up():
    """Each is a bound: at least the exact one, and the next float below is not. inf is a bound of what is beyond."""
    margins = compute_bounds(Network.from_arrays([[[1, 2], [3, 5], ["1/3", 7]]]), "exact").margins
    found = margins.floats_upper
    assert (found.dtype, found.shape) == (np.float64, (3, 3))
    assert margins.floats_upper is found
    with pytest.raises(ValueError, match="read-only"):
        found[0, 1] = 1
    for i, j in np.ndindex(3, 3):
        assert Fraction(found[i, j]) >= margins.matrix[i][j] > Fraction(np.nextafter(found[i, j], -1))
    assert any(Fraction(x) != y for x, y in zip(found.ravel(), chain(*margins.matrix), strict=True))
    huge = compute_bounds(Network.from_arrays([[["1e400", 0], [0, "1e-400"]]]), "exact").margins
    assert huge.floats_upper.tolist() == [[0, np.inf], [np.inf, 0]]
    tiny = compute_bounds(Network.from_arrays([[["1e-400", 0], [0, 0]]]), "exact").margins
    assert tiny.floats_upper.tolist() == [[0, 5e-324], [5e-324, 0]]


# -- what may stand for a network ------------------------------------------------------------------------------------


def test_a_model_may_be_a_path(tmp_path):
    network = Network.from_arrays([np.eye(2), [[1, 2], [3, 4]]])
    save_model(network, tmp_path / "m.npz")
    bounds = compute_bounds(network, "float64")
    for path in (tmp_path / "m.npz", str(tmp_path / "m.npz")):
        found = compute_bounds(path, "float64")
        assert (found.margins, found.network) == (bounds.margins, network.content)
        assert audit(compute_bounds(path, "exact", 1), path).confirmed
        x = [[0.5, 0.25]]
        assert certify_inputs(path, x, "0.1") == certify_inputs(network, x, "0.1")
        assert (evaluate(path, x).lower[-1] == evaluate(network, x).lower[-1]).all()
        options = {"deployed": "float32", "input_norm": 1}
        assert certify_deployed(path, x, 0, **options) == certify_deployed(network, x, 0, **options)


def test_a_model_may_be_a_module():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    assert compute_bounds(model, "float64") == compute_bounds(intervalcert.from_torch(model), "float64")
    assert len(certify_inputs(model, torch.rand(5, 3, requires_grad=True), "0.1")) == 5
    with pytest.raises(InputError, match="Conv2d"):
        compute_bounds(torch.nn.Conv2d(1, 1, 1))


@pytest.mark.parametrize("model", [[np.eye(2)], np.eye(2), None, 3, b"m.npz", {"W0": np.eye(2)}], ids=type_name)
def test_what_is_no_model(bounds, model):
    for use in (compute_bounds, lambda x: audit(bounds, x), lambda x: evaluate(x, [1.0, 0.0])):
        with pytest.raises(UsageError, match=r"is no model: .*Network\.from_arrays.*path.*torch\.nn\.Module"):
            use(model)
    with pytest.raises(UsageError, match="Bounds is no model"):
        compute_bounds(bounds)


# -- what people see -------------------------------------------------------------------------------------------------


def test_dir_shows_the_public_names():
    assert dir(intervalcert) == sorted(NAMES)


def parts_of(thing):
    """All that a user finds in it."""
    yield thing
    inside = ()
    if dataclasses.is_dataclass(thing):
        inside = (getattr(thing, field.name) for field in dataclasses.fields(thing))
    elif isinstance(thing, tuple):
        inside = thing[:3]
    for part in inside:
        yield from parts_of(part)


def test_everything_has_a_short_repr():
    """Of a network with long numbers, many layers and classes; with and without what it may have."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(30, 30)) * 2.0**-300 for _ in range(20)]
    large = Network.from_arrays([*weights, rng.normal(size=(12, 30))], between="leaky_relu:5368709/536870912")
    rough = Network.from_arrays([rng.normal(size=(12, 50))], mean=rng.normal(size=50), std=rng.uniform(1, 2, size=50))
    small = Network.from_arrays([np.eye(2), np.eye(2)], [[1, 2], None], between="clip:0:6")
    things = [compute_bounds(small, "exact", 1), audit(compute_bounds(small, "exact", 1), small)]
    for network in (large, rough, small):
        bounds = compute_bounds(network, "float64")
        x = rng.normal(size=(40, network.inputs))
        logits = evaluate(network, x)
        verdicts = certify(bounds, logits.lower[-1], "0.1")
        radii = robust_radius(network, x, bounds=bounds)
        things += [network, bounds, logits, verdicts, verdicts[0], radii, RationalMatrix.from_floats(x)]
    seen = set()
    for part in (part for thing in things for part in parts_of(thing)):
        if type(part).__module__.startswith("intervalcert."):
            seen.add(type(part).__name__)
            assert len(repr(part)) <= 300, repr(part)[:1000]
    expected = {
        "Network",
        "Layer",
        "Source",
        "LeakyReLU",
        "Clip",
        "Normalisation",
        "Bounds",
        "LayerBound",
        "Margins",
        "Method",
    }
    assert seen >= expected | {"Evaluation", "Verdicts", "Verdict", "AuditReport", "AuditedClaim", "RationalMatrix"}
    public = (getattr(intervalcert, name) for name in NAMES)
    frozen = {thing.__name__ for thing in public if dataclasses.is_dataclass(thing)}
    assert frozen <= seen, "a public object without a test of its repr"


def test_a_repr_says_what_it_is(bounds):
    network = Network.from_arrays([np.ones((4, 3)), np.ones((2, 4))], [[1, 2, 3, 4], None])
    assert repr(network) == "<Network 3-4-2 from (in memory), eps in the input space>"
    assert repr(network.layers[0]) == "<Layer of 4 x 3 weights, bias yes, activation relu>"
    assert repr(bounds) == "<Bounds of (in memory): 1 layers, 2 classes, eps in the input space>"
    assert repr(bounds.margins) == "<Margins of 2 classes, at most 1.41422>"
    assert repr(audit(bounds, Network.from_arrays([np.eye(2)]))) == "<AuditReport: 3 of 3 claims confirmed>"
    assert repr(RationalMatrix.from_integers([[1, 2]], 3)) == "RationalMatrix([[1, 2]], 3)"
    assert repr(RationalMatrix.from_integers([range(17)], 3)) == "<RationalMatrix of 1 x 17>"
    assert repr(RationalMatrix.from_integers([[10**5000]], 3)) == "<RationalMatrix of 1 x 1>"  # too long for Python


# -- wrong types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "eps",
    [
        *(
            None,
            True,
            np.True_,
            "",
            "x",
            "nan",
            float("nan"),
            float("inf"),
            -1,
            -0.5,
            "-1",
            Fraction(-1, 2),
            1j,
            b"0.1",
        ),
        *({}, [], [1, 2], [None], object, np.datetime64("2020-01-01"), [[1]], np.array([[0.5]]), np.array([np.nan])),
        *(np.array([-0.5]), np.array([True]), np.array([0.5, 0.5])),
    ],
    ids=repr,
)
def test_a_wrong_radius_is_refused(bounds, eps):
    for outputs in ([[3.0, 1.0]], np.array([[3.0, 1.0]])):
        with pytest.raises(InputError):
            certify(bounds, outputs, eps)


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        "x",
        [],
        [[]],
        [[1.0]],
        [[1.0, 2.0, 3.0]],
        [[1.0, 2.0], [3.0]],
        [[1.0, float("nan")]],
        [[1.0, float("inf")]],
        ["1", "nan"],
        [[True, False]],
        [[1j, 2.0]],
        [[None, 1.0]],
        np.zeros((1, 1, 2)),
        np.array([[b"1", b"2"]]),
        {"a": 1},
        object,
        np.zeros((0, 2)),
        np.array([["2020-01-01", "2020-01-02"]], dtype="M8[D]"),
    ],
    ids=repr,
)
def test_wrong_outputs_are_refused(bounds, outputs):
    with pytest.raises(InputError):
        certify(bounds, outputs, 0)
    with pytest.raises(InputError):
        certified_radius(bounds, outputs)


def bytes_like(text):
    """The same characters, in everything that lends out bytes; their items would be codes of characters."""
    return [text, bytearray(text), memoryview(text), array("B", text), array("b", text)]


NO_LISTS = [*bytes_like(b"100"), array("d", [1.0, 2.0, 3.0])]


@pytest.mark.parametrize("given", NO_LISTS, ids=type_name)
def test_bytes_are_no_radii_and_no_normalisation(bounds, given):
    """With three outputs, b"100" would be the radii 49, 48 and 48."""
    for outputs in ([[300.0, 0.0]] * 3, np.array([[300.0, 0.0]] * 3)):
        with pytest.raises(InputError):
            certify(bounds, outputs, given)
    for options in ({"mean": given, "std": 1}, {"mean": 0, "std": given}):
        with pytest.raises(InputError):
            Network.from_arrays([np.eye(3)], **options)


@pytest.mark.parametrize("given", [*NO_LISTS, "100"], ids=type_name)
def test_bytes_and_texts_are_no_rows(given):
    """Nor would they be as logits, inputs, weights and biases."""
    network = Network.from_arrays([np.eye(3)])
    bounds = compute_bounds(network, "exact", 1)
    for rows in (given, [given], [[1.0, 2.0, 0.5], given], (given, given)):
        with pytest.raises(InputError):
            certify(bounds, rows, 0)
        with pytest.raises(InputError):
            certify_inputs(network, rows, 0)
        with pytest.raises(InputError):
            evaluate(network, rows)
    for weights in (given, [given], [[given, given]], [[[1.0, 2.0, 3.0], given]]):
        with pytest.raises(InputError):
            Network.from_arrays(weights)
    for biases in (given, [given]):
        with pytest.raises(InputError):
            Network.from_arrays([np.eye(3)], biases)


@pytest.mark.parametrize("given", ["ab", *bytes_like(b"ab")], ids=type_name)
def test_names_of_layers_are_a_list(given, tmp_path):
    np.savez(tmp_path / "m.npz", W0=np.eye(2))
    with pytest.raises(UsageError, match="list of names"):
        load_model(tmp_path / "m.npz", layers=given)


@pytest.mark.parametrize("iterations", [-1, 41, 10**30, "many", "3", 2.5, None], ids=repr)
def test_wrong_iterations_are_refused(iterations):
    with pytest.raises((UsageError, InputError)):
        compute_bounds(Network.from_arrays([np.eye(2)]), "exact", iterations)


def test_tuning_rounds_have_an_old_word():
    network = Network.from_arrays([np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, -1.0], [1.0, 2.0]])])
    found = [compute_bounds(network, "exact", **{word: 2}) for word in ("tuning_rounds", "effort")]
    assert found[0] == found[1]
    assert found[0].method.tuning_rounds == 2
    with pytest.raises(UsageError, match="effort is the old word for tuning_rounds"):
        compute_bounds(network, "exact", tuning_rounds=2, effort=2)
    for wrong in (-1, 1001, 1.5, True, "3"):
        with pytest.raises(UsageError, match="rounds"):
            compute_bounds(network, "exact", tuning_rounds=wrong)


@pytest.mark.parametrize("prec", [-64, 0, 15, 4097, "64", 64.0, None], ids=repr)
def test_a_wrong_precision_is_refused(prec):
    with pytest.raises((UsageError, InputError)):
        compute_bounds(Network.from_arrays([np.eye(2)]), "exact", 1, prec=prec)


@pytest.mark.parametrize("backend", ["", "ARB", "float", None], ids=repr)
def test_a_wrong_backend_is_refused(backend):
    with pytest.raises(UsageError, match="auto, arb, float64, exact, mpmath"):
        compute_bounds(Network.from_arrays([np.eye(2)]), backend)


def test_the_default_backend_is_auto(tmp_path):
    """float64 first: the file says what was asked for, and which number system proved each claim."""
    network = Network.from_arrays([np.array([[0.5, 0.25], [1.0, -1.0]]), np.array([[1.0, 3.0], [0.0, 2.0]])])
    found, named = compute_bounds(network), compute_bounds(network, "float64")
    assert (found.method.backend, found.method.working_bits) == ("auto", 53)
    assert found == dataclasses.replace(named, method=dataclasses.replace(named.method, backend="auto"))
    assert {layer.computed_by for layer in found.layers} == {"float64, 53 bits"}
    save_bounds(found, tmp_path / "bounds.json")
    assert load_bounds(tmp_path / "bounds.json") == found
    assert audit(found, network).confirmed
    inputs = np.array([[1.0, 2.0], [0.1, -3.0]])
    by_default, by_name = evaluate(network, inputs), evaluate(network, inputs, backend="float64")
    assert all((a == b).all() for a, b in zip(by_default.lower, by_name.lower, strict=True))
    assert all((a == b).all() for a, b in zip(by_default.upper, by_name.upper, strict=True))
    for function in (compute_bounds, evaluate):
        assert inspect.signature(function).parameters["backend"].default == "auto"


@pytest.mark.parametrize("backend", ["auto", "float64"])
def test_what_float64_cannot_bound_goes_on_and_is_said(monkeypatch, backend):
    monkeypatch.setattr("intervalcert.backends.float64.product_fault", lambda: "a fault of this machine")
    found = compute_bounds(Network.from_arrays([np.array([[0.5, 0.25], [1.0, -1.0]]), np.eye(2)]), backend)
    assert found.method.backend == backend
    for layer in found.layers:
        assert layer.computed_by.startswith("arb")
        assert layer.skipped_because[0].startswith("float64, 53 bits: ")
        assert "a fault of this machine" in layer.skipped_because[0]


@pytest.mark.parametrize("name", ["swish", "", "ReLU6", None], ids=repr)
def test_a_wrong_activation_is_refused(name):
    """There is no Lipschitz constant by default."""
    with pytest.raises(InputError, match="activation"):
        Network.from_arrays([np.eye(2), np.eye(2)], between=name)
